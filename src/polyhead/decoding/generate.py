"""Generation of text of any length, one token at a time.

    ├──────── context ────────┤
    t t t t t t t t t t t t t t            full
                  t t t t t t t n n n …    the newer half, with room for new tokens

When the window of `context` tokens is full, its newer half is read again as a new window. The
result equals that of reading the whole window again for every token. (With LSH attention only new
tokens attend to all earlier ones; what is read as a window is hashed.)
"""

from collections.abc import Iterator, Sequence

import torch

from polyhead.decoding.hypotheses import NEVER, log_normaliser
from polyhead.decoding.options import Choice, DecodeConfig, DecodingStep
from polyhead.decoding.protocol import Decodable, S
from polyhead.decoding.sampling import draw, sampling_probabilities
from polyhead.special_tokens import BOS


@torch.inference_mode()
def generate(
    model: Decodable[S],
    prompt: Sequence[int],
    options: DecodeConfig,
    generator: torch.Generator,
    context: int,
    *,
    forced: Sequence[int] = (),
    top: int = 0,
    device: torch.device | None = None,
) -> Iterator[DecodingStep]:
    """Yield `options.max_length` tokens that follow the prompt, of which `context` are read.

    EOS is a token like any other: a caller for whom it is the end stops iterating.

    forced: the first tokens. Random numbers are drawn for them too, so that forcing the tokens that
        a seed gives does not change what follows.
    top: the number of likeliest tokens of each step.
    """
    if not prompt:
        raise ValueError("an empty prompt: expected at least one token, such as EOS")
    if context < 1:
        raise ValueError(f"context = {context}: expected at least 1")
    window = list(prompt[-context:])
    n_generated = 0
    while n_generated < options.max_length:
        room = context - len(window) + 1  # steps until the window is full
        room = min(room, options.max_length - n_generated)
        ids = torch.tensor([window], device=device)
        state = model.begin(ids[:, :-1], width=1, max_length=room)
        for _ in range(room):
            last = torch.tensor([[window[-1]]], device=device)
            logits = model.step(last, state)[0, 0].float()
            own = logits - log_normaliser(logits)  # raises if they are not finite
            logits[: BOS + 1] = NEVER  # PAD and BOS are never written
            drawn = sampling_probabilities(logits, options) if options.sample else None
            id = int(logits.argmax() if drawn is None else draw(drawn, generator))
            is_forced = n_generated < len(forced)
            id = forced[n_generated] if is_forced else id
            best = logits.topk(min(top, len(logits) - BOS - 1)).indices.tolist() if top else []
            shown = [id, *best]
            of_drawn = [None] * len(shown) if drawn is None else drawn[shown].tolist()
            log_p = own[shown]
            choices = tuple(map(Choice, shown, log_p.tolist(), log_p.exp().tolist(), of_drawn))
            window.append(id)
            n_generated += 1
            yield DecodingStep(choices[0], is_forced, choices[1:])
        window = window[-max(1, context // 2) :]


def last_window(n_prompt: int, n_generated: int, context: int) -> tuple[int, int]:
    """Return the positions (start, end) of the window that was read before the last token.

    Tokens after it, up to the last, were read one by one.
    """
    start, end = max(0, n_prompt - context), n_prompt
    while (room := context - (end - start) + 1) < n_generated:
        n_generated -= room
        end += room
        start = end - max(1, context // 2)
    return start, end
