"""A plain PyTorch model with Polyhead's LSH and local attention; trained on random texts.

    python examples/long_text_classifier.py

The label of a text says which of two markers is somewhere among its 256 random tokens.
"""

import torch
from torch import nn
from torch.nn import functional as F

from polyhead import layers
from polyhead.layers import LocalAttention, LSHAttention, MultiHeadAttention

PAD, MARKER_A, FIRST = 0, 1, 3


class Layer(nn.Module):
    """Attention and a feed-forward network, each with a norm and a residual connection."""

    def __init__(self, d_model: int, attention: MultiHeadAttention) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(d_model), attention
        wide, narrow = nn.Linear(d_model, 2 * d_model), nn.Linear(2 * d_model, d_model)
        self.feed_forward = nn.Sequential(nn.LayerNorm(d_model), wide, nn.ReLU(), narrow)

    def forward(self, x, mask):
        x = x + self.attention(self.norm(x), mask=mask)
        return x + self.feed_forward(x)


class LongTextClassifier(nn.Module):
    """Local attention among 16 neighbours, then LSH attention across the whole text."""

    def __init__(self, vocab: int = 100, d_model: int = 32, n_heads: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, d_model)
        self.positions = layers.SinusoidalPositions(d_model)
        near = MultiHeadAttention(d_model, n_heads, LocalAttention(window=16))
        # LSH attention compares vectors with each other: queries and keys are one projection
        far = MultiHeadAttention(d_model, n_heads, LSHAttention(chunk=32, n_rounds=2), shared=True)
        self.layers = nn.ModuleList([Layer(d_model, near), Layer(d_model, far)])
        self.to_logits = nn.Linear(d_model, 2)

    def forward(self, ids):
        mask = layers.not_padding(ids, PAD)
        x = self.tokens(ids) + self.positions(ids.size(1))
        for layer in self.layers:
            x = layer(x, mask)
        real = (ids != PAD)[..., None]
        return self.to_logits(x.masked_fill(~real, -torch.inf).amax(1))


def random_texts(n: int, length: int = 256, vocab: int = 100):
    """Return texts of different lengths, padded, each with a marker, and the labels."""
    ids, labels = torch.randint(FIRST, vocab, (n, length)), torch.randint(2, (n,))
    lengths = torch.randint(length // 2, length + 1, (n,))
    ids[torch.arange(n), (torch.rand(n) * lengths).long()] = labels + MARKER_A
    return ids.masked_fill(torch.arange(length) >= lengths[:, None], PAD), labels


def main(steps: int = 40) -> float:
    """Train, and return the accuracy on other texts."""
    torch.manual_seed(0)
    model = LongTextClassifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        ids, labels = random_texts(32)
        optimizer.zero_grad()
        F.cross_entropy(model(ids), labels).backward()
        optimizer.step()
    ids, labels = random_texts(128)
    accuracy = (model.eval()(ids).argmax(-1) == labels).float().mean().item()
    print(f"{steps} steps, accuracy {accuracy:.2f}")
    return accuracy


if __name__ == "__main__":
    main()
