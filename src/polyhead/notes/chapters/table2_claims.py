"""Table 2 (rows J1 to J12): quality and training cost, and every system against its NumPy twin."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from polyhead.cost.breakdown import transformer_cost
from polyhead.cost.counter import count_flops
from polyhead.cost.formulas import Shape
from polyhead.cost.published import TABLE_2, TRAININGS, Training, estimated_flops, gain, table_2
from polyhead.decoding.ensemble import Ensemble
from polyhead.layers.mixture_of_experts import ExpertsConfig
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.baselines.bytenet import ByteNet, ByteNetConfig
from polyhead.models.baselines.convs2s import ConvS2S, ConvS2SConfig
from polyhead.models.baselines.deep_att import DeepAtt, DeepAttConfig
from polyhead.models.baselines.gnmt import GNMT, GNMTConfig
from polyhead.models.baselines.moe_lstm import MoE, MoEConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.notes.claims import ClaimResult, claim, close, same
from polyhead.notes.numpy_parallel import bytenet, convs2s, transformer
from polyhead.notes.numpy_recurrent import Twin, deep_att, gnmt, mixture_of_experts
from polyhead.notes.numpy_reference import WITHIN_SINGLE, WORDS, ensemble_gap, same_logits, twin_gap


def small_transformer(d_model: int, n_heads: int) -> Transformer:
    """Return a Transformer of two layers with the paper's arrangement."""
    stack = StackConfig(2, d_model, n_heads, 4 * d_model)
    return Transformer(TransformerConfig(WORDS, WORDS, stack=stack))


def small_experts(config: ExpertsConfig) -> MoE:
    """Return a translator of LSTM layers with projections and experts."""
    return MoE(MoEConfig(WORDS, WORDS, d_model=6, d_hidden=8, d_ff=8, experts=config))


TWO_LEVELS = ExpertsConfig(n=12, k=2, groups=3, gating="balanced")
SYSTEMS: dict[str, tuple[Callable[[], nn.Module], Twin]] = {  # small, with all parts of the paper
    "ByteNet": (lambda: ByteNet(ByteNetConfig(WORDS, WORDS, d_model=8, n_layers=6)), bytenet),
    "Deep-Att": (lambda: DeepAtt(DeepAttConfig(WORDS, WORDS, d_model=6)), deep_att),
    "GNMT": (lambda: GNMT(GNMTConfig(WORDS, WORDS, d_model=6)), gnmt),
    "ConvS2S": (
        lambda: ConvS2S(ConvS2SConfig(WORDS, WORDS, 0, 6, ((8, 3),) * 2, ((8, 3),) * 2)), convs2s,
    ),
    "MoE": (lambda: small_experts(TWO_LEVELS), mixture_of_experts),
    "base": (lambda: small_transformer(8, 2), partial(transformer, n_heads=2)),
    "big": (lambda: small_transformer(16, 4), partial(transformer, n_heads=4)),
}  # fmt: skip


@claim("J1", ByteNet, bytenet, gain)
def bytenet_system() -> ClaimResult:
    """Compute the lead of the base model in BLEU."""
    return check_row("ByteNet", (23.75, None, None, None), [3.55], [gain("base", "ByteNet").en_de])


@claim("J2", DeepAtt, deep_att, gain)
def deep_att_system() -> ClaimResult:
    """Compute the lead of the big model in BLEU and the ratio of costs."""
    got = gain("big", "Deep-Att")
    figures = (None, 39.2, None, 1.0e20)
    return check_row("Deep-Att", figures, [2.6, 10 / 2.3], [got.en_fr, got.cheaper_en_fr])


@claim("J3", GNMT, gnmt, gain)
def gnmt_system() -> ClaimResult:
    """Compute the lead of the big model in German and the ratio of costs."""
    got = gain("big", "GNMT")
    figures = (24.6, 39.92, 2.3e19, 1.4e20)
    return check_row("GNMT", figures, [3.8, 1.0], [got.en_de, got.cheaper_en_de])


@claim("J4", ConvS2S, convs2s, gain)
def convs2s_system() -> ClaimResult:
    """Compute the lead of the base model in German and the ratio of costs."""
    got = gain("base", "ConvS2S")
    figures = (25.16, 40.46, 9.6e18, 1.5e20)
    return check_row("ConvS2S", figures, [2.14, 9.6 / 3.3], [got.en_de, got.cheaper_en_de])


@claim("J5", MoE, mixture_of_experts, gain)
def moe_system() -> ClaimResult:
    """Compute lead and costs; compare experts in groups, and chosen by k, with a twin."""
    got = gain("big", "MoE")
    figures = (26.03, 40.56, 2.0e19, 1.2e20)
    result = check_row("MoE", figures, [1.24, 12 / 2.3], [got.en_fr, got.cheaper_en_fr])
    flat = twin_gap(small_experts(ExpertsConfig(n=4, k=2)), mixture_of_experts)
    return result.if_also(same_logits(flat))


@claim("J6", DeepAtt, Ensemble, deep_att, gain)
def deep_att_ensemble() -> ClaimResult:
    """Compute the gain over the single model and the ratio of costs."""
    more, less = gain("Deep-Att ensemble", "Deep-Att"), gain("Deep-Att", "Deep-Att ensemble")
    got = [more.en_fr, less.cheaper_en_fr]
    return check_row("Deep-Att ensemble", (None, 40.4, None, 8.0e20), [1.2, 8.0], got)


@claim("J7", GNMT, Ensemble, gnmt, gain)
def gnmt_ensemble() -> ClaimResult:
    """Compute the cost in single models, in German and in French."""
    less = gain("GNMT", "GNMT ensemble")
    figures, got = (26.30, 41.16, 1.8e20, 1.1e21), [less.cheaper_en_de, less.cheaper_en_fr]
    return check_row("GNMT ensemble", figures, [18 / 2.3, 11 / 1.4], got)


@claim("J8", ConvS2S, Ensemble, convs2s, gain)
def convs2s_ensemble() -> ClaimResult:
    """Compute the best earlier BLEU in German, the lead of the big model, and the cost."""
    less, lead = gain("ConvS2S", "ConvS2S ensemble"), gain("big", "ConvS2S ensemble")
    best = max(row.en_de or 0.0 for name, row in TABLE_2.items() if name not in TRAININGS)
    got = [best, lead.en_de, less.cheaper_en_de]
    figures = (26.36, 41.29, 7.7e19, 1.2e21)
    return check_row("ConvS2S ensemble", figures, [26.36, 2.04, 77 / 9.6], got)


@claim("J9", Transformer, transformer, gain)
def base_model() -> ClaimResult:
    """Count the earlier rows with a lower BLEU, in German and in French."""
    leads = [gain("base", name) for name in TABLE_2 if name not in TRAININGS]
    german = [lead.en_de > 0 for lead in leads if lead.en_de is not None]
    french = [lead.en_fr > 0 for lead in leads if lead.en_fr is not None]
    got = f"German {sum(german)} of {len(german)}, French {sum(french)} of {len(french)}"
    row = same((27.3, 38.1, 3.3e18, 3.3e18), TABLE_2["base"][1:])
    return check_system("base", same("German 6 of 6, French 0 of 7", got).if_also(row))


@claim("J10", Transformer, transformer, gain)
def big_model() -> ClaimResult:
    """Compute the best BLEU of both pairs, and the cost in base models."""
    _, en_de, en_fr, *_ = zip(*TABLE_2.values(), strict=True)
    best = [max(filter(None, column)) for column in (en_de, en_fr)]
    got = [*best, gain("base", "big").cheaper_en_de]
    return check_row("big", (28.4, 41.8, 2.3e19, 2.3e19), [28.4, 41.8, 23 / 3.3], got)


@claim("J11", estimated_flops, Training)
def estimated_cost() -> ClaimResult:
    """Compute both estimates, and compare their rounded values with Table 2."""
    base, big = estimated_flops(12 * 3600, 8, 9.5e12), estimated_flops(3.5 * 86400, 8, 9.5e12)
    printed = [TABLE_2["base"].cost_en_de, TABLE_2["big"].cost_en_de]
    result = same("[3.283e+18, 2.298e+19]", f"[{base:.3e}, {big:.3e}]")
    result = result.if_also([TRAININGS[name].flops for name in ("base", "big")] == [base, big])
    return result.if_also([float(f"{flops:.1e}") for flops in (base, big)] == printed)


@claim("J12", transformer_cost, table_2)
def counted_training_step() -> ClaimResult:
    """Count the FLOPs of a training step with torch and with the library."""
    config = TransformerConfig(50, 50, stack=StackConfig(2, 16, 2, 32))
    model, source, target = Transformer(config), torch.ones(3, 7).long(), torch.ones(3, 5).long()

    def step() -> None:
        F.cross_entropy(model(source, target).flatten(0, 1), target.flatten()).backward()

    counted = count_flops(step)
    ours = transformer_cost(config, Shape(batch=3, length=5, source=7)).total
    own_row = TABLE_2["base"]._replace(name="ours", cost_en_de=float(ours.training))
    row = table_2(own_row).splitlines()[-1]
    shown = row.startswith("| ours |") and ours.training == 3 * ours.forward
    return same(expected=counted, got=ours.training).if_also(shown)


def check_row(
    name: str, printed: tuple[float | None, ...], expected: list[float], got: Sequence[float | None]
) -> ClaimResult:
    """Compare derived figures of a row of Table 2, the row with the print, the system by a twin."""
    if TABLE_2[name][1:] != printed:
        return ClaimResult(str(printed), str(TABLE_2[name][1:]), holds=False)
    derived = [0.0 if figure is None else figure for figure in got]
    bleu = ", ".join(f"{figure:g}" for figure in printed[:2] if figure is not None)
    texts = [", ".join(f"{figure:.4g}" for figure in side) for side in (expected, derived)]
    holds = close(expected=expected, got=derived, within=1e-9).holds
    return check_system(
        name, ClaimResult(f"BLEU {bleu}; {texts[0]}", f"BLEU {bleu}; {texts[1]}", holds)
    )


def check_system(name: str, figures: ClaimResult) -> ClaimResult:
    """Compare the system's logits with its NumPy twin's too; an ensemble has two models."""
    make, twin = SYSTEMS[name.removesuffix(" ensemble")]
    if name in SYSTEMS:
        return same_logits(twin_gap(make(), twin), figures)
    return same_logits(ensemble_gap([make(), make()], twin), figures, within=WITHIN_SINGLE)
