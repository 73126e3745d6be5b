"""Convolutional translators and the Transformer in NumPy, from the equations of their papers.

Like `numpy_recurrent.py`: one sentence pair, no batch, no padding, no torch.
"""

import math

import numpy as np

from polyhead.notes.numpy_recurrent import Array, Ids, Weights, affine, depth, sigmoid, softmax

HALF = math.sqrt(0.5)


def relu(x: Array) -> Array:
    """Return max(0, x)."""
    return np.maximum(x, 0.0)


def norm(w: Weights, name: str, x: Array) -> Array:
    """Normalise every row (Ba et al. 2016), with ε = 1e-5."""
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]


def convolution(
    w: Weights, name: str, x: Array, *, dilation: int = 1, causal: bool = False
) -> Array:
    """Return y_t = b + Σ_j W_j x_(t + (j - o) · dilation); W = g v / ‖v‖ if there is a g."""
    v, length, d_in = w[f"{name}.v"], *x.shape
    if f"{name}.g" in w:
        v = v * (w[f"{name}.g"] / np.linalg.norm(v, axis=1))[:, None]
    taps = v.shape[1] // d_in
    origin = taps - 1 if causal else taps // 2
    y: Array = np.tile(w[f"{name}.bias"], (length, 1))
    for t in range(length):
        for j in range(taps):
            place = t + (j - origin) * dilation
            if 0 <= place < length:
                y[t] += v[:, j * d_in : (j + 1) * d_in] @ x[place]
    return y


def embedded(w: Weights, side: str, ids: Ids, scale: float = 1.0) -> Array:
    """Return s E[word]."""
    return scale * w[f"embed_{side}.tokens.weight"][list(ids)]


# ByteNet


def bytenet_blocks(w: Weights, stack: str, x: Array, *, causal: bool) -> Array:
    """Kalchbrenner et al. 2016, figure 3: x + W_2 relu(norm(conv(relu(norm(W_1 relu(norm x)…."""
    for n in range(depth(w, f"{stack}.")):
        name, dilation = f"{stack}.{n}", 2 ** (n % 5)  # 1, 2, 4, 8, 16, 1, …
        h = convolution(w, f"{name}.w_1", relu(norm(w, f"{name}.norm_1", x)))
        h = relu(norm(w, f"{name}.norm_2", h))
        h = convolution(w, f"{name}.convolution", h, dilation=dilation, causal=causal)
        x = x + convolution(w, f"{name}.w_2", relu(norm(w, f"{name}.norm_3", h)))
    return x


def bytenet(w: Weights, source: Ids, target: Ids) -> Array:
    """Unfold the source to 1.2 |s| columns; the decoder is stacked on them, zeros beyond them."""
    root = math.sqrt(w["embed_source.tokens.weight"].shape[1])
    columns = math.ceil(1.2 * len(source))
    padded = [*source, *[0] * (columns - len(source))]
    z = bytenet_blocks(w, "encoder", embedded(w, "source", padded, root), causal=False)
    z, x = norm(w, "norm_z", z), embedded(w, "target", target, root)
    x[:columns] += z[: len(x)]
    x = bytenet_blocks(w, "decoder", x, causal=True)
    return affine(w, "to_logits", relu(norm(w, "norm_o", convolution(w, "w_o", x))))


# ConvS2S


def gated(w: Weights, name: str, x: Array, *, causal: bool) -> Array:
    """Return the gated linear unit a · σ(b) of the convolution [a; b] (Dauphin et al. 2017)."""
    a, b = np.split(convolution(w, f"{name}.convolution", x, causal=causal), 2, -1)
    return a * sigmoid(b)


def skipped(w: Weights, name: str, x: Array) -> Array:
    """Return the input of a layer, projected where its output is of another width."""
    return convolution(w, f"{name}.skip", x) if f"{name}.skip.v" in w else x


def convs2s(w: Weights, source: Ids, target: Ids) -> Array:
    """Gehring et al. 2017: attention in every decoder layer; all sums are multiplied by √½."""
    e, y = (
        embedded(w, side, ids) + w[f"embed_{side}.positions.table.weight"][: len(ids)]
        for side, ids in (("source", source), ("target", target))
    )
    x = convolution(w, "enter_source", e)
    for n in range(depth(w, "encoder.")):
        name = f"encoder.{n}"
        x = (gated(w, name, x, causal=False) + skipped(w, name, x)) * HALF
    z = convolution(w, "w_z", x)
    x = convolution(w, "enter_target", y)
    for n in range(depth(w, "decoder.")):
        name = f"decoder.{n}"
        h = gated(w, name, x, causal=True)
        q = (convolution(w, f"{name}.w_in", h) + y) * HALF
        c = softmax(q @ z.T) @ ((z + e) * HALF) * math.sqrt(len(source))
        h = (convolution(w, f"{name}.w_out", c) + h) * HALF
        x = (h + skipped(w, name, x)) * HALF
    return convolution(w, "to_logits", convolution(w, "w_o", x))


# The Transformer


def position_code(length: int, d_model: int) -> Array:
    """Vaswani et al. 2017, section 3.5: sines in even features, cosines in odd ones."""
    angles = np.arange(length)[:, None] / 10000.0 ** (np.arange(0, d_model, 2) / d_model)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(length, d_model)


def heads(w: Weights, name: str, x: Array, y: Array, n_heads: int, *, causal: bool) -> Array:
    """Section 3.2: Concat(head_1 … head_h) W_o, queries from x, keys and values from y."""
    parts = (
        affine(w, f"{name}.{part}", x if part == "w_q" else y) for part in ("w_q", "w_k", "w_v")
    )
    outputs = []
    for q_i, k_i, v_i in zip(*(np.split(part, n_heads, -1) for part in parts), strict=True):
        scores = q_i @ k_i.T / math.sqrt(q_i.shape[1])
        if causal:
            scores[np.triu_indices(len(x), 1)] = -np.inf
        outputs.append(softmax(scores) @ v_i)
    return affine(w, f"{name}.w_o", np.concatenate(outputs, -1))


def transformer_stack(
    w: Weights, stack: str, x: Array, n_heads: int, memory: Array | None = None
) -> Array:
    """Figure 1: LayerNorm(x + f(x)) around self-attention, cross-attention and feed-forward."""
    for n in range(depth(w, f"{stack}.blocks.")):
        name = f"{stack}.blocks.{n}"
        f = heads(w, f"{name}.self_attention", x, x, n_heads, causal=memory is not None)
        x = norm(w, f"{name}.self_residual.norm", x + f)
        if memory is not None:
            f = heads(w, f"{name}.cross_attention", x, memory, n_heads, causal=False)
            x = norm(w, f"{name}.cross_residual.norm", x + f)
        inner = relu(affine(w, f"{name}.feed_forward.w_1", x))
        f = affine(w, f"{name}.feed_forward.w_2", inner)
        x = norm(w, f"{name}.feed_residual.norm", x + f)
    return x


def transformer(w: Weights, source: Ids, target: Ids, n_heads: int) -> Array:
    """Vaswani et al. 2017: √d E + PE, encoder, decoder, and the embedding as output layer."""
    table = w["embed_source.tokens.weight"]
    d = table.shape[1]
    x, y = (
        math.sqrt(d) * table[list(ids)] + position_code(len(ids), d) for ids in (source, target)
    )
    memory = transformer_stack(w, "encoder", x, n_heads)
    return transformer_stack(w, "decoder", y, n_heads, memory) @ table.T
