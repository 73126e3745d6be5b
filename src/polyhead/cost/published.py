"""Published figures of the systems in Table 2.

Vaswani et al. 2017, "Attention Is All You Need": Table 2 (quality on newstest2014 and training
cost) and the parameters of its Table 3. Training cost is estimated there from the outside:

    FLOPs = time · number of devices · what one device sustains in a second

so it counts a device's idle moments as work. What the products of the model themselves come to is
counted by `polyhead.cost.breakdown`; for the base model it is about a third of that.
"""

from typing import NamedTuple

from polyhead.errors import ConfigError

SUSTAINED = {"K80": 2.8e12, "K40": 3.7e12, "M40": 6.0e12, "P100": 9.5e12}  # footnote 5, FLOPs/s
HOUR, DAY = 3600.0, 86400.0


class PublishedSystem(NamedTuple):
    """One row of Table 2; None where the paper has no figure."""

    name: str
    en_de: float | None
    en_fr: float | None
    cost_en_de: float | None
    cost_en_fr: float | None


TABLE_2 = {
    "ByteNet": PublishedSystem("ByteNet", 23.75, None, None, None),
    "Deep-Att": PublishedSystem("Deep-Att + PosUnk", None, 39.2, None, 1.0e20),
    "GNMT": PublishedSystem("GNMT + RL", 24.6, 39.92, 2.3e19, 1.4e20),
    "ConvS2S": PublishedSystem("ConvS2S", 25.16, 40.46, 9.6e18, 1.5e20),
    "MoE": PublishedSystem("MoE", 26.03, 40.56, 2.0e19, 1.2e20),
    "Deep-Att ensemble": PublishedSystem("Deep-Att + PosUnk Ensemble", None, 40.4, None, 8.0e20),
    "GNMT ensemble": PublishedSystem("GNMT + RL Ensemble", 26.30, 41.16, 1.8e20, 1.1e21),
    "ConvS2S ensemble": PublishedSystem("ConvS2S Ensemble", 26.36, 41.29, 7.7e19, 1.2e21),
    "base": PublishedSystem("Transformer (base model)", 27.3, 38.1, 3.3e18, 3.3e18),
    "big": PublishedSystem("Transformer (big)", 28.4, 41.8, 2.3e19, 2.3e19),
}


class Training(NamedTuple):
    """Training of a model in the paper (sections 5.1, 5.2 and Table 3)."""

    parameters: float
    seconds: float
    steps: int
    devices: int = 8
    device: str = "P100"
    tokens: int = 50_000  # of a batch: about 25,000 source and 25,000 target tokens

    @property
    def flops(self) -> int | float:
        """The paper's estimate of the training cost."""
        return estimated_flops(self.seconds, self.devices, SUSTAINED[self.device])


TRAININGS = {
    "base": Training(parameters=65e6, seconds=12 * HOUR, steps=100_000),
    "big": Training(parameters=213e6, seconds=3.5 * DAY, steps=300_000),
}


def estimated_flops(seconds: int | float, devices: int, sustained: int | float) -> int | float:
    """Return the paper's estimate of training FLOPs: time x devices x sustained throughput."""
    if seconds < 0 or devices < 1 or sustained <= 0:
        given = f"{seconds:g} seconds, {devices} devices, {sustained:g} FLOPs a second"
        raise ConfigError(
            f"{given}: expected a time, at least one device and a positive speed", "out_of_range"
        )
    return seconds * devices * sustained


class Gain(NamedTuple):
    """One row of Table 2 beside another: BLEU more, and how many times cheaper."""

    en_de: float | None
    en_fr: float | None
    cheaper_en_de: float | None
    cheaper_en_fr: float | None


def gain(ours: str, theirs: str) -> Gain:
    """Return how much better and cheaper `ours` is than `theirs`, where both have a figure."""
    both = list(zip(TABLE_2[ours][1:], TABLE_2[theirs][1:], strict=True))
    more = [None if a is None or b is None else round(a - b, 2) for a, b in both[:2]]
    cheaper = [None if a is None or b is None else b / a for a, b in both[2:]]
    return Gain(*more, *cheaper)


def table_2(own: PublishedSystem | None = None) -> str:
    """Return Table 2 in Markdown, with a row of one's own below it."""

    def cell(figure: float | None) -> str:
        if figure is None:
            return ""
        return f"{figure:g}" if figure < 1000 else f"{figure:.1e}".replace("+", "")

    rows = [*TABLE_2.values(), *([own] if own else [])]
    head = "| model | BLEU EN-DE | BLEU EN-FR | FLOPs EN-DE | FLOPs EN-FR |"
    lines = [f"| {' | '.join([name, *map(cell, figures)])} |" for name, *figures in rows]
    return "\n".join([head, "|---|---|---|---|---|", *lines])
