"""The cost of experts in place of one feed-forward network: see `layers.experts`.

    gate       2 n d_model · experts products, for W_g and for W_noise       (n positions)
    experts    k networks for each position, out of many times their weights

What is kept: every position as the gate reads it, again for each expert it asks, what those answer,
and the gate's numbers, the rules for which stand below. All positions are counted as real.
"""

from polyhead.cost.parts import BOOLEAN, FLOAT, INTEGER, Cost, linear
from polyhead.layers.mixture_of_experts import ExpertsConfig


def gate_cost(config: ExpertsConfig, n: int, d_model: int) -> Cost:
    """The choice of n positions; the gate keeps their input."""
    total = linear(n, d_model, config.n, bias=False)
    more = min(config.k + 1, config.n)  # it looks at one more than it takes
    copied = config.k if 1 < config.k < config.n else 0  # for the importance
    places = INTEGER * n * (more + copied)  # where the largest were
    total += Cost(kept=places + FLOAT * n * config.k)  # and the softmax
    if not config.noise:
        return total
    total += linear(n, d_model, config.n, bias=False, keeps=False)
    numbers = 2 if config.k == config.n else 5  # what softplus got, ε; and three of equation 9
    total += Cost(kept=FLOAT * n * config.n * numbers)
    return total if config.k == config.n else total + Cost(kept=BOOLEAN * n * config.n)


def experts_cost(config: ExpertsConfig, n: int, d_model: int, networks: Cost) -> Cost:
    """The gate, and what `networks` cost: one network's weights at all n · k questions."""
    asked = n * config.k
    answers = Cost(kept=FLOAT * asked * d_model + 2 * INTEGER * asked)  # and the way to and fro
    work = Cost(networks.parameters * config.n, networks.forward, networks.backward, networks.kept)
    return gate_cost(config, n, d_model) + work + answers
