"""The systems that can be compared: a row each, with the recipe that says how large it is.

A system's sizes, its optimiser and its learning rate are those of its recipe, multi30k-de-en-NAME;
data and tokens are those of whatever it is compared on. Trained on the recipe's own data, batches
are as large as the recipe has them; elsewhere as large as the data's recipe has them.

A system may be trained in several stages that share the budget: GNMT first learns by likelihood,
then by reward (Wu et al. 2016, section 5).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polyhead.config import read, set_by_path, suggest
from polyhead.errors import ConfigError
from polyhead.training.config import find_recipe

HOME = "multi30k-de-en"
CARRIED = ("optimizer", "schedule", "clip_norm", "smoothing", "accumulate")  # to other data


@dataclass(frozen=True)
class Stage:
    """A share of the budget, and what is different while it lasts."""

    share: float = 1.0
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class System:
    """One contestant. `published` is its row of the paper's Table 2.

    `bar` is the BLEU that a well-known series of tutorials reports on Multi30k, German to English
    (bentrevett/pytorch-seq2seq; greedy, lower-cased, tokenised by spaCy).
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
    System("positional", "a weight for each place", "", "ladder", ("model.context=positional",)),
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
    """Who may take part, who does unless told otherwise, and whom all are tested against."""

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


def choose(contest: Contest, names: Sequence[str]) -> tuple[System, ...]:
    """The systems of these names in the order of the table; the usual ones if none is named."""
    known = {system.name: system for system in contest.systems}
    for name in names:
        if name not in known:
            raise ConfigError(f"--systems {name}: no such system{suggest(name, known)}")
    wanted = names or contest.usual
    return tuple(system for system in contest.systems if system.name in wanted)


def configuration(
    system: System, base: Mapping[str, Any], *, home: bool, changes: Iterable[str] = ()
) -> dict[str, Any]:
    """The plain values of a run: the system's model and training on the base's data and tokens.

    `home` says that the base has the data which the system's recipe was made for.
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
    _part_vocabularies(values)
    return values


def _carried(own: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """What a system takes along to other data, and what it finds there."""
    taken = {name: value for name, value in own.items() if name in CARRIED}
    size = base.get("max_tokens", own.get("max_tokens"))
    found = {n: base[n] for n in ("bleu_sentences", "device", "bf16", "workers") if n in base}
    return {**taken, **found, **({} if size is None else {"max_tokens": size})}


def _part_vocabularies(values: dict[str, Any]) -> None:
    """Two vocabularies cannot share a table; a Transformer would, unless told otherwise."""
    joint = values["text"].get("joint", True)
    if not joint and values["model"].get("family", "transformer") == "transformer":
        values["model"].setdefault("tie", "target")
