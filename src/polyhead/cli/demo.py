"""`polyhead demo`: from nothing to a translator one can look into."""

import shlex
import time
from pathlib import Path

from polyhead.cli.console import TrainingScreen, say
from polyhead.data.locate import find_lines
from polyhead.pipelines.evaluation import evaluate_translation
from polyhead.pipelines.translator import Translator
from polyhead.training.config import read_run
from polyhead.training.trainer import train
from polyhead.viz.capture import attention_view
from polyhead.viz.writer import write_view

RECIPE = "schedules-ko-en"
QUICK = ("train.epochs=0.2", "train.validate_every=20")
SHOWN = 5


def run_demo(folder: Path, *, quick: bool) -> int:
    """Train, score on held-out sentences, translate five of them, write an attention page."""
    started = time.perf_counter()
    say("A Korean to English Transformer, trained from nothing on the embedded corpus.")
    run = read_run(RECIPE, QUICK if quick else ())
    result = train(run, folder, fresh=True, reporter=TrainingScreen())
    if result.signal is not None:
        say(f"interrupted at step {result.step:,}; start again with the same command")
        return 130
    seconds = time.perf_counter() - started

    translator = Translator.from_dir(folder)
    sources, references = (
        find_lines(Path("schedules/test.ko")),
        find_lines(Path("schedules/test.en")),
    )
    found = evaluate_translation(translator, sources, references)
    print(f"\nTrained in {seconds / 60:.1f} minutes. On {len(sources)} unseen sentences:")
    for score in found.scores:
        print(f"  {score}")
    print("\nFive of them:")
    triples = zip(sources, found.outputs, references, strict=True)
    for source, output, reference in list(triples)[:SHOWN]:
        print(f"  {source}\n    → {output}")
        if output != reference:
            print(f"    = {reference}")

    page = folder / "attention.html"
    write_view(attention_view(translator, sources[0]), page)
    print(f"\nWhat its heads look at: open {page}")
    print(f"Now with your own words: polyhead translate {shlex.quote(str(folder))}")
    return 0
