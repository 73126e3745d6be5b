"""`polyhead demo`: train, evaluate and inspect a translator on the embedded corpus."""

import shlex
import time
from pathlib import Path

from typer import Exit, Option

from polyhead.cli.streams import say

RECIPE = "schedules-ko-en"
QUICK = ("train.epochs=0.2", "train.validate_every=20")
N_EXAMPLES = 5


def demo(
    run: Path = Option("runs/demo", help="Run directory; an earlier run is replaced."),
    quick: bool = Option(False, "--quick", help="Train for a few steps only."),
) -> None:
    """Train a Korean to English translator from scratch.

    It is scored, used, and its attention is shown.
    """
    from polyhead.data.text_files import read_lines
    from polyhead.pipelines.evaluation import evaluate_translation
    from polyhead.pipelines.translator import Translator
    from polyhead.training.config import read_run
    from polyhead.training.display import TrainingScreen
    from polyhead.training.trainer import train
    from polyhead.viz.capture import attention_view
    from polyhead.viz.writer import write_view

    started = time.perf_counter()
    say("Training a Korean to English Transformer from scratch on the embedded corpus.")
    config = read_run(RECIPE, QUICK if quick else ())
    result = train(config, run, fresh=True, callbacks=[TrainingScreen()])
    if result.signal is not None:
        say(f"Interrupted at step {result.step:,}. Run the same command again to start over.")
        raise Exit(128 + result.signal)
    minutes = (time.perf_counter() - started) / 60

    translator = Translator.from_dir(run)
    sources, references = (read_lines(Path(f"schedules/test.{code}")) for code in ("ko", "en"))
    evaluation = evaluate_translation(translator, sources, references)
    print(f"\nTrained in {minutes:.1f} minutes. Scores on {len(sources)} held-out sentences:")
    for score in evaluation.scores:
        print(f"  {score}")
    print("\nExamples (→ translation, = reference where it differs):")
    rows = zip(sources, evaluation.outputs, references, strict=True)
    for source, output, reference in list(rows)[:N_EXAMPLES]:
        print(f"  {source}\n    → {output}")
        if output != reference:
            print(f"    = {reference}")
    page = run / "attention.html"
    write_view(attention_view(translator, sources[0]), page)
    print(f"\nAttention of every head: open {page}")
    print(f"Translate your own sentences: polyhead translate {shlex.quote(str(run))}")
