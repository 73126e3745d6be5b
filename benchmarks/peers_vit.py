"""Vision Transformers of others, of the same size as ours and with our weights where they fit.

timm     timm's VisionTransformer, if the package is installed
torch    what one writes by hand: a convolution, nn.TransformerEncoderLayer, a linear layer
"""

import importlib.util
from typing import Any

import torch
from torch import Tensor, nn

from polyhead.errors import ConfigError, MissingError
from polyhead.models.vit import ViT, ViTConfig


class PlainViT(nn.Module):
    """A ViT from PyTorch's own layers, pre-norm, with or without a class token."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        stack, (rows, columns) = config.stack, config.grid
        with_class = config.pooling == "class"
        self.embed = nn.Conv2d(
            config.channels, stack.d_model, kernel_size=config.patch, stride=config.patch
        )
        self.class_token = nn.Parameter(torch.zeros(1, 1, stack.d_model)) if with_class else None
        n_tokens = rows * columns + int(with_class)
        self.positions = nn.Parameter(torch.zeros(1, n_tokens, stack.d_model))
        layer = nn.TransformerEncoderLayer(
            stack.d_model,
            stack.n_heads,
            stack.d_ff,
            dropout=stack.dropout,
            activation="gelu",
            layer_norm_eps=stack.norm_eps,
            batch_first=True,
            norm_first=True,
        )
        norm = nn.LayerNorm(stack.d_model, eps=stack.norm_eps)
        self.encoder = nn.TransformerEncoder(
            layer, stack.n_layers, norm=norm, enable_nested_tensor=False
        )
        self.to_logits = nn.Linear(stack.d_model, config.classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.embed(images).flatten(2).transpose(1, 2)
        if self.class_token is not None:
            x = torch.cat([self.class_token.expand(len(x), -1, -1), x], dim=1)
        x = self.encoder(x + self.positions)
        return self.to_logits(x.mean(1) if self.class_token is None else x[:, 0])


def to_plain(ours: ViT, config: ViTConfig) -> PlainViT:
    """Return a plain ViT with our weights: it gives the same logits."""
    _check(config)
    plain = PlainViT(config)
    with torch.no_grad():
        plain.embed.load_state_dict(ours.embed.project.state_dict())
        plain.to_logits.load_state_dict(ours.to_logits.state_dict())
        plain.positions.copy_(ours.positions(ours.n_tokens)[None])
        if plain.class_token is not None and ours.class_token is not None:
            plain.class_token.copy_(ours.class_token[None, None])
        blocks: Any = ours.stack.blocks
        for theirs, block in zip(plain.encoder.layers, blocks, strict=True):
            _copy_block(theirs, block)
        plain.encoder.norm.load_state_dict(ours.stack.norm.state_dict())
    return plain.train(ours.training)


def _copy_block(theirs: Any, block: Any) -> None:
    attention, feed_forward = block.self_attention, block.feed_forward
    parts = (attention.w_q, attention.w_k, attention.w_v)
    theirs.self_attn.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
    theirs.self_attn.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
    theirs.self_attn.out_proj.load_state_dict(attention.w_o.state_dict())
    theirs.linear1.load_state_dict(feed_forward.w_1.state_dict())
    theirs.linear2.load_state_dict(feed_forward.w_2.state_dict())
    theirs.norm1.load_state_dict(block.self_residual.norm.state_dict())
    theirs.norm2.load_state_dict(block.feed_residual.norm.state_dict())


def to_timm(config: ViTConfig) -> nn.Module:
    """Timm's model of the same size, with its own first weights."""
    _check(config)
    if importlib.util.find_spec("timm") is None:
        raise MissingError("timm is not installed: pip install timm, or compare with torch")
    try:
        from timm.models.vision_transformer import VisionTransformer
    except (ImportError, RuntimeError) as error:
        raise MissingError(
            f"timm cannot be imported ({' '.join(str(error).split())}); install a torchvision made "
            "for this torch, or compare with torch"
        ) from error

    stack = config.stack
    return VisionTransformer(
        img_size=(config.height, config.width),
        patch_size=config.patch,
        in_chans=config.channels,
        num_classes=config.classes,
        global_pool="token" if config.pooling == "class" else "avg",
        class_token=config.pooling == "class",
        embed_dim=stack.d_model,
        depth=stack.n_layers,
        num_heads=stack.n_heads,
        mlp_ratio=stack.d_ff / stack.d_model,
        proj_drop_rate=stack.dropout,
        fc_norm=False,
    )


def _check(config: ViTConfig) -> None:
    if config.stack.norm != "pre" or config.stack.activation != "gelu":
        raise ConfigError("the peers are pre-norm with GELU, as ViT is")
