"""Table 2 (rows J1 to J12): quality and training cost, as published and as recomputed.

FLOPs = seconds · devices · FLOPs that a device sustains in a second
"""

from collections.abc import Sequence

import torch
from torch.nn import functional as F

from polyhead.cost.families import transformer_bill
from polyhead.cost.measured import products
from polyhead.cost.published import (
    TABLE_2,
    TRAININGS,
    PublishedSystem,
    Training,
    estimated_flops,
    gain,
    table_2,
)
from polyhead.cost.stack import Shape
from polyhead.i18n import Words
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.notes.claims import Finding, check, close, same


@check(
    "J1",
    claim=Words("ByteNet: 23.75 BLEU, 3.55 less than the base model",
                "ByteNet: BLEU 23.75, base 모델보다 3.55 낮다"),
    formula="27.3 - 23.75 = 3.55",
    explain=Words(
        "ByteNet translates by dilated convolutions, so that paths grow with log n. The paper "
        "gives no training cost for it, and nothing for French.",
        "ByteNet은 팽창 합성곱으로 번역하므로 경로가 log n으로 늘어난다. 논문에는 학습 비용도 "
        "영어-프랑스어 점수도 없다.",
    ),
    code=(PublishedSystem, gain),
)  # fmt: skip
def bytenet() -> Finding:
    """How many BLEU points the base model is ahead."""
    lead = gain("base", "ByteNet")
    return _beside("ByteNet", (23.75, None, None, None), expected=[3.55], got=[lead.en_de])


@check(
    "J2",
    claim=Words("Deep-Att + PosUnk: 39.2 EN-FR; big is better, 4.3 times cheaper",
                "Deep-Att + PosUnk: EN-FR 39.2. big이 더 좋고 4.3배 싸다"),
    formula="1.0·10²⁰ / 2.3·10¹⁹ = 4.35",
    explain=Words(
        "A deep LSTM with attention, whose unknown words are copied from the source afterwards "
        "(PosUnk). It has no figures for German.",
        "어텐션을 쓰는 깊은 LSTM으로, 모르는 단어는 나중에 원문에서 복사한다(PosUnk). 독일어 "
        "점수는 없다.",
    ),
    code=(PublishedSystem, gain),
)  # fmt: skip
def deep_att() -> Finding:
    """BLEU points that the big model is ahead, and how many times cheaper it is."""
    lead = gain("big", "Deep-Att")
    got = [lead.en_fr, lead.cheaper_en_fr]
    return _beside("Deep-Att", (None, 39.2, None, 1.0e20), expected=[2.6, 10 / 2.3], got=got)


@check(
    "J3",
    claim=Words("GNMT + RL cost as much as big, and is 3.8 BLEU below it",
                "GNMT + RL은 big과 비용이 같고 BLEU는 3.8 낮다"),
    formula="EN-DE 24.6, 2.3·10¹⁹;  EN-FR 39.92, 1.4·10²⁰",
    explain=Words(
        "Google's LSTM translator of 2016, tuned for BLEU by reinforcement learning. For German "
        "the same training cost buys 28.4 instead of 24.6.",
        "2016년 구글의 LSTM 번역기를 강화학습으로 BLEU에 맞춰 조정한 것이다. 독일어에서는 같은 "
        "학습 비용으로 24.6이 아니라 28.4를 얻는다.",
    ),
    code=(PublishedSystem, gain),
)  # fmt: skip
def gnmt() -> Finding:
    """German: BLEU points that the big model is ahead, and how many times cheaper it is."""
    lead = gain("big", "GNMT")
    got = [lead.en_de, lead.cheaper_en_de]
    return _beside("GNMT", (24.6, 39.92, 2.3e19, 1.4e20), expected=[3.8, 1.0], got=got)


@check(
    "J4",
    claim=Words("ConvS2S cost 2.9 times the base model, and is 2.14 BLEU below",
                "ConvS2S는 base보다 비용이 2.9배이고 BLEU는 2.14 낮다"),
    formula="EN-DE 25.16, 9.6·10¹⁸;  EN-FR 40.46, 1.5·10²⁰",
    explain=Words(
        "A translator of contiguous convolutions: parallel like the Transformer, but a signal "
        "needs several layers to reach a distant word.",
        "붙어 있는 커널의 합성곱으로 된 번역기다. Transformer처럼 병렬로 계산되지만, 먼 단어까지 "
        "신호가 닿으려면 여러 층이 필요하다.",
    ),
    code=(PublishedSystem, gain),
)  # fmt: skip
def convs2s() -> Finding:
    """German: BLEU points that the base model is ahead, and how many times cheaper it is."""
    lead = gain("base", "ConvS2S")
    got = [lead.en_de, lead.cheaper_en_de]
    return _beside("ConvS2S", (25.16, 40.46, 9.6e18, 1.5e20), expected=[2.14, 9.6 / 3.3], got=got)


@check(
    "J5",
    claim=Words("MoE was the best single model; big beats it at 1/5 of the cost",
                "MoE는 단일 모델 중 최고였고, big은 1/5 비용으로 이긴다(EN-FR)"),
    formula="EN-FR: 41.8 - 40.56 = 1.24,  1.2·10²⁰ / 2.3·10¹⁹ = 5.2",
    explain=Words(
        "Layers of LSTM with a mixture of experts between them. The paper's claim of less than a "
        "quarter of the previous best model's cost is about this row, for French.",
        "LSTM 층 사이에 전문가 혼합(MoE)을 넣은 모델이다. 이전 최고 모델 비용의 1/4도 안 든다는 "
        "논문의 말은 프랑스어에서 이 줄을 두고 한 것이다.",
    ),
    code=(PublishedSystem, gain),
)  # fmt: skip
def mixture_of_experts() -> Finding:
    """French: BLEU points that the big model is ahead, and how many times cheaper it is."""
    lead = gain("big", "MoE")
    got = [lead.en_fr, lead.cheaper_en_fr]
    return _beside("MoE", (26.03, 40.56, 2.0e19, 1.2e20), expected=[1.24, 12 / 2.3], got=got)


@check(
    "J6",
    claim=Words("The Deep-Att ensemble: 40.4 EN-FR for 8 times the cost of one",
                "Deep-Att 앙상블: 단일 모델의 8배 비용으로 EN-FR 40.4"),
    formula="8.0·10²⁰ / 1.0·10²⁰ = 8",
    explain=Words(
        "An ensemble averages the predictions of several models, each of which must be trained. "
        "The printed costs tell how many: eight, for 1.2 BLEU.",
        "앙상블은 여러 모델의 예측을 평균하므로 모델마다 학습해야 한다. 표의 비용을 나누면 모델 "
        "수가 나온다. 여덟 개로 BLEU 1.2를 얻었다.",
    ),
    code=(PublishedSystem, gain),
)  # fmt: skip
def deep_att_ensemble() -> Finding:
    """BLEU points above the single model, and how many of them it costs."""
    more = gain("Deep-Att ensemble", "Deep-Att")
    got = [more.en_fr, 1 / (more.cheaper_en_fr or 1.0)]
    return _beside("Deep-Att ensemble", (None, 40.4, None, 8.0e20), expected=[1.2, 8.0], got=got)


@check(
    "J7",
    claim=Words("The GNMT ensemble costs about 8 single models in both pairs",
                "GNMT 앙상블의 비용은 두 언어쌍 모두 단일 모델 약 8개분이다"),
    formula="1.8·10²⁰ / 2.3·10¹⁹ = 7.8,  1.1·10²¹ / 1.4·10²⁰ = 7.9",
    explain=Words(
        "26.30 and 41.16 BLEU. With two digits printed, 7.8 and 7.9 are what eight looks like.",
        "BLEU는 26.30과 41.16이다. 유효숫자가 두 자리뿐이므로 7.8과 7.9는 8을 뜻한다.",
    ),
    code=(PublishedSystem, gain),
)  # fmt: skip
def gnmt_ensemble() -> Finding:
    """How many single models it costs, in German and in French."""
    more = gain("GNMT ensemble", "GNMT")
    got = [1 / (more.cheaper_en_de or 1.0), 1 / (more.cheaper_en_fr or 1.0)]
    figures = (26.30, 41.16, 1.8e20, 1.1e21)
    return _beside("GNMT ensemble", figures, expected=[18 / 2.3, 11 / 1.4], got=got)


@check(
    "J8",
    claim=Words("The ConvS2S ensemble was the best before; big is 2.04 BLEU above",
                "ConvS2S 앙상블이 종전 최고였고, big은 그보다 2.04 높다"),
    formula="EN-DE: 28.4 - 26.36 = 2.04;  cost 7.7·10¹⁹ / 9.6·10¹⁸ = 8.0 models",
    explain=Words(
        "The abstract's more than 2 BLEU above all earlier results, ensembles included, is "
        "measured against this row.",
        "초록에서 앙상블까지 포함한 종전 최고보다 2 BLEU 넘게 높다고 한 것은 이 줄과 비교한 "
        "것이다.",
    ),
    code=(PublishedSystem, gain),
)  # fmt: skip
def convs2s_ensemble() -> Finding:
    """German: the best earlier BLEU, the big model's lead, and how many single models it costs."""
    more, lead = gain("ConvS2S ensemble", "ConvS2S"), gain("big", "ConvS2S ensemble")
    best = max(row.en_de or 0.0 for name, row in TABLE_2.items() if name not in TRAININGS)
    got = [best, lead.en_de, 1 / (more.cheaper_en_de or 1.0)]
    figures = (26.36, 41.29, 7.7e19, 1.2e21)
    return _beside("ConvS2S ensemble", figures, expected=[26.36, 2.04, 77 / 9.6], got=got)


@check(
    "J9",
    claim=Words("The base model is above all earlier ones in German, not in French",
                "base 모델은 독일어에서는 종전 모두를 앞서지만 프랑스어는 아니다"),
    formula="27.3 > 26.36,  38.1 < 39.2;  3.3·10¹⁸ FLOPs for both",
    explain=Words(
        "27.3 BLEU for a third of the cheapest competitor's cost. In French, with 36 million "
        "sentence pairs, it is too small: 38.1 is below every other row. The note's copy has the "
        "cost torn apart (3.3 · | 1018): it is one figure for both pairs.",
        "가장 싼 경쟁 모델의 1/3 비용으로 27.3을 얻는다. 문장 쌍이 3,600만 개인 프랑스어에는 너무 "
        "작아서 38.1은 다른 모든 줄보다 낮다. 노트에는 비용이 둘로 찢겨 있는데(3.3 · | 1018), 두 "
        "언어쌍에 공통인 값 하나다.",
    ),
    code=(PublishedSystem, gain),
)  # fmt: skip
def base_model() -> Finding:
    """How many of the eight earlier rows have a lower BLEU, in German and in French."""
    leads = [gain("base", name) for name in TABLE_2 if name not in TRAININGS]
    german = [lead.en_de > 0 for lead in leads if lead.en_de is not None]
    french = [lead.en_fr > 0 for lead in leads if lead.en_fr is not None]
    got = f"German {sum(german)} of {len(german)}, French {sum(french)} of {len(french)}"
    printed = _beside("base", (27.3, 38.1, 3.3e18, 3.3e18), expected=[], got=[])
    return same("German 6 of 6, French 0 of 7", got) if printed.holds else printed


@check(
    "J10",
    claim=Words("The big model is above all others in both pairs: 28.4 and 41.8",
                "big 모델은 두 언어쌍 모두에서 가장 높다: 28.4와 41.8"),
    formula="2.3·10¹⁹ FLOPs for both, 7 times the base model's",
    explain=Words(
        "41.8 is what the last version of the paper prints; earlier versions had 41.0, and the "
        "text of section 6.1 still has it. Whoever quotes 41.0 is not wrong, only older.",
        "41.8은 논문 마지막 판의 값이다. 이전 판은 41.0이었고 6.1절 본문에는 아직 41.0이 남아 "
        "있다. 41.0을 인용한 글은 틀린 것이 아니라 오래된 것이다.",
    ),
    code=(PublishedSystem, gain),
)  # fmt: skip
def big_model() -> Finding:
    """Best of the table in both pairs, and what it costs in base models."""
    best = [max(row.en_de or 0.0 for row in TABLE_2.values()),
            max(row.en_fr or 0.0 for row in TABLE_2.values())]  # fmt: skip
    got = [*best, gain("base", "big").cheaper_en_de]
    return _beside("big", (28.4, 41.8, 2.3e19, 2.3e19), expected=[28.4, 41.8, 23 / 3.3], got=got)


@check(
    "J11",
    claim=Words("Time x GPUs x sustained speed gives the paper's 3.3e18 and 2.3e19",
                "시간 x GPU 수 x 지속 속도로 논문의 3.3e18과 2.3e19가 나온다"),
    formula="12 h · 8 · 9.5·10¹² = 3.28·10¹⁸,   3.5 d · 8 · 9.5·10¹² = 2.30·10¹⁹",
    explain=Words(
        "The paper does not count operations: it multiplies how long eight P100 were busy by what "
        "each of them sustains, 9.5 TFLOPS. `polyhead cost base` counts the products themselves "
        "and finds less than a third of that; the rest is everything a GPU does besides.",
        "논문은 연산을 세지 않았다. P100 여덟 대를 쓴 시간에 한 대의 지속 속도 9.5 TFLOPS를 "
        "곱했다. `polyhead cost base`로 행렬 곱만 세면 그 3분의 1이 안 된다. 나머지는 GPU가 그 "
        "밖에 하는 모든 일이다.",
    ),
    code=(estimated_flops, Training),
)  # fmt: skip
def estimated_cost() -> Finding:
    """Both estimates, and what they round to in Table 2."""
    base, big = estimated_flops(12 * 3600, 8, 9.5e12), estimated_flops(3.5 * 86400, 8, 9.5e12)
    printed = [TABLE_2["base"].cost_en_de, TABLE_2["big"].cost_en_de]
    found = close(expected=[3.283e18, 2.298e19], got=[base, big], within=1e-3)
    known = [TRAININGS["base"].flops, TRAININGS["big"].flops] == [base, big]
    rounded = [float(f"{flops:.1e}") for flops in (base, big)]
    return Finding("[3.283e+18, 2.298e+19]", f"[{base:.3e}, {big:.3e}]",
                   found.holds and known and rounded == printed)  # fmt: skip


@check(
    "J12",
    claim=Words("Our own FLOPs: what torch counts, as a row below the table",
                "우리 모델의 FLOPs: torch가 센 값과 같고, 표의 마지막 줄이 된다"),
    formula="forward 1, backward 2:  training = 3 · forward",
    explain=Words(
        "The cost of a training is computed from the configuration alone: every matrix product, "
        "once forward and twice backward. Torch's own counter, run over a real step, finds the "
        "same number. It stands in the same table as those of the paper.",
        "학습 비용은 설정만으로 계산한다. 모든 행렬 곱을 순전파에서 한 번, 역전파에서 두 번 센다. "
        "실제 한 스텝을 torch의 카운터로 세어도 같은 수가 나온다. 이 값은 논문의 값들과 같은 표에 "
        "들어간다.",
    ),
    code=(transformer_bill, table_2),
)  # fmt: skip
def our_own_row() -> Finding:
    """FLOPs of one training step by torch's counter and by our formulas."""
    config = TransformerConfig(50, 50, stack=StackConfig(2, 16, 2, 32))
    model, source, target = Transformer(config), torch.ones(3, 7).long(), torch.ones(3, 5).long()

    def step() -> None:
        F.cross_entropy(model(source, target).flatten(0, 1), target.flatten()).backward()

    counted = products(step)
    ours = transformer_bill(config, Shape(batch=3, length=5, source=7)).total
    row = table_2(PublishedSystem("ours", None, None, float(ours.training), None)).splitlines()[-1]
    shown = row.startswith("| ours |") and ours.training == 3 * ours.forward
    return same(expected=counted, got=ours.training if shown else row)


def _beside(
    name: str,
    printed: tuple[float | None, ...],
    *,
    expected: list[float],
    got: Sequence[float | None],
) -> Finding:
    """Figures that follow from a row; if the row itself is not as printed, that is shown."""
    if TABLE_2[name][1:] != printed:
        return Finding(str(printed), str(TABLE_2[name][1:]), holds=False)
    there = [0.0 if figure is None else figure for figure in got]
    bleu = ", ".join(f"{figure:g}" for figure in printed[:2] if figure is not None)
    want, have = (
        f"BLEU {bleu}; " + ", ".join(f"{figure:.4g}" for figure in side)
        for side in (expected, there)
    )
    return Finding(want, have, close(expected=expected, got=there, within=1e-9).holds)
