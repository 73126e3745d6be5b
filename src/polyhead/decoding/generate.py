"""Going on with a text, one token at a time, for as long as one likes.

A model has read at most `context` tokens at once in training, and may have no positions beyond. So
when its window is full, it forgets: the newer half of the window is read again as a new beginning,
and the text goes on from there.

    ├──────── context ────────┤
    t t t t t t t t t t t t t t            full: the next token finds no place …
                  t t t t t t t n n n …    … so the newer half is read again, and there is room

Between two such moments each token costs one step of the cache. What is written is exactly what
one would write by reading the whole window anew for every token.
"""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from polyhead.decoding.config import NEVER, DecodeConfig
from polyhead.decoding.protocol import Decodable, S
from polyhead.decoding.sampling import trimmed
from polyhead.special_tokens import BOS


@torch.inference_mode()
def write(
    model: Decodable[S],
    prompt: Sequence[int],
    options: DecodeConfig,
    generator: torch.Generator,
    context: int,
    device: torch.device | None = None,
) -> Iterator[int]:
    """`options.max_length` tokens that follow a prompt of at least one, as they are found.

    `options.sample` draws by temperature, top-k and top-p; else the likeliest is taken. EOS is a
    token like any other; whoever takes it for the end stops asking. Of a long prompt the end is
    read.
    """
    if not prompt:
        raise ValueError("an empty prompt: expected at least one token, such as EOS")
    if context < 1:
        raise ValueError(f"context = {context}: expected at least 1")
    window = list(prompt[-context:])
    left = options.max_length
    while left > 0:
        room = min(left, context - len(window) + 1)  # that many steps until the window is full
        ids = torch.tensor([window], device=device)
        state = model.begin(ids[:, :-1], width=1, max_length=room)
        last = window[-1]
        for _ in range(room):
            token = torch.tensor([[last]], device=device)
            last = choose(model.step(token, state), options, generator)
            window.append(last)
            yield last
        left -= room
        window = window[-max(1, context // 2) :]


def choose(
    logits: Float[Tensor, "1 1 vocab"], options: DecodeConfig, generator: torch.Generator
) -> int:
    """The next token. PAD and BOS are never said."""
    logits = logits.float()
    logits[..., : BOS + 1] = NEVER
    if not options.sample:
        return int(logits.argmax())
    kept = trimmed(logits / options.temperature, options.top_k, options.top_p)
    return draw(kept.softmax(-1)[0, 0], generator)


def draw(p: Float[Tensor, "vocab"], generator: torch.Generator) -> int:
    """One of the tokens, by its probability. The generator lives on the CPU, wherever p is."""
    return int(torch.multinomial(p.cpu(), 1, generator=generator))
