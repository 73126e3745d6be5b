"""Table 2 (rows J1 to J12): quality and training cost, as published and as recomputed.

FLOPs = seconds · devices · FLOPs that a device sustains in a second
"""

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
    """How many BLEU points the base model is ahead."""
    lead = gain("base", "ByteNet")
    return _beside("ByteNet", (23.75, None, None, None), expected=[3.55], got=[lead.en_de])


@claim("J2", PublishedSystem, gain)
def deep_att() -> ClaimResult:
    """BLEU points that the big model is ahead, and how many times cheaper it is."""
    lead = gain("big", "Deep-Att")
    got = [lead.en_fr, lead.cheaper_en_fr]
    return _beside("Deep-Att", (None, 39.2, None, 1.0e20), expected=[2.6, 10 / 2.3], got=got)


@claim("J3", PublishedSystem, gain)
def gnmt() -> ClaimResult:
    """German: BLEU points that the big model is ahead, and how many times cheaper it is."""
    lead = gain("big", "GNMT")
    got = [lead.en_de, lead.cheaper_en_de]
    return _beside("GNMT", (24.6, 39.92, 2.3e19, 1.4e20), expected=[3.8, 1.0], got=got)


@claim("J4", PublishedSystem, gain)
def convs2s() -> ClaimResult:
    """German: BLEU points that the base model is ahead, and how many times cheaper it is."""
    lead = gain("base", "ConvS2S")
    got = [lead.en_de, lead.cheaper_en_de]
    return _beside("ConvS2S", (25.16, 40.46, 9.6e18, 1.5e20), expected=[2.14, 9.6 / 3.3], got=got)


@claim("J5", PublishedSystem, gain)
def mixture_of_experts() -> ClaimResult:
    """French: BLEU points that the big model is ahead, and how many times cheaper it is."""
    lead = gain("big", "MoE")
    got = [lead.en_fr, lead.cheaper_en_fr]
    return _beside("MoE", (26.03, 40.56, 2.0e19, 1.2e20), expected=[1.24, 12 / 2.3], got=got)


@claim("J6", PublishedSystem, gain)
def deep_att_ensemble() -> ClaimResult:
    """BLEU points above the single model, and how many of them it costs."""
    more = gain("Deep-Att ensemble", "Deep-Att")
    got = [more.en_fr, 1 / (more.cheaper_en_fr or 1.0)]
    return _beside("Deep-Att ensemble", (None, 40.4, None, 8.0e20), expected=[1.2, 8.0], got=got)


@claim("J7", PublishedSystem, gain)
def gnmt_ensemble() -> ClaimResult:
    """How many single models it costs, in German and in French."""
    more = gain("GNMT ensemble", "GNMT")
    got = [1 / (more.cheaper_en_de or 1.0), 1 / (more.cheaper_en_fr or 1.0)]
    figures = (26.30, 41.16, 1.8e20, 1.1e21)
    return _beside("GNMT ensemble", figures, expected=[18 / 2.3, 11 / 1.4], got=got)


@claim("J8", PublishedSystem, gain)
def convs2s_ensemble() -> ClaimResult:
    """German: the best earlier BLEU, the big model's lead, and how many single models it costs."""
    more, lead = gain("ConvS2S ensemble", "ConvS2S"), gain("big", "ConvS2S ensemble")
    best = max(row.en_de or 0.0 for name, row in TABLE_2.items() if name not in TRAININGS)
    got = [best, lead.en_de, 1 / (more.cheaper_en_de or 1.0)]
    figures = (26.36, 41.29, 7.7e19, 1.2e21)
    return _beside("ConvS2S ensemble", figures, expected=[26.36, 2.04, 77 / 9.6], got=got)


@claim("J9", PublishedSystem, gain)
def base_model() -> ClaimResult:
    """How many of the eight earlier rows have a lower BLEU, in German and in French."""
    leads = [gain("base", name) for name in TABLE_2 if name not in TRAININGS]
    german = [lead.en_de > 0 for lead in leads if lead.en_de is not None]
    french = [lead.en_fr > 0 for lead in leads if lead.en_fr is not None]
    got = f"German {sum(german)} of {len(german)}, French {sum(french)} of {len(french)}"
    printed = _beside("base", (27.3, 38.1, 3.3e18, 3.3e18), expected=[], got=[])
    return same("German 6 of 6, French 0 of 7", got) if printed.holds else printed


@claim("J10", PublishedSystem, gain)
def big_model() -> ClaimResult:
    """Best of the table in both pairs, and what it costs in base models."""
    best = [max(row.en_de or 0.0 for row in TABLE_2.values()),
            max(row.en_fr or 0.0 for row in TABLE_2.values())]  # fmt: skip
    got = [*best, gain("base", "big").cheaper_en_de]
    return _beside("big", (28.4, 41.8, 2.3e19, 2.3e19), expected=[28.4, 41.8, 23 / 3.3], got=got)


@claim("J11", estimated_flops, Training)
def estimated_cost() -> ClaimResult:
    """Both estimates, and what they round to in Table 2."""
    base, big = estimated_flops(12 * 3600, 8, 9.5e12), estimated_flops(3.5 * 86400, 8, 9.5e12)
    printed = [TABLE_2["base"].cost_en_de, TABLE_2["big"].cost_en_de]
    result = close(expected=[3.283e18, 2.298e19], got=[base, big], within=1e-3)
    known = [TRAININGS["base"].flops, TRAININGS["big"].flops] == [base, big]
    rounded = [float(f"{flops:.1e}") for flops in (base, big)]
    return ClaimResult("[3.283e+18, 2.298e+19]", f"[{base:.3e}, {big:.3e}]",
                   result.holds and known and rounded == printed)  # fmt: skip


@claim("J12", transformer_cost, table_2)
def our_own_row() -> ClaimResult:
    """FLOPs of one training step by torch's counter and by our formulas."""
    config = TransformerConfig(50, 50, stack=StackConfig(2, 16, 2, 32))
    model, source, target = Transformer(config), torch.ones(3, 7).long(), torch.ones(3, 5).long()

    def step() -> None:
        F.cross_entropy(model(source, target).flatten(0, 1), target.flatten()).backward()

    counted = count_flops(step)
    ours = transformer_cost(config, Shape(batch=3, length=5, source=7)).total
    row = table_2(PublishedSystem("ours", None, None, float(ours.training), None)).splitlines()[-1]
    shown = row.startswith("| ours |") and ours.training == 3 * ours.forward
    return same(expected=counted, got=ours.training if shown else row)


def _beside(
    name: str,
    printed: tuple[float | None, ...],
    *,
    expected: list[float],
    got: Sequence[float | None],
) -> ClaimResult:
    """Figures that follow from a row; if the row itself is not as printed, that is shown."""
    if TABLE_2[name][1:] != printed:
        return ClaimResult(str(printed), str(TABLE_2[name][1:]), holds=False)
    there = [0.0 if figure is None else figure for figure in got]
    bleu = ", ".join(f"{figure:g}" for figure in printed[:2] if figure is not None)
    want, have = (
        f"BLEU {bleu}; " + ", ".join(f"{figure:.4g}" for figure in side)
        for side in (expected, there)
    )
    return ClaimResult(want, have, close(expected=expected, got=there, within=1e-9).holds)
