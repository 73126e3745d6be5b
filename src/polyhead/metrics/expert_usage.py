"""Usage of the experts of a mixture-of-experts model: shares, metrics, and sums of processes."""

from collections.abc import Sequence

from polyhead.layers.mixture_of_experts import ExpertUsage

Amounts = dict[str, dict[str, list[float]]]  # by gate: importance and load of every expert


def usage_amounts(usages: dict[str, ExpertUsage]) -> Amounts:
    """Return the recorded sums as numbers, which can be sent to another process."""
    return {
        name: {"importance": usage.importance.tolist(), "load": usage.load.tolist()}
        for name, usage in usages.items()
    }


def add_amounts(parts: Sequence[Amounts]) -> Amounts:
    """Add up what several processes recorded; some may have recorded nothing."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {
        name: {
            kind: [sum(column) for column in zip(*columns, strict=True)]
            for kind in ("importance", "load")
            if (columns := [part[name][kind] for part in parts if name in part])
        }
        for name in names
    }


def usage_shares(amounts: Amounts) -> Amounts:
    """Return each layer's shares of importance and load by expert; 1 / n each is perfect balance.

    In metrics.jsonl: {"encoder_experts": {"importance": [0.12, …], "load": [0.13, …]}, …}
    """
    return {
        name.removesuffix(".gate"): {
            kind: [round(share, 4) for share in _shares(values)] for kind, values in kinds.items()
        }
        for name, kinds in amounts.items()
    }


def usage_metrics(amounts: Amounts) -> dict[str, float]:
    """Return the share of experts that were used at all, and the largest load of one expert."""
    used, n_experts, largest = _count_used(amounts)
    return {"experts_used": used / n_experts, "experts_most": largest}


def describe_usage(amounts: Amounts) -> str:
    """Return the metrics as text: `experts used 16/16, most 14 %`."""
    used, n_experts, largest = _count_used(amounts)
    return f"experts used {used}/{n_experts}, most {largest:.0%}".replace("%", " %")


def _count_used(amounts: Amounts) -> tuple[int, int, float]:
    """Return the numbers of used and of all experts, and the largest share of a layer's load."""
    shares = [share for kinds in amounts.values() for share in _shares(kinds["load"])]
    return sum(share > 0 for share in shares), len(shares), max(shares)


def _shares(amounts: Sequence[float]) -> list[float]:
    """Return amounts divided by their sum."""
    total = sum(amounts) or 1.0
    return [amount / total for amount in amounts]
