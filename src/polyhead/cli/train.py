"""`polyhead train`."""

import shlex
from pathlib import Path

from typer import Argument, Exit, Option

from polyhead.cli.options import (
    ARGUMENTS,
    FileEncoding,
    Files,
    Images,
    LabelColumn,
    Labelled,
    Overrides,
    Pairs,
    PlainText,
    SourceColumn,
    TargetColumn,
    TextColumn,
    TextPairColumn,
    complete_recipe,
    split_recipe,
)
from polyhead.cli.streams import say


def train(
    recipe: str | None = Argument(
        None,
        help="Recipe name (see `polyhead recipes`) or TOML file.",
        autocompletion=complete_recipe,
    ),
    overrides: Overrides = None,
    run: Path | None = Option(None, help="Run directory (default: runs/RECIPE)."),
    source: Files = None,
    target: Files = None,
    pairs: Pairs = None,
    valid_source: Files = None,
    valid_target: Files = None,
    valid_pairs: Pairs = None,
    text: PlainText = None,
    valid_text: PlainText = None,
    data: Labelled = None,
    valid_data: Labelled = None,
    source_column: SourceColumn = None,
    target_column: TargetColumn = None,
    text_column: TextColumn = None,
    text_pair_column: TextPairColumn = None,
    label_column: LabelColumn = None,
    languages: str | None = Option(None, help="Languages of source and target, such as ko-en."),
    images: Images = None,
    valid_images: Images = None,
    init: Path | None = Option(
        None, help="Fine-tune this model (same family, or a BERT/ELECTRA encoder)."
    ),
    encoding: FileEncoding = None,
    device: str | None = Option(None, help="Where to compute: auto, cpu, cuda or mps."),
    on_bad_line: str | None = Option(None, help="Action for unusable lines: skip or fail."),
    fresh: bool = Option(False, "--fresh", help="Delete the run directory's state and start over."),
    accept_changes: bool = Option(
        False, "--accept-changes", help="Resume even if the configuration changed."
    ),
    print_config: bool = Option(
        False, "--print-config", help="Print the resolved configuration and exit."
    ),
    log_to: list[str] | None = Option(
        None, help="Loggers: tensorboard, wandb, mlflow; separated by commas, or repeatable."
    ),
    progress: str = Option("auto", help="Progress display: auto, bar, lines or none."),
    processes: int = Option(
        1, min=1, help="Processes on this machine that share the batches of every update."
    ),
) -> None:
    """Train a model, or resume an interrupted run.

    polyhead train multi30k-de-en
    polyhead train --source train.ko --target train.en --run runs/mine
    polyhead train small train.epochs=5 --pairs corpus.tsv --run runs/tsv
    polyhead train --pairs corpus.csv --source-column ko --target-column en --run runs/csv
    polyhead train gpt-tiny --text corpus.txt --run runs/writer
    polyhead train gpt-tiny --text my.txt --init runs/writer --run runs/my-writer
    polyhead train bert-tiny --text corpus.txt --run runs/bert
    polyhead train classify-small --data labelled.tsv --init runs/bert --run runs/reviews
    polyhead train embed-small --pairs corpus.tsv --init runs/bert --run runs/embed
    polyhead train vit-cifar10 --images photos/ --run runs/photos
    polyhead train small train.accumulate=4 --processes 2 --pairs corpus.tsv --run runs/two
    """
    given = dict(locals())  # every option by its name, as `polyhead.train` has them
    from polyhead.models.registry import command_of
    from polyhead.training.entry import read_request
    from polyhead.training.processes import is_started_by_torchrun, launch

    given["recipe"], changes, others = split_recipe(recipe, overrides)
    request = read_request(given | {"overrides": changes + others, "callbacks": ()})
    if print_config:
        print(request.config.toml(), end="")
        return
    if processes > 1 and not is_started_by_torchrun():
        raise Exit(launch(ARGUMENTS.get(), processes))
    result = request.train()
    if result.rank > 0:
        raise Exit(0 if result.signal is None else 128 + result.signal)
    if result.signal is not None:
        say(f"Saved at step {result.step:,}. Run the same command again to resume.")
        raise Exit(128 + result.signal)  # as a shell reports it: 130 after Ctrl-C
    scores = "  ".join(f"{name} {value:.3f}" for name, value in result.metrics.items())
    command = f"{command_of(request.config.family)} {shlex.quote(str(result.folder))}"
    say(f"Finished at step {result.step:,}. Validation: {scores}")
    say(f"Best model: {result.best}; use it with: {command}")
