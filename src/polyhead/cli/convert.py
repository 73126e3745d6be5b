"""`polyhead import` and `polyhead export`: a conversion, and a report about it on stderr."""

from pathlib import Path

from polyhead.cli.console import say
from polyhead.convert.conversion import ConversionReport, export_model, import_model


def run_import(name: str, output: Path, generator: str | None, family: str | None) -> None:
    """Convert one of their models to ours."""
    say(f"reading {name} …")
    tell(import_model(name, output, generator=generator, family=family))


def run_export(model: Path, output: Path, to: str) -> None:
    """Convert one of our models to theirs."""
    say(f"reading {model} …")
    tell(export_model(model, output, to=to))


def tell(report: ConversionReport) -> None:
    """The parity report, and at last the folder on stdout."""
    say(f"{report.architecture}: our family {report.family}")
    say(f"weights: {report.n_tensors} tensors, {report.n_parameters:,} parameters, all in place")
    say(f"tokenizer: {report.tokenizer}")
    for note in report.notes:
        say(f"note: {note}")
    if report.parity is None:
        say(f"outputs: not compared, only names and shapes: {report.obstacle}")
    else:
        found = report.parity
        say(
            f"outputs: the largest difference is {found.difference:.1e}, in {found.count:,} "
            f"numbers up to {found.largest:.3g}"
        )
    print(report.output)
