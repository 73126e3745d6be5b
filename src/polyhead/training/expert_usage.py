"""How the experts of a model are used: in numbers for metrics.jsonl, in words for whoever watches.

{"kind": "experts", "step": 500, "encoder_experts": {"importance": [0.12, …], "load": [0.13, …]}}

Both are shares of one layer's whole and sum to 1: `importance` that of the gates' weights, `load`
that of the questions asked. With n experts 1 / n of each is perfect balance.
"""

from torch import Tensor

from polyhead.layers.mixture_of_experts import ExpertUsage


def table(uses: dict[str, ExpertUsage]) -> dict[str, dict[str, list[float]]]:
    """Every layer's shares, by the name of the layer."""
    return {
        name.removesuffix(".gate"): {
            "importance": [round(share, 4) for share in share_of(use.importance)],
            "load": [round(share, 4) for share in share_of(use.load)],
        }
        for name, use in uses.items()
    }


def shares(uses: dict[str, ExpertUsage]) -> dict[str, float]:
    """The share of all experts that were asked at all, and the largest load that one carries."""
    used, experts, most = counted(uses)
    return {"experts_used": used / experts, "experts_most": most}


def describe(uses: dict[str, ExpertUsage]) -> str:
    """The same in words: `experts used 16/16, most 14 %`."""
    used, experts, most = counted(uses)
    return f"experts used {used}/{experts}, most {most:.0%}".replace("%", " %")


def counted(uses: dict[str, ExpertUsage]) -> tuple[int, int, float]:
    """How many experts of all layers were asked, how many there are, the largest share."""
    loads = [share_of(use.load) for use in uses.values()]
    used = sum(share > 0 for load in loads for share in load)
    return used, sum(map(len, loads)), max(share for load in loads for share in load)


def share_of(amounts: Tensor) -> list[float]:
    """Amounts as parts of their sum."""
    whole = (amounts / amounts.sum()).tolist()
    return [float(share) for share in whole]
