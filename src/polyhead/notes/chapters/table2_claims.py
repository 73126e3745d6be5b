"""Table 2 (rows J1 to J12): quality and training cost, as published and as recomputed."""

from collections.abc import Sequence

import torch
from torch.nn import functional as F

from polyhead.cost.breakdown import transformer_cost
from polyhead.cost.counter import count_flops
from polyhead.cost.formulas import Shape
from polyhead.cost.published import (
    TABLE_2,
    TRAININGS,
    PublishedSystem,
    Training,
    estimated_flops,
    gain,
    table_2,
)
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.notes.claims import ClaimResult, claim, close, same


@claim("J1", PublishedSystem, gain)
def bytenet() -> ClaimResult:
    """Compute the lead of the base model in BLEU."""
    return _derived("ByteNet", (23.75, None, None, None), [3.55], [gain("base", "ByteNet").en_de])


@claim("J2", PublishedSystem, gain)
def deep_att() -> ClaimResult:
    """Compute the lead of the big model in BLEU and the ratio of costs."""
    got = gain("big", "Deep-Att")
    figures = (None, 39.2, None, 1.0e20)
    return _derived("Deep-Att", figures, [2.6, 10 / 2.3], [got.en_fr, got.cheaper_en_fr])


@claim("J3", PublishedSystem, gain)
def gnmt() -> ClaimResult:
    """Compute the lead of the big model in German and the ratio of costs."""
    got = gain("big", "GNMT")
    figures = (24.6, 39.92, 2.3e19, 1.4e20)
    return _derived("GNMT", figures, [3.8, 1.0], [got.en_de, got.cheaper_en_de])


@claim("J4", PublishedSystem, gain)
def convs2s() -> ClaimResult:
    """Compute the lead of the base model in German and the ratio of costs."""
    got = gain("base", "ConvS2S")
    figures = (25.16, 40.46, 9.6e18, 1.5e20)
    return _derived("ConvS2S", figures, [2.14, 9.6 / 3.3], [got.en_de, got.cheaper_en_de])


@claim("J5", PublishedSystem, gain)
def mixture_of_experts() -> ClaimResult:
    """Compute the lead of the big model in French and the ratio of costs."""
    got = gain("big", "MoE")
    figures = (26.03, 40.56, 2.0e19, 1.2e20)
    return _derived("MoE", figures, [1.24, 12 / 2.3], [got.en_fr, got.cheaper_en_fr])


@claim("J6", PublishedSystem, gain)
def deep_att_ensemble() -> ClaimResult:
    """Compute the gain over the single model and the ratio of costs."""
    more, less = gain("Deep-Att ensemble", "Deep-Att"), gain("Deep-Att", "Deep-Att ensemble")
    got = [more.en_fr, less.cheaper_en_fr]
    return _derived("Deep-Att ensemble", (None, 40.4, None, 8.0e20), [1.2, 8.0], got)


@claim("J7", PublishedSystem, gain)
def gnmt_ensemble() -> ClaimResult:
    """Compute the cost in single models, in German and in French."""
    less = gain("GNMT", "GNMT ensemble")
    figures, got = (26.30, 41.16, 1.8e20, 1.1e21), [less.cheaper_en_de, less.cheaper_en_fr]
    return _derived("GNMT ensemble", figures, [18 / 2.3, 11 / 1.4], got)


@claim("J8", PublishedSystem, gain)
def convs2s_ensemble() -> ClaimResult:
    """Compute the best earlier BLEU in German, the lead of the big model, and the cost."""
    less, lead = gain("ConvS2S", "ConvS2S ensemble"), gain("big", "ConvS2S ensemble")
    best = max(row.en_de or 0.0 for name, row in TABLE_2.items() if name not in TRAININGS)
    got = [best, lead.en_de, less.cheaper_en_de]
    figures = (26.36, 41.29, 7.7e19, 1.2e21)
    return _derived("ConvS2S ensemble", figures, [26.36, 2.04, 77 / 9.6], got)


@claim("J9", PublishedSystem, gain)
def base_model() -> ClaimResult:
    """Count the earlier rows with a lower BLEU, in German and in French."""
    leads = [gain("base", name) for name in TABLE_2 if name not in TRAININGS]
    german = [lead.en_de > 0 for lead in leads if lead.en_de is not None]
    french = [lead.en_fr > 0 for lead in leads if lead.en_fr is not None]
    got = f"German {sum(german)} of {len(german)}, French {sum(french)} of {len(french)}"
    printed = _derived("base", (27.3, 38.1, 3.3e18, 3.3e18), [], [])
    return same("German 6 of 6, French 0 of 7", got).if_also(printed)


@claim("J10", PublishedSystem, gain)
def big_model() -> ClaimResult:
    """Compute the best BLEU of both pairs, and the cost in base models."""
    _, en_de, en_fr, *_ = zip(*TABLE_2.values(), strict=True)
    best = [max(filter(None, column)) for column in (en_de, en_fr)]
    got = [*best, gain("base", "big").cheaper_en_de]
    return _derived("big", (28.4, 41.8, 2.3e19, 2.3e19), [28.4, 41.8, 23 / 3.3], got)


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
    row = table_2(PublishedSystem("ours", None, None, float(ours.training), None)).splitlines()[-1]
    shown = row.startswith("| ours |") and ours.training == 3 * ours.forward
    return same(expected=counted, got=ours.training).if_also(shown)


def _derived(
    name: str, printed: tuple[float | None, ...], expected: list[float], got: Sequence[float | None]
) -> ClaimResult:
    """Compare figures derived from a row of Table 2, and the row itself with the printed one."""
    if TABLE_2[name][1:] != printed:
        return ClaimResult(str(printed), str(TABLE_2[name][1:]), holds=False)
    derived = [0.0 if figure is None else figure for figure in got]
    bleu = ", ".join(f"{figure:g}" for figure in printed[:2] if figure is not None)
    texts = [", ".join(f"{figure:.4g}" for figure in side) for side in (expected, derived)]
    holds = close(expected=expected, got=derived, within=1e-9).holds
    return ClaimResult(f"BLEU {bleu}; {texts[0]}", f"BLEU {bleu}; {texts[1]}", holds)
