"""Generation of text of any length, one token at a time.

    ├──────── context ────────┤
    t t t t t t t t t t t t t t            full
                  t t t t t t t n n n …    the newer half, with room for new tokens

When the window of `context` tokens is full, its newer half is read again as a new window. The
result equals that of reading the whole window again for every token.
"""

from collections.abc import Iterator, Sequence

import torch

from polyhead.decoding.config import NEVER, DecodeConfig
from polyhead.decoding.protocol import Decodable, S
from polyhead.decoding.sampling import draw
from polyhead.special_tokens import BOS


@torch.inference_mode()
def generate(
    model: Decodable[S],
    prompt: Sequence[int],
    options: DecodeConfig,
    generator: torch.Generator,
    context: int,
    device: torch.device | None = None,
) -> Iterator[int]:
    """Yield `options.max_length` tokens that follow the prompt, of which `context` are read.

    EOS is a token like any other: a caller for whom it is the end stops iterating.
    """
    if not prompt:
        raise ValueError("an empty prompt: expected at least one token, such as EOS")
    if context < 1:
        raise ValueError(f"context = {context}: expected at least 1")
    window = list(prompt[-context:])
    left = options.max_length
    while left > 0:
        room = min(left, context - len(window) + 1)  # steps until the window is full
        ids = torch.tensor([window], device=device)
        state = model.begin(ids[:, :-1], width=1, max_length=room)
        last = window[-1]
        for _ in range(room):
            logits = model.step(torch.tensor([[last]], device=device), state).float()
            logits[..., : BOS + 1] = NEVER  # PAD and BOS are never written
            last = int(draw(logits, options, generator) if options.sample else logits.argmax())
            window.append(last)
            yield last
        left -= room
        window = window[-max(1, context // 2) :]
