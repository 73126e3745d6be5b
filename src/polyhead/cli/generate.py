"""`polyhead generate`: a prompt and its continuation, streamed."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from typer import Argument, Option

from polyhead.cli.options import (
    ComputeType,
    Device,
    Encoding,
    Engine,
    JsonLines,
    Model,
    Temperature,
    TopK,
    TopP,
    check_text,
    given_options,
)
from polyhead.cli.streams import say, utf8_stdout
from polyhead.errors import ConfigError


def generate(
    model: Model,
    start: str | None = Argument(None, metavar="[TEXT]", help="Text to continue (default: stdin)."),
    prompt: str | None = Option(None, help="Text to continue, as an option."),
    max_tokens: int | None = Option(
        None, help="Number of tokens to generate (default: the run's)."
    ),
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    greedy: bool = Option(False, "--greedy", help="Always take the most likely token."),
    seed: int = Option(0, help="Random seed; equal seeds give equal texts."),
    stop: list[str] | None = Option(
        None, help=r"Stop before this text; \n is a line end; repeatable."
    ),
    n: int = Option(1, "--n", help="Number of samples; sample i uses seed + i."),
    jsonl: JsonLines = False,
    tokens: bool = Option(
        False, "--tokens", help="With --jsonl: add every token with its probabilities."
    ),
    encoding: Encoding = "utf-8",
    device: Device = "auto",
    engine: Engine = "auto",
    compute_type: ComputeType = "auto",
) -> None:
    r"""Continue a prompt, streaming the generated text.

    polyhead generate runs/writer "오늘은" --max-tokens 100
    polyhead generate runs/writer --prompt "오늘은" --greedy --stop "\n"
    echo "오늘은" | polyhead generate runs/writer --temperature 0.7 --top-p 0.9 --n 3 --jsonl
    polyhead generate runs/writer --prompt "오늘은" --seed 1 --jsonl --tokens
    """
    from polyhead.data.text_files import read_lines
    from polyhead.engines.obstacles import torch_notice
    from polyhead.pipelines.text_generator import TextGenerator

    sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    given = [f"--{name.replace('_', '-')}" for name, value in sampling.items() if value is not None]
    given += [f"--n {n}"] if n > 1 else []
    named = given_options(generate)
    conflicts = {
        f"{next(iter(given), None)} is for sampling and cannot be combined with --greedy": greedy
        and given,
        "--seed has no effect with --greedy": greedy and "seed" in named,
        "--encoding has no effect on a text in an argument": "encoding" in named
        and (start, prompt) != (None, None),
        "--prompt: a text was given as an argument too": None not in (start, prompt),
        "--tokens: expected --jsonl too": tokens and not jsonl,
    }
    if messages := [message for message, is_given in conflicts.items() if is_given]:
        raise ConfigError(messages[0], "conflicting_options")
    prompt = start if prompt is None else prompt
    for name, value, least in (("n", n, 1), ("max-tokens", max_tokens, 1), ("top-k", top_k, 0)):
        if value is not None and value < least:
            raise ConfigError(f"--{name} {value}: expected at least {least}", "out_of_range")
    stops = _stops(stop or ())
    is_sampled = False if greedy else bool(given) or None
    changes = {"max_length": max_tokens, "n_best": 1, "beam": 1, "sample": is_sampled, **sampling}
    generator = TextGenerator.open(model, device, engine, compute_type, only=True)
    options = generator.defaults.with_options(changes)
    reason = generator.obstacle() if engine == "auto" else None
    if reason and (notice := torch_notice(reason)):
        say(f"polyhead: {notice}")
    generator.backend(options)  # so that errors come before the input is read
    if prompt is None:
        text = "" if sys.stdin.isatty() else "\n".join(read_lines(Path("-"), encoding))
    else:
        text = check_text(prompt, "--prompt")
    n_tokens, context = len(generator.encode(text)), generator.max_length
    if n_tokens > context:
        say(
            f"polyhead: the prompt has {n_tokens:,} tokens, but the model reads {context:,} at "
            "once; only the last of them are used"
        )
    with utf8_stdout() as out:
        for number in range(n):
            if tokens:
                result = generator.generate_tokens(
                    text, options=options, seed=seed + number, stop=stops
                )
                rows = [asdict(token) for token in result.tokens]
                out.write(_json_line(text, result.text, seed + number, {"tokens": rows}))
                continue
            pieces = generator.stream(text, options=options, seed=seed + number, stop=stops)
            if jsonl:
                out.write(_json_line(text, "".join(pieces), seed + number, {}))
                continue
            out.write("\n" * bool(number) + text)
            for piece in pieces:
                out.write(piece)
                out.flush()
            out.write("\n")


def _stops(texts: Sequence[str]) -> list[str]:
    stops = [check_text(text, "--stop").replace("\\n", "\n") for text in texts]
    if not all(stops):
        raise ConfigError("--stop: expected at least one character", "out_of_range")
    return stops


def _json_line(prompt: str, text: str, seed: int, more: Mapping[str, object]) -> str:
    content = {"prompt": prompt, "text": text, "seed": seed, **more}
    return json.dumps(content, ensure_ascii=False) + "\n"
