"""`polyhead generate`: a prompt and its continuation, streamed."""

import json
import sys
from pathlib import Path

from typer import Option

from polyhead.cli.options import (
    Device,
    Encoding,
    JsonLines,
    Model,
    Temperature,
    TopK,
    TopP,
    check_text,
)
from polyhead.cli.streams import say, utf8_stdout
from polyhead.errors import ConfigError


def generate(
    model: Model,
    prompt: str | None = Option(None, help="Text to continue (default: stdin)."),
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
    encoding: Encoding = "utf-8",
    device: Device = "auto",
) -> None:
    r"""Continue a prompt, streaming the generated text.

    polyhead generate runs/writer --prompt "오늘은" --max-tokens 100
    polyhead generate runs/writer --prompt "오늘은" --greedy --stop "\n"
    echo "오늘은" | polyhead generate runs/writer --temperature 0.7 --top-p 0.9 --n 3 --jsonl
    """
    from polyhead.data.text_files import read_lines
    from polyhead.pipelines.text_generator import TextGenerator

    sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    given = [f"--{name.replace('_', '-')}" for name, value in sampling.items() if value is not None]
    given += [f"--n {n}"] if n > 1 else []
    if greedy and given:
        message = f"{given[0]} is for sampling and cannot be combined with --greedy"
        raise ConfigError(message, "conflicting_options")
    for name, value, least in (("n", n, 1), ("max-tokens", max_tokens, 1), ("top-k", top_k, 0)):
        if value is not None and value < least:
            raise ConfigError(f"--{name} {value}: expected at least {least}", "out_of_range")
    stops = [check_text(text, "--stop").replace("\\n", "\n") for text in stop or ()]
    if not all(stops):
        raise ConfigError("--stop: expected at least one character", "out_of_range")
    generator = TextGenerator.from_dir(model, device=device)
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
    is_sampled = False if greedy else bool(given) or None
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
