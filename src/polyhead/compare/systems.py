"""Systems that can be compared: a row each, with the recipe of its sizes.

Sizes, optimizer and learning rate of a system are those of its recipe, multi30k-de-en-NAME; data
and tokenizer are those of the comparison. Batches are as large as in the recipe on the recipe's own
data, else as in the recipe of the data.

A system may be trained in several stages that share the budget: GNMT is trained by likelihood, then
by reward (Wu et al. 2016, section 5).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polyhead.config import read, set_by_path, suggest
from polyhead.errors import ConfigError
from polyhead.models.registry import FAMILIES
from polyhead.training.config import DEFAULT_FAMILY, find_recipe

HOME = "multi30k-de-en"
CARRIED = ("optimizer", "schedule", "clip_norm", "smoothing", "accumulate")  # to other data


@dataclass(frozen=True)
class Stage:
    """A share of the budget, and the overrides of this stage."""

    share: float = 1.0
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class System:
    """One row of the table.

    published: its row of the paper's Table 2.
    bar: BLEU reported by bentrevett/pytorch-seq2seq on Multi30k, German to English (greedy,
        lower-cased, tokenised by spaCy).
    """

    name: str
    title: str
    paper: str
    recipe: str
    changes: tuple[str, ...] = ()
    stages: tuple[Stage, ...] = (Stage(),)
    published: str | None = None
    bar: float | None = None


REWARD = (
    Stage(0.75),
    Stage(0.25, (
        "train.reward.samples=4", "train.schedule.rate=1e-4", "train.judge_by=bleu",
        "train.bleu_sentences=500",
    )),
)  # fmt: skip
BIG = (
    "model.stack.d_model=512", "model.stack.n_heads=8", "model.stack.d_ff=1024",
    "model.stack.dropout=0.3", "train.schedule.rate=7e-4",
)  # fmt: skip
TABLE = (
    System("lstm", "LSTM, no attention", "Sutskever et al. 2014", "lstm", bar=13.8),
    System("gru", "GRU, context everywhere", "Cho et al. 2014", "gru", bar=20.6),
    System("gru-attention", "GRU with attention", "Bahdanau et al. 2015", "gru-attention",
           bar=28.3),
    System("luong", "LSTM with attention", "Luong et al. 2015", "lstm", ("model.family=luong",)),
    System("deep-att", "Deep-Att", "Zhou et al. 2016", "deep-att", published="Deep-Att"),
    System("gnmt", "GNMT", "Wu et al. 2016", "gnmt"),
    System("gnmt-rl", "GNMT + RL", "Wu et al. 2016", "gnmt", stages=REWARD, published="GNMT"),
    System("bytenet", "ByteNet", "Kalchbrenner et al. 2016", "bytenet", published="ByteNet"),
    System("convs2s", "ConvS2S", "Gehring et al. 2017", "convs2s", published="ConvS2S",
           bar=34.1),
    System("moe", "MoE", "Shazeer et al. 2017", "moe", published="MoE"),
    System("transformer", "Transformer (base)", "Vaswani et al. 2017", "", published="base",
           bar=36.5),
    System("transformer-big", "Transformer (big)", "Vaswani et al. 2017", "", BIG,
           published="big"),
)  # fmt: skip
LADDER = (
    System("none", "last state", "Sutskever et al. 2014", "ladder", ("model.context=none",)),
    System("mean", "mean of all states", "", "ladder", ("model.context=mean",)),
    System("positional", "a weight for each position", "", "ladder", ("model.context=positional",)),
    System("content", "a function of h", "", "ladder", ("model.context=content",)),
    System("dot", "dot, sᵀh", "Luong et al. 2015", "ladder", ("model.score=dot",)),
    System("scaled-dot", "scaled dot, sᵀh / √d", "Vaswani et al. 2017", "ladder",
           ("model.score=scaled_dot",)),
    System("general", "general, sᵀWh", "Luong et al. 2015", "ladder", ("model.score=general",)),
    System("additive", "additive, vᵀ tanh(W s + U h)", "Bahdanau et al. 2015", "ladder",
           ("model.score=additive",)),
    System("transformer", "Transformer, qᵀk / √d", "Vaswani et al. 2017", ""),
    System("transformer-dot", "Transformer, qᵀk", "", "", ("model.stack.score=dot",)),
    System("transformer-general", "Transformer, qᵀWk", "", "", ("model.stack.score=general",)),
    System("transformer-additive", "Transformer, vᵀ tanh(W q + U k)", "", "",
           ("model.stack.score=additive",)),
)  # fmt: skip


@dataclass(frozen=True)
class Contest:
    """A set of systems, those compared by default, and the baseline of the significance tests."""

    name: str
    systems: tuple[System, ...]
    usual: tuple[str, ...]
    baseline: str


CONTESTS = {
    "compare": Contest(
        "compare",
        TABLE,
        tuple(system.name for system in TABLE if system.name != "luong"),
        "transformer",
    ),
    "ladder": Contest(
        "ladder",
        LADDER,
        tuple(s.name for s in LADDER if not s.name.startswith("transformer-")),
        "none",
    ),
}


def select_systems(contest: Contest, names: Sequence[str]) -> tuple[System, ...]:
    """Return the named systems, or the usual ones, in the order of the table."""
    known = {system.name: system for system in contest.systems}
    for name in names:
        if name not in known:
            raise ConfigError(
                f"--systems {name}: no such system{suggest(name, known)}", "unknown_system"
            )
    wanted = names or contest.usual
    return tuple(system for system in contest.systems if system.name in wanted)


def system_values(
    system: System, base: Mapping[str, Any], *, home: bool, changes: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the values of a run: the system's model and training, the base's data and tokenizer.

    home: the base has the data that the system's recipe was made for.
    """
    own = read(find_recipe(f"{HOME}-{system.recipe}" if system.recipe else HOME))
    train = own["train"] if home else _carried(own["train"], base.get("train", {}))
    values = {
        "description": f"{system.title} ({system.paper})" if system.paper else system.title,
        "data": dict(base.get("data", {})),
        "text": dict(base.get("text", {})),
        "model": own["model"],
        "train": {name: value for name, value in train.items() if name != "epochs"},
        "decode": dict(base.get("decode", {})),
    }
    for change in (*system.changes, *changes):
        set_by_path(values, change)
    _untie_vocabularies(values)
    return values


def _carried(own: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """Return training values on other data: those of the system, and those of the data."""
    kept = {name: value for name, value in own.items() if name in CARRIED}
    size = base.get("max_tokens", own.get("max_tokens"))
    given = {n: base[n] for n in ("bleu_sentences", "device", "bf16", "workers") if n in base}
    return {**kept, **given, **({} if size is None else {"max_tokens": size})}


def _untie_vocabularies(values: dict[str, Any]) -> None:
    """Share no table between two vocabularies where the model's default would."""
    if values["text"].get("joint", True) or "tie" in values["model"]:
        return
    family = values["model"].get("family", DEFAULT_FAMILY)
    if getattr(FAMILIES[family].config(), "tie", None) == "all":
        values["model"]["tie"] = "target"
