"""The Vision Transformer (rows L1, L2, L4 and L5): an image as a sentence of patches."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from polyhead.models.vit import PatchEmbed, ViT, ViTConfig
from polyhead.notes.claims import ClaimResult, claim, close, gap, refusal, same
from polyhead.notes.torch_reference import torch_block

SMALL = replace(ViTConfig().stack, n_layers=1, d_model=64, n_heads=4, d_ff=128)


@claim("L1", PatchEmbed, ViT)
def one_convolution() -> ClaimResult:
    """Compare the convolution with unfold and a linear layer; count convolutions."""
    model = ViT(ViTConfig(2, 32, 48, 3, 16, stack=SMALL))
    images, layer = torch.randn(2, 3, 32, 48), model.embed.project
    patches = F.unfold(images, 16, stride=16).mT
    expected = F.linear(patches, layer.weight.flatten(1), layer.bias)
    result = close(expected=expected, got=model.embed(images), within=1e-5)
    n = sum(isinstance(module, nn.Conv2d) for module in model.modules())
    return result.with_note("0 convolutions", differs=n == 1)


@claim("L2", ViT.hidden, ViT.places)
def not_equivariant() -> ClaimResult:
    """Move an image by one patch and measure how far the outputs do not move along."""
    model = ViT(ViTConfig(2, 12, 12, 1, 4, "mean", SMALL)).eval()
    images = torch.randn(1, 1, 12, 12)
    moved = images.roll(4, dims=-1)

    convolution, transformer = (
        gap(part(moved), part(images).unflatten(1, (3, 3)).roll(1, dims=2).flatten(1, 2))
        for part in (model.embed, model.hidden)
    )
    holds = convolution < 1e-5 and transformer > 1e-3
    return ClaimResult("conv 0, ViT more", f"conv {convolution:.0e}, ViT {transformer:.1g}", holds)


@claim("L4", ViT.forward, ViT.hidden)
def encoder_of_patches() -> ClaimResult:
    """Compare the logits with those of torch's encoder layer."""
    model = ViT(ViTConfig(5, 8, 8, 3, 4, stack=SMALL)).eval()
    nn.init.normal_(model.to_logits.weight)  # it begins at zero
    block: Any = model.stack.blocks[0]
    images = torch.randn(2, 3, 8, 8)
    theirs = torch_block(block, norm_first=True, activation="gelu", eps=1e-6)
    patches = model.embed.project(images).flatten(2).mT
    tokens = torch.cat([torch.zeros(2, 1, 64), patches], dim=1) + model.positions(model.n_tokens)
    normed = F.layer_norm(theirs(tokens)[:, 0], (64,), eps=1e-6)
    expected = normed @ model.to_logits.weight.T + model.to_logits.bias
    return close(expected=expected, got=model(images), within=1e-4)


@claim("L5", PatchEmbed, ViTConfig)
def patches_of_sixteen() -> ClaimResult:
    """Check shape and number of parameters, and that 225 pixels are rejected."""
    embed = PatchEmbed(16, 3, 768)
    tokens = list(embed(torch.randn(1, 3, 224, 224)).shape[1:])
    oblong = embed(torch.randn(1, 3, 32, 64)).size(1)
    n_parameters = sum(p.numel() for p in embed.parameters())
    refused = "refused" if refusal(lambda: embed(torch.randn(1, 3, 225, 225))) else "accepted"
    expected = [196, 768, 590_592, 8, "refused"]
    result = same(expected=expected, got=[*tokens, n_parameters, oblong, refused])
    noted = (225 // 16) ** 2  # as the note computes it
    return result.with_note(f"225 px: {noted} patches, 1 px lost", differs=225 % 16 != 0)
