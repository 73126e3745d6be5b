"""Recurrent translators in NumPy, written from the equations of their papers.

Each function computes the logits of one sentence pair, word by word, from the weights of a trained
or random model. No batch, no padding, no torch: what the library computes in one call is a loop
here. `numpy_reference.py` compares both.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Weights = Mapping[str, Array]  # by the name of the model's parameter
Ids = Sequence[int]
Twin = Callable[[Weights, Ids, Ids], Array]  # weights, source, target → logits (target, vocab)


# Parts


def sigmoid(x: Array) -> Array:
    """Return σ(x)."""
    return 1.0 / (1.0 + np.exp(-x))


def softmax(x: Array) -> Array:
    """Return the softmax over the last axis."""
    e: Array = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def affine(w: Weights, name: str, x: Array) -> Array:
    """Return W x + b for every row of x; some layers have no b."""
    y: Array = x @ w[f"{name}.weight"].T
    return y + w[f"{name}.bias"] if f"{name}.bias" in w else y


def joined(*parts: Array) -> Array:
    """Concatenate features: [a; b; …]."""
    return np.concatenate(parts, -1)


def depth(w: Weights, stack: str) -> int:
    """Return the number of layers of a stack, whose names begin with `stack` and a number."""
    numbers = (name.removeprefix(stack).split(".")[0] for name in w if name.startswith(stack))
    return 1 + max(map(int, numbers))


def lstm_cell(gates: Array, c: Array) -> tuple[Array, Array]:
    """Return σ(o) tanh(c) and c = σ(f) c + σ(i) tanh(g) of the gates i, f, g, o."""
    i, f, g, o = np.split(gates, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


class LSTM:
    """One layer (Hochreiter & Schmidhuber 1997, with a forget gate); a call reads one word.

    gates = W x + b + U h + b', and h is projected by P (Sak et al. 2014) if the layer has one.
    """

    gates = 4

    def __init__(self, w: Weights, name: str, suffix: str = "l0") -> None:
        self.w, self.u = (w[f"{name}.cells.weight_{kind}_{suffix}"] for kind in ("ih", "hh"))
        self.b_x, self.b_h = (w[f"{name}.cells.bias_{kind}_{suffix}"] for kind in ("ih", "hh"))
        self.p = w.get(f"{name}.cells.weight_hr_{suffix}")
        self.h: Array = np.zeros(self.u.shape[1])
        self.c: Array = np.zeros(len(self.b_x) // self.gates)

    def __call__(self, x: Array) -> Array:
        h, self.c = lstm_cell(self.w @ x + self.b_x + self.u @ self.h + self.b_h, self.c)
        self.h = h if self.p is None else self.p @ h
        return self.h


class GRU(LSTM):
    """One layer (Cho et al. 2014), with r applied to U h as in PyTorch.

    r, z = σ(W x + U h)      n = tanh(W x + r ∘ U h)      h ← (1 - z) n + z h
    """

    gates = 3

    def __call__(self, x: Array) -> Array:
        a_r, a_z, a_n = np.split(self.w @ x + self.b_x, 3)
        u_r, u_z, u_n = np.split(self.u @ self.h + self.b_h, 3)
        r, z = sigmoid(a_r + u_r), sigmoid(a_z + u_z)
        self.h = (1.0 - z) * np.tanh(a_n + r * u_n) + z * self.h
        return self.h


def run(cell: Callable[[Array], Array], xs: Array) -> Array:
    """Read all words with one layer."""
    return np.stack([cell(x) for x in xs])


def both_ways(cell: type[LSTM], w: Weights, name: str, xs: Array) -> tuple[Array, Array]:
    """Read from the left and from the right; return h of every word, and both last states."""
    left, right = cell(w, name), cell(w, name, "l0_reverse")
    states = joined(run(left, xs), run(right, xs[::-1])[::-1])
    return states, joined(left.h, right.h)


def stack_of(w: Weights, name: str) -> list[LSTM]:
    """Return all layers of a stack of LSTM layers, from the bottom."""
    return [LSTM(w, name, f"l{n}") for n in range(depth(w, f"{name}.cells.weight_ih_l"))]


def climb(layers: Sequence[LSTM], x: Array) -> Array:
    """Read one word with all layers, each on the output of the one below."""
    for layer in layers:
        x = layer(x)
    return x


def encoded(w: Weights, xs: Array) -> tuple[Array, list[LSTM]]:
    """Return the top states of an encoder, and a decoder that starts from its last states."""
    encoder, decoder = stack_of(w, "encoder"), stack_of(w, "decoder")
    h = np.stack([climb(encoder, x) for x in xs])
    for above, below in zip(decoder, encoder, strict=True):
        above.h, above.c = below.h, below.c
    return h, decoder


def additive(w: Weights, s: Array, h: Array) -> Array:
    """Return c = Σ α_i h_i,  α = softmax_i vᵀ tanh(W_s s + W_h h_i)  (Bahdanau et al. 2015)."""
    score = "cross_attention.kernel.score"
    hidden = np.tanh(affine(w, f"{score}.w_s", s) + affine(w, "cross_attention.w_h", h))
    return softmax(affine(w, f"{score}.v", hidden)[:, 0]) @ h


def maxout(w: Weights, x: Array) -> Array:
    """Return the larger one of each two numbers of W x + b (Cho et al. 2014, A.2)."""
    y: Array = affine(w, "deep_output.w", x).reshape(-1, 2).max(1)
    return y


def words(w: Weights, side: str, ids: Ids) -> Array:
    """Return the embeddings of a sentence."""
    return w[f"embed_{side}.weight"][list(ids)]


def logits(w: Weights, rows: Sequence[Array]) -> Array:
    """Return the output layer of every row."""
    return affine(w, "to_logits", np.stack(rows))


# Systems


def sutskever(w: Weights, source: Ids, target: Ids) -> Array:
    """Sutskever et al. 2014: the source reversed; the decoder starts from the last states."""
    _, decoder = encoded(w, words(w, "source", source)[::-1])
    return logits(w, [climb(decoder, y) for y in words(w, "target", target)])


def cho(w: Weights, source: Ids, target: Ids) -> Array:
    """Cho et al. 2014: c = tanh(V h_n), s_0 = tanh(V' c); every step and output reads c."""
    encoder, s = GRU(w, "encoder"), GRU(w, "decoder")
    run(encoder, words(w, "source", source))
    c = np.tanh(affine(w, "v", encoder.h))
    s.h = np.tanh(affine(w, "bridge.over.0", c))
    ys = words(w, "target", target)
    return logits(w, [maxout(w, joined(s(joined(y, c)), y, c)) for y in ys])


def bahdanau(w: Weights, source: Ids, target: Ids) -> Array:
    """Bahdanau et al. 2015: c_t of s_{t-1}, then s_t of [y_{t-1}; c_t]."""
    h, last = both_ways(GRU, w, "encoder", words(w, "source", source))
    s, rows = GRU(w, "decoder"), []
    s.h = np.tanh(affine(w, "bridge.over.0", last))
    for y in words(w, "target", target):
        c = additive(w, s.h, h)
        rows.append(maxout(w, joined(s(joined(y, c)), c, y)))
    return logits(w, rows)


def luong(w: Weights, source: Ids, target: Ids) -> Array:
    """Luong et al. 2015: s_t of [y_{t-1}; a_{t-1}], score sᵀ W h, a_t = tanh(W_c [c_t; s_t])."""
    h, decoder = encoded(w, words(w, "source", source))
    a, rows = np.zeros_like(h[0]), []
    for y in words(w, "target", target):
        s = climb(decoder, joined(y, a))
        c = softmax(h @ (s @ w["cross_attention.kernel.score.w"][0])) @ h
        a = np.tanh(affine(w, "w_c", joined(c, s)))
        rows.append(a)
    return logits(w, rows)


def gnmt(w: Weights, source: Ids, target: Ids) -> Array:
    """Wu et al. 2016: residual from the third layer on; c_t of u_{t-1} enters all upper layers."""
    x, _ = both_ways(LSTM, w, "encoder.0", words(w, "source", source))
    for n in range(1, depth(w, "encoder.")):
        states = run(LSTM(w, f"encoder.{n}"), x)
        x = states + x if n >= 2 else states
    bottom, *upper = (LSTM(w, f"decoder.{n}") for n in range(depth(w, "decoder.")))
    rows = []
    for y in words(w, "target", target):
        c = additive(w, bottom.h, x)  # of the state before this word
        top = bottom(y)
        for n, layer in enumerate(upper, start=1):
            new = layer(joined(top, c))
            top = new + top if n >= 2 else new
        rows.append(top)
    return logits(w, rows)


class FastForward:
    """LSTM layer of Zhou et al. 2016: f = W x is also its output; h of f as in an LSTM."""

    def __init__(self, w: Weights, name: str) -> None:
        self.weights, self.name, self.u = w, name, w[f"{name}.w_h.weight"]
        self.h: Array = np.zeros(self.u.shape[1])
        self.c: Array = np.zeros(self.u.shape[1])

    def __call__(self, x: Array) -> Array:
        """Read one word; return [h; f]."""
        whole = affine(self.weights, f"{self.name}.w_f", x)
        self.h, self.c = lstm_cell(whole + self.u @ self.h, self.c)
        return joined(self.h, whole)


def upwards(hf: Array) -> Array:
    """Return the input of the next layer: the first half of f, and h."""
    d = hf.shape[-1] // 5
    return joined(hf[..., d : 3 * d], hf[..., :d])


def deep_att(w: Weights, source: Ids, target: Ids) -> Array:
    """Zhou et al. 2016: two columns that read in turn from both sides; the decoder reads c."""
    tops = []
    for column in (0, 1):
        x = words(w, "source", source)
        for n in range(depth(w, f"encoder.{column}.")):
            layer, step = FastForward(w, f"encoder.{column}.{n}"), -1 if (n + column) % 2 else 1
            hf = run(layer, x[::step])[::step]
            x = upwards(hf)
        tops.append(hf)
    e = affine(w, "w_p", joined(*tops))
    first, *others = (FastForward(w, f"decoder.{n}") for n in range(depth(w, "decoder.")))
    rows = []
    for y in words(w, "target", target):
        hf = first(joined(y, additive(w, first.h, e)))
        for layer in others:
            hf = layer(upwards(hf))
        rows.append(affine(w, "w_o", hf))
    return logits(w, rows)


def gate(w: Weights, name: str, x: Array, k: int = 2) -> Array:
    """Return G(x) of all experts (Shazeer et al. 2017), most of them 0.

    With groups G_primary(x)_i G_i(x)_j (eq. 12); with thresholds T the p_i above them, or the
    largest (eq. 15 and 19); else the softmax of the k largest x W_g (eq. 3).
    """
    if f"{name}.primary.w_g" in w:
        first = gate(w, f"{name}.primary", x, k)
        return joined(*(g * gate(w, f"{name}.secondary.{i}", x, k) for i, g in enumerate(first)))
    scores: Array = x @ w[f"{name}.w_g"]
    if f"{name}.threshold" in w:
        p = softmax(scores)
        chosen = (p > w[f"{name}.threshold"]) | (p == p.max())
        return p * chosen / p[chosen].sum()
    return softmax(np.where(scores >= np.sort(scores)[-k], scores, -np.inf))


def experts(w: Weights, name: str, x: Array) -> Array:
    """Return Σ_i G(x)_i E_i(x) (eq. 1)."""
    y: Array = np.zeros_like(x)
    for i, g in enumerate(gate(w, f"{name}.gate", x)):
        inner = np.maximum(affine(w, f"{name}.experts.{i}.w_1", x), 0.0)
        y = y + g * affine(w, f"{name}.experts.{i}.w_2", inner)
    return y


def mixture_of_experts(w: Weights, source: Ids, target: Ids) -> Array:
    """Shazeer et al. 2017, appendix E: residual LSTM layers with experts between them.

    Score A = Σ_d v_d tanh(U h)_d tanh(W s)_d (appendix G); experts before the encoder's last layer
    and after the decoder's first.
    """
    x, last = words(w, "source", source), depth(w, "encoder.") - 1
    x = x + both_ways(LSTM, w, "encoder.0", x)[0]
    for n in range(1, last + 1):
        if n == last:
            x = np.stack([h + sigmoid(experts(w, "encoder_experts.layer", h)) for h in x])
        x = x + run(LSTM(w, f"encoder.{n}"), x)
    first, *others = (LSTM(w, f"decoder.{n}") for n in range(depth(w, "decoder.")))
    score, rows = "cross_attention.kernel.score", []
    keys = np.tanh(affine(w, "cross_attention.w_h", x))
    for y in words(w, "target", target):
        query = w[f"{score}.v"] * np.tanh(affine(w, f"{score}.w_s", first.h))
        top = y + first(joined(y, softmax(keys @ query) @ x))
        top = top + sigmoid(experts(w, "decoder_experts.layer", top))
        for layer in others:
            top = top + layer(top)
        rows.append(top)
    return logits(w, rows)
