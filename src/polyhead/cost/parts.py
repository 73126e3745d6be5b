"""The cost of one part: parameters, arithmetic, and what autograd keeps of it.

    linear layer     n · d_in · d_out multiplications, as many additions   → 2 n d_in d_out FLOPs
    its gradients    the same again for the input and for the weight       → 4 n d_in d_out FLOPs
    equation (1)     Q Kᵀ and A V, each n_queries · n_keys · d_model       → 4 n_q n_k d_model FLOPs

FLOPs are those of matrix products, as in `torch.utils.flop_counter` and in the literature: softmax,
norms and activations are left out (about one in a hundred). A causal mask changes nothing: products
are counted whole. Nor does a fused kernel, although it computes Q Kᵀ a second time on the way back.

`kept` is what lies in memory between the way forward and the way back, and therefore what limits
the size of a batch: every input that a gradient will need. A tensor that two parts need is counted
once, by the part that needs it first; the rules stand beside each part. Short-lived tensors are not
counted. Everything is in float32.
"""

from dataclasses import dataclass

FLOAT, INTEGER, BOOLEAN = 4, 8, 1  # bytes


@dataclass(frozen=True)
class Cost:
    """Costs add up; a sum of parts is the cost of the whole."""

    parameters: int = 0
    forward: int = 0  # FLOPs
    backward: int = 0  # FLOPs
    kept: int = 0  # bytes

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.parameters + other.parameters,
            self.forward + other.forward,
            self.backward + other.backward,
            self.kept + other.kept,
        )

    def __mul__(self, times: int) -> "Cost":
        return Cost(
            self.parameters * times, self.forward * times, self.backward * times, self.kept * times
        )

    @property
    def training(self) -> int:
        """FLOPs of the way forward and the way back."""
        return self.forward + self.backward


NOTHING = Cost()


def product(n: int, d_in: int, d_out: int) -> int:
    """FLOPs of an n x d_in matrix times a d_in x d_out one: multiplications and additions."""
    return 2 * n * d_in * d_out


def linear(n: int, d_in: int, d_out: int, *, bias: bool = True, keeps: bool = True) -> Cost:
    """A linear layer at n positions. It keeps its input, unless somebody else has kept it."""
    work = product(n, d_in, d_out)
    weights = d_in * d_out + (d_out if bias else 0)
    return Cost(weights, work, 2 * work, FLOAT * n * d_in if keeps else 0)


def layer_norm(n: int, d_model: int) -> Cost:
    """Gain and bias; it keeps its input, and the mean and deviation of every position."""
    return Cost(parameters=2 * d_model, kept=FLOAT * n * (d_model + 2))


def dropout(numbers: int, p: float) -> Cost:
    """Which of so many numbers were silenced, one byte each; nothing if it is off."""
    return Cost(kept=BOOLEAN * numbers if p > 0 else 0)


def attention_kernel(
    batch: int, n_heads: int, n_queries: int, n_keys: int, d_head: int, dropout: float = 0.0
) -> Cost:
    """Equation (1) in every head.

    The fused kernel keeps Q, K, V, its output, and one number for each query and head. With
    dropout on the weights there is none on a CPU: then the weights are kept thrice, as they were,
    what multiplied them, and as they became.
    """
    heads = batch * n_heads
    work = heads * (product(n_queries, d_head, n_keys) + product(n_queries, n_keys, d_head))
    in_and_out = heads * d_head * (2 * n_queries + 2 * n_keys)
    others = 3 * heads * n_queries * n_keys if dropout > 0 else heads * n_queries
    return Cost(0, work, 2 * work, FLOAT * (in_and_out + others))


def embedding(batch: int, length: int, d_model: int, dropout_p: float) -> Cost:
    """Looking tokens up: no arithmetic. It keeps the ids and the dropout's mask.

    Its tables are counted by `table`, because several embeddings may share one.
    """
    positions = batch * length
    return Cost(kept=INTEGER * positions) + dropout(positions * d_model, dropout_p)


def table(rows: int, d_model: int) -> Cost:
    """The vectors of a vocabulary, of learned positions, of segments."""
    return Cost(parameters=rows * d_model)


def output_layer(n: int, d_model: int, vocab: int, *, tied: bool, bias: bool = False) -> Cost:
    """The logits of n positions and their loss, as `layers.cross_entropy` computes them.

    Its gradients are ready when the loss is: it keeps those of its input and of its weight, and no
    logits. A tied layer has no parameters of its own.
    """
    whole = linear(n, d_model, vocab, bias=bias)
    weights = (vocab if bias else 0) if tied else whole.parameters
    return Cost(weights, whole.forward, whole.backward, FLOAT * (n * d_model + vocab * d_model))
