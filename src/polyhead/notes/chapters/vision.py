"""The Vision Transformer (rows L1, L2, L4 and L5): an image as a sentence of patches.

L3 (300 million images) and L6 (pre-train, then use) are history, not claims to compute.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from polyhead.i18n import Words
from polyhead.models.vit import PatchEmbed, ViT, ViTConfig
from polyhead.notes.claims import Finding, check, close, same


@check(
    "L1",
    note="imprecise",
    claim=Words(
        "ViT has one convolution: a linear map for every patch",
        "ViT에는 합성곱이 하나 있다: 패치마다 적용하는 선형 변환",
    ),
    formula="Conv2d(kernel = stride = p)(image) = unfold_p(image) Wᵀ + b",
    explain=Words(
        "The note says that no CNN is used at all, yet its own code has a Conv2d. A convolution "
        "whose stride is its kernel never overlaps: it cuts the image into patches and applies one "
        "linear layer to each. There is no other convolution in the model.",
        "노트는 CNN을 전혀 쓰지 않는다고 하지만, 노트의 코드에도 Conv2d가 있다. 커널과 보폭이 "
        "같은 합성곱은 겹치지 않으므로, 이미지를 패치로 자르고 패치마다 같은 선형층을 적용하는 "
        "것과 같다. 그 밖의 합성곱은 없다.",
    ),
    code=(PatchEmbed, ViT),
)
def one_convolution() -> Finding:
    """The convolution against unfold and a linear layer; and how many convolutions there are."""
    small = replace(ViTConfig().stack, n_layers=1, d_model=64, n_heads=4, d_ff=128)
    model = ViT(ViTConfig(2, 32, 48, 3, 16, stack=small))
    images, layer = torch.randn(2, 3, 32, 48), model.embed.project
    patches = F.unfold(images, 16, stride=16).mT
    expected = F.linear(patches, layer.weight.flatten(1), layer.bias)
    found = close(expected=expected, got=model.embed(images), within=1e-5)
    n = sum(isinstance(module, nn.Conv2d) for module in model.modules())
    return found.but_noted("0 convolutions", differs=n == 1)


@check(
    "L2",
    claim=Words(
        "ViT does not know that a shifted image is the same image",
        "ViT는 옮겨진 그림이 같은 그림임을 알지 못한다",
    ),
    formula="conv(shift x) = shift conv(x),   ViT(shift x) ≠ shift ViT(x)",
    explain=Words(
        "A convolution's output moves along with its input: it need not learn a cat at every "
        "place. ViT adds a vector for the place to each patch, so a picture moved by one patch "
        "gives other states, and only data can teach it that this does not matter. That is why it "
        "needs more of them.",
        "합성곱의 출력은 입력을 따라 움직이므로 고양이를 자리마다 따로 배울 필요가 없다. ViT는 "
        "패치에 위치 벡터를 더하므로 한 패치만큼 옮긴 그림은 다른 상태를 낳고, 그것이 중요하지 "
        "않다는 사실은 데이터로만 배울 수 있다. 그래서 더 많은 데이터가 필요하다.",
    ),
    code=(ViT.hidden, ViT.places),
)
def not_equivariant() -> Finding:
    """Move an image by one patch, and see what of the output does not move along."""
    small = replace(ViTConfig().stack, n_layers=1, d_model=64, n_heads=4, d_ff=128)
    model = ViT(ViTConfig(2, 12, 12, 1, 4, "mean", small)).eval()
    images = torch.randn(1, 1, 12, 12)
    moved = images.roll(4, dims=-1)

    def gap(after: torch.Tensor, before: torch.Tensor) -> float:
        grid = before.unflatten(1, (3, 3)).roll(1, dims=2).flatten(1, 2)
        return (after - grid).abs().max().item()

    convolution = gap(model.embed(moved), model.embed(images))
    transformer = gap(model.hidden(moved), model.hidden(images))
    holds = convolution < 1e-5 and transformer > 1e-3
    return Finding("conv 0, ViT more", f"conv {convolution:.0e}, ViT {transformer:.1g}", holds)


@check(
    "L4",
    claim=Words(
        "ViT is the Transformer's encoder, reading patches",
        "ViT는 패치를 읽는 트랜스포머 인코더다",
    ),
    formula="y = LayerNorm(Encoder([class ; patches] + P))[class] W",
    explain=Words(
        "The note is right and leaves out four things: the norms stand before the sub-layers, the "
        "activation is GELU, an extra class token collects the result, and a linear head turns it "
        "into classes. With the same weights torch's own encoder, norm_first and gelu, gives the "
        "same logits.",
        "노트는 맞지만 네 가지가 빠져 있다. 정규화가 각 부분층의 앞에 있고, 활성화 함수는 "
        "GELU이며, 따로 더한 클래스 토큰이 결과를 모으고, 선형층이 그것을 클래스로 바꾼다. 같은 "
        "가중치를 넣은 torch의 인코더(norm_first, gelu)가 같은 로짓을 낸다.",
    ),
    code=(ViT.forward, ViT.hidden),
)
def an_encoder_that_reads_patches() -> Finding:
    """The same logits by torch's own encoder layer."""
    small = replace(ViTConfig().stack, n_layers=1, d_model=64, n_heads=4, d_ff=128)
    model = ViT(ViTConfig(5, 8, 8, 3, 4, stack=small)).eval()
    nn.init.normal_(model.to_logits.weight)  # it begins at zero
    block: Any = model.stack.blocks[0]
    images, ours = torch.randn(2, 3, 8, 8), block.self_attention
    theirs = nn.TransformerEncoderLayer(
        64, 4, 128, 0.0, "gelu", 1e-6, batch_first=True, norm_first=True
    )
    theirs.self_attn.in_proj_weight.data = torch.cat(
        [w.weight for w in (ours.w_q, ours.w_k, ours.w_v)]
    )
    theirs.self_attn.out_proj.load_state_dict(ours.w_o.state_dict())
    theirs.linear1.load_state_dict(block.feed_forward.w_1.state_dict())
    theirs.linear2.load_state_dict(block.feed_forward.w_2.state_dict())
    patches = model.embed.project(images).flatten(2).mT
    tokens = torch.cat([torch.zeros(2, 1, 64), patches], dim=1) + model.positions(model.n_tokens)
    normed = F.layer_norm(theirs(tokens)[:, 0], (64,), eps=1e-6)
    expected = normed @ model.to_logits.weight.T + model.to_logits.bias
    return close(expected=expected, got=model(images), within=1e-4)


@check(
    "L5",
    note="imprecise",
    claim=Words(
        "224 pixels in patches of 16: 196 tokens of 768; 225 is refused",
        "224픽셀을 16씩 자르면 768차원 토큰 196개, 225픽셀은 거절한다",
    ),
    formula="N = (H / p) · (W / p),   parameters = 3 · 16 · 16 · 768 + 768 = 590,592",
    explain=Words(
        "The note's shapes are right, but its code divides with // and never looks at the rest: of "
        "225 pixels the last row and column are dropped without a word, and height and width are "
        "assumed equal. Here such an image is refused, and oblong ones are fine.",
        "노트의 크기는 맞지만 코드는 //로 나누고 나머지를 보지 않는다. 225픽셀이면 마지막 행과 "
        "열이 아무 말 없이 버려지고, 높이와 너비가 같다고 가정한다. 여기서는 그런 이미지를 "
        "거절하고, 직사각형 이미지는 받아들인다.",
    ),
    code=(PatchEmbed, ViTConfig),
)
def patches_of_sixteen() -> Finding:
    """The shape, the number of parameters, and what becomes of 225 pixels."""
    embed = PatchEmbed(16, 3, 768)
    tokens = list(embed(torch.randn(1, 3, 224, 224)).shape[1:])
    oblong = embed(torch.randn(1, 3, 32, 64)).size(1)
    n_parameters = sum(p.numel() for p in embed.parameters())
    try:
        refused = str(embed(torch.randn(1, 3, 225, 225)).size(1))
    except ValueError:
        refused = "refused"
    expected = [196, 768, 590_592, 8, "refused"]
    found = same(expected=expected, got=[*tokens, n_parameters, oblong, refused])
    noted = (225 // 16) ** 2  # as the note computes it
    return found.but_noted(f"225 px: {noted} patches, 1 px lost", differs=225 % 16 != 0)
