"""`polyhead generate`: a prompt and its continuation, streamed."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from polyhead.cli.options import Device, Encoding, Model, Temperature, TopK, TopP, check_text
from polyhead.errors import ConfigError


def generate(
    model: Model,
    prompt: Annotated[str | None, typer.Option(help="Text to continue (default: stdin).")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Number of tokens to generate (default: the run's).")
    ] = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Always take the most likely token.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Random seed; equal seeds give equal texts.")] = 0,
    stop: Annotated[
        list[str] | None,
        typer.Option(help=r"Stop before this text; \n is a line end; repeatable."),
    ] = None,
    n: Annotated[int, typer.Option("--n", help="Number of samples; sample i uses seed + i.")] = 1,
    jsonl: Annotated[bool, typer.Option("--jsonl", help="Print one JSON object per text.")] = False,
    encoding: Encoding = "utf-8",
    device: Device = "auto",
) -> None:
    r"""Continue a prompt, streaming the generated text.

    polyhead generate runs/writer --prompt "오늘은" --max-tokens 100
    polyhead generate runs/writer --prompt "오늘은" --greedy --stop "\n"
    echo "오늘은" | polyhead generate runs/writer --temperature 0.7 --top-p 0.9 --n 3 --jsonl
    """
    from polyhead.cli.console import say, utf8_stdout
    from polyhead.pipelines.text_generator import TextGenerator

    sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    given = [name.replace("_", "-") for name, value in sampling.items() if value is not None]
    stops = [check_text(text, "--stop").replace("\\n", "\n") for text in stop or ()]
    check_options(greedy=greedy, sampling=given, n=n, max_tokens=max_tokens, top_k=top_k)
    if not all(stops):
        raise ConfigError("--stop: expected at least one character", "out_of_range")
    generator = TextGenerator.from_dir(model, device=device)
    text = read_prompt(encoding) if prompt is None else check_text(prompt, "--prompt")
    n_tokens, context = len(generator.encode(text)), generator.max_length
    if n_tokens > context:
        say(
            f"polyhead: the prompt has {n_tokens:,} tokens, but the model reads {context:,} at "
            "once; only the last of them are used"
        )
    is_sampled = False if greedy else (True if given or n > 1 else None)
    changes = {"max_length": max_tokens, "n_best": 1, "beam": 1, "sample": is_sampled, **sampling}
    options = generator.defaults.with_options(changes)
    with utf8_stdout() as out:
        for number in range(n):
            pieces = generator.stream(text, options=options, seed=seed + number, stop=stops)
            if jsonl:
                content = {"prompt": text, "text": "".join(pieces), "seed": seed + number}
                out.write(json.dumps(content, ensure_ascii=False) + "\n")
                continue
            out.write("\n" * bool(number) + text)
            for piece in pieces:
                out.write(piece)
                out.flush()
            out.write("\n")


def check_options(
    *, greedy: bool, sampling: list[str], n: int, max_tokens: int | None, top_k: int | None
) -> None:
    """Raise if options contradict each other or are out of range."""
    if greedy and sampling:
        raise ConfigError(
            f"--{sampling[0]} is for sampling and cannot be combined with --greedy",
            "conflicting_options",
        )
    if greedy and n > 1:
        raise ConfigError(
            f"--n {n} cannot be combined with --greedy, which finds one text", "conflicting_options"
        )
    for name, value, least in (("n", n, 1), ("max-tokens", max_tokens, 1), ("top-k", top_k, 0)):
        if value is not None and value < least:
            raise ConfigError(f"--{name} {value}: expected at least {least}", "out_of_range")


def read_prompt(encoding: str) -> str:
    """Return standard input without its last newline; an empty prompt at a terminal."""
    from polyhead.data.locate import find_lines

    return "" if sys.stdin.isatty() else "\n".join(find_lines(Path("-"), encoding))
