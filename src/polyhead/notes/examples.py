"""The worked examples of the notes, as one would type them: nine doctests by name.

    print(EXAMPLES["residual"])

Each of them can be pasted into Python line by line, and `python -m doctest` runs them all. They use
the library's parts and print the numbers that stand in the notes.
"""

RESIDUAL = """
'I' is [1, -4] and attention finds [2, 3]: the residual connection adds them.

>>> import torch
>>> from polyhead.layers.transformer_stack import Residual, StackConfig
>>> add = Residual(StackConfig(d_model=2, n_heads=1, dropout=0.0, norm="pre"))
>>> add(torch.tensor([1.0, -4.0]), lambda _: torch.tensor([2.0, 3.0]))
tensor([ 3., -1.])
"""

WEIGHTED_SUM = """
A context is 0.7 h1 + 0.2 h2 + 0.1 h3. Scores are the logarithms of the weights here, so that their
softmax is 0.7, 0.2 and 0.1.

>>> import torch
>>> from polyhead.layers.attention import attention, attention_weights
>>> query = torch.ones(1, 1, 1, 1)
>>> keys = torch.tensor([0.7, 0.2, 0.1]).log().view(1, 1, 3, 1)
>>> h = torch.tensor([[[[1.0, 0.0], [0.0, 1.0], [2.0, 5.0]]]])
>>> attention_weights(query, keys)
tensor([[[[0.7000, 0.2000, 0.1000]]]])
>>> attention(query, keys, h)  # 0.7 [1, 0] + 0.2 [0, 1] + 0.1 [2, 5]
tensor([[[[0.9000, 0.7000]]]])
"""

CAUSAL_SOFTMAX = """
Eight equal scores in every row, and the future hidden: row i is 1/i, i times.

>>> import torch
>>> from polyhead.layers.attention import attention_weights
>>> from polyhead.layers.masks import CAUSAL
>>> nothing = torch.zeros(1, 1, 8, 4)
>>> attention_weights(nothing, nothing, CAUSAL)[0, 0]
tensor([[1.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000],
        [0.5000, 0.5000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000],
        [0.3333, 0.3333, 0.3333, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000],
        [0.2500, 0.2500, 0.2500, 0.2500, 0.0000, 0.0000, 0.0000, 0.0000],
        [0.2000, 0.2000, 0.2000, 0.2000, 0.2000, 0.0000, 0.0000, 0.0000],
        [0.1667, 0.1667, 0.1667, 0.1667, 0.1667, 0.1667, 0.0000, 0.0000],
        [0.1429, 0.1429, 0.1429, 0.1429, 0.1429, 0.1429, 0.1429, 0.0000],
        [0.1250, 0.1250, 0.1250, 0.1250, 0.1250, 0.1250, 0.1250, 0.1250]])
"""

BINARY_POSITIONS = """
I 000, am 001, a 010, teacher 011: neighbours are not equally far apart, but 1, √2 and 1.

>>> from polyhead.layers.positions import BinaryPositions
>>> codes = BinaryPositions(3)(4)
>>> codes
tensor([[0., 0., 0.],
        [0., 0., 1.],
        [0., 1., 0.],
        [0., 1., 1.]])
>>> (codes[1:] - codes[:-1]).norm(dim=-1)
tensor([1.0000, 1.4142, 1.0000])
"""

ONE_HOT = """
A one-hot row times a matrix is a row of that matrix: this is what an embedding looks up.

>>> import torch
>>> from torch.nn.functional import one_hot
>>> from polyhead.layers.embeddings import TokenEmbedding
>>> from polyhead.layers.positions import SinusoidalPositions
>>> words = TokenEmbedding(9, 512, SinusoidalPositions(512), dropout=0.0)
>>> ids = torch.tensor([[3, 8, 3, 0]])
>>> row_by_row = one_hot(ids, 9).float() @ words.tokens.weight
>>> torch.equal(row_by_row, words.tokens(ids))
True
>>> torch.equal(row_by_row + words.positions(4), words(ids))
True
"""

EIGHT_HEADS = """
Eight layers of 512 to 64 are one of 512 to 512: the rows of the large one, eight times 64.

>>> import torch
>>> from torch.nn.functional import linear
>>> from polyhead.layers.attention import FullAttention, MultiHeadAttention
>>> _ = torch.manual_seed(0)
>>> layer, x = MultiHeadAttention(512, 8, FullAttention()), torch.randn(1, 5, 512)
>>> parts = list(zip(layer.w_k.weight.split(64), layer.w_k.bias.split(64), strict=True))
>>> len(parts), parts[0][0].shape
(8, torch.Size([64, 512]))
>>> eight = torch.stack([linear(x, weight, bias) for weight, bias in parts], dim=1)
>>> eight.shape, torch.allclose(eight, layer.project(x).keys, atol=1e-5)
(torch.Size([1, 8, 5, 64]), True)
"""

VARIANCE = """
The variance of q·k is d_k, and 1 after the scale. The logarithm of a ratio of two weights is a
difference of two scaled scores, whose variance is twice that of one.

>>> import torch
>>> from polyhead.layers.attention import attention_weights
>>> _ = torch.manual_seed(0)
>>> for d_k in (4, 64, 512):
...     q, k = torch.randn(10_000, 1, 1, d_k), torch.randn(10_000, 1, 2, d_k)
...     raw = (q @ k.mT)[..., 0].var() / d_k
...     first, second = attention_weights(q, k).log().unbind(-1)
...     print(f"{d_k}: {raw:.1f} d_k before the scale, {(first - second).var() / 2:.1f} after it")
4: 1.0 d_k before the scale, 1.0 after it
64: 1.0 d_k before the scale, 1.0 after it
512: 1.0 d_k before the scale, 1.0 after it
"""

WARM_UP = """
The learning rate of the base model (512, and 4,000 steps of warm-up) at its first step, at its peak
and at its last step.

>>> from polyhead.training.optim import noam
>>> for step in (1, 4_000, 100_000):
...     print(f"{step}: {noam(step, d_model=512, warmup=4_000):.5e}")
1: 1.74693e-07
4000: 6.98771e-04
100000: 1.39754e-04
"""

TEACHER_FORCING = """
Training reads the right words (1, the first of them, is the start). With a ratio of 0 it reads what
the model itself has said: another sentence to be written makes no difference then.

>>> import torch
>>> from polyhead.models.baselines.attention_ladder import Ladder, LadderConfig
>>> source = torch.tensor([[4, 5, 6]])
>>> right, poisoned = torch.tensor([[1, 7, 8]]), torch.tensor([[1, 9, 9]])
>>> for ratio in (1.0, 0.0):
...     _ = torch.manual_seed(0)
...     config = LadderConfig(12, 12, d_model=16, dropout=0.0, teacher_forcing=ratio)
...     model = Ladder(config).train()
...     print(ratio, torch.equal(model(source, right), model(source, poisoned)))
1.0 False
0.0 True
"""

EXAMPLES = {
    "residual": RESIDUAL,
    "weighted sum": WEIGHTED_SUM,
    "causal softmax": CAUSAL_SOFTMAX,
    "binary positions": BINARY_POSITIONS,
    "one-hot": ONE_HOT,
    "eight heads": EIGHT_HEADS,
    "variance of q·k": VARIANCE,
    "warm-up": WARM_UP,
    "teacher forcing": TEACHER_FORCING,
}

__test__ = EXAMPLES  # where Python's doctest looks for them
