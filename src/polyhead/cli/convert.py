"""`polyhead import`, `polyhead export` and `polyhead average`: models in, models out."""

from pathlib import Path
from typing import TYPE_CHECKING

from typer import Argument, Option

from polyhead.cli.options import Model, Models
from polyhead.cli.streams import counting, say

if TYPE_CHECKING:
    from polyhead.convert.conversion import ConversionReport


def import_model(
    name: str = Argument(
        help="Directory or name of a Hugging Face or timm model.", metavar="MODEL"
    ),
    output: Path = Option(help="Model directory to write."),
    generator: str | None = Option(None, help="Directory or name of ELECTRA's generator."),
    family: str | None = Option(None, help="vit, for timm weights without an architecture name."),
) -> None:
    """Import a Hugging Face or timm model.

    Marian, Pegasus, GPT-2, GPT-NeoX, BERT, ESM, ELECTRA, ViT, DeiT and I-JEPA, as safetensors only.

    polyhead import downloads/opus-mt-ko-en --output models/ko-en
    polyhead import electra-disc --generator electra-gen --output models/electra
    """
    from polyhead.convert.conversion import import_model as convert

    say(f"reading {name} …")
    print_report(convert(name, output, generator=generator, family=family))


def export_model(
    model: Model,
    output: Path = Option(help="Directory to write."),
    to: str = Option("hf", help="hf, timm, ctranslate2, argos, onnx or gguf."),
    compute_type: str | None = Option(
        None, help="Type of the weights, e.g. int8 (default: float32)."
    ),
    sentences: Path | None = Option(
        None,
        help="Compare outputs on these lines (text, tab, translation or label), not on the "
        "run's held-out ones.",
    ),
    report_sentences: int = Option(1000, min=0, help="Compare outputs on at most this many."),
) -> None:
    """Export a model for other libraries.

    Written are its tokenizer, a card and a report on equal outputs too.

    polyhead export runs/mine --to hf --output models/mine-hf
    polyhead export runs/mine --to ctranslate2 --compute-type int8 --output models/mine-ct2
    polyhead export models/ko-en --output ko-en-hf --sentences test.tsv --report-sentences 100
    """
    from polyhead.convert.model_export import ReportConfig
    from polyhead.convert.model_export import export_model as convert

    say(f"reading {model} …")
    report = ReportConfig(report_sentences, sentences)
    with counting("comparing", report_sentences) as progress:
        result = convert(
            model, output, to=to, compute_type=compute_type, report=report, progress=progress,
            say=say,
        )  # fmt: skip
    print_report(result)


def print_report(report: "ConversionReport") -> None:
    """Print the parity report on stderr and the directory on stdout."""
    say(f"{report.architecture}: family {report.family}")
    say(f"weights: {report.n_tensors} tensors, {report.n_parameters:,} parameters, all converted")
    say(f"tokenizer: {report.tokenizer}")
    for note in report.notes:
        say(f"note: {note}")
    for label, value in () if report.figures is None else report.figures.rows():
        say(f"{label}: {value}")
    if report.parity is None and report.figures is None:
        say(f"outputs: not compared (names and shapes only): {report.obstacle}")
    elif report.parity is not None:
        parity = report.parity
        say(
            f"outputs: largest difference {parity.difference:.1e} among {parity.count:,} numbers "
            f"up to {parity.largest:.3g}"
        )
    print(report.output)


def average(
    models: Models,
    output: Path = Option(help="Model directory to write."),
    last: int | None = Option(None, help="Use only this many of a run's newest checkpoints."),
) -> None:
    """Average the weights of several checkpoints.

    A run stands for all checkpoints that it has kept.

    polyhead average runs/mine --output models/mine-averaged
    """
    from polyhead.checkpoint.average import average as average_weights

    members = average_weights(models, output, last=last)
    say(f"{output}: the mean of {', '.join(path.name for path in members)}")
