"""An exported translator in unmodified transformers.js under Node: are its outputs ours?

    polyhead demo
    python benchmarks/export_transformersjs.py runs/demo

Node and npm must be installed. The package @huggingface/transformers is installed from npm into a
temporary folder, without install scripts: that of onnxruntime-node downloads libraries for graphics
cards, and the one for processors is in the package. The script beside this one then reads the
folder of `polyhead export --to onnx` and raw text, with the graphs in float32 (fp32) and in 8 bits
(q8, the default in browsers). Its outputs are compared with our greedy search, text by text.
"""

import argparse
import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import measuring
import torch

from polyhead.checkpoint.model_dir import load_model
from polyhead.convert import onnx_graphs
from polyhead.data.text_files import read_lines
from polyhead.errors import ConfigError, MissingError
from polyhead.pipelines.translator import Translator
from polyhead.server.segments import UNLIMITED_RATIO

PACKAGE = "@huggingface/transformers"
SCRIPT = Path(__file__).with_suffix(".mjs")
TYPES = ("fp32", "q8")
COLUMNS = ("", "equal to our greedy search", "sentences per second, one by one")


def run(command: Sequence[str], folder: Path, text: str = "") -> str:
    """Run a program of Node in a folder and return what it writes."""
    if shutil.which(command[0]) is None:
        raise MissingError(f"{command[0]} is not installed; install Node 20 or newer")
    done = subprocess.run(
        command, cwd=folder, input=text, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise MissingError(f"{command[0]} failed: {' '.join(done.stderr.split())[-400:]}")
    return done.stdout


def install(folder: Path) -> str:
    """Install the package into a folder and return its version."""
    run(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", PACKAGE], folder)
    package = json.loads((folder / "node_modules" / PACKAGE / "package.json").read_text())
    return f"{PACKAGE} {package['version']}"


def translate_ours(path: Path, sentences: Sequence[str]) -> list[str]:
    """Return our translations by greedy search, each line as one sentence."""
    translator = Translator.from_dir(path)
    changes = {"beam": 1, "n_best": 1, "max_ratio": UNLIMITED_RATIO, "split_sentences": False}
    return translator.translate(sentences, options=translator.defaults.with_options(changes))


def main(arguments: Sequence[str]) -> int:
    """Install, export, translate, compare, print, and record if asked to."""
    parser = measuring.parser(__doc__)
    parser.add_argument("model", type=Path, help="a run or a model that translates")
    parser.add_argument("--source", type=Path, default=Path("schedules/test.ko"))
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--record", action="store_true", help="append to RESULTS.md")
    options: argparse.Namespace = parser.parse_args(arguments)
    torch.set_num_threads(1)
    where = measuring.environment("export_transformersjs.py", arguments)
    saved = load_model(options.model)
    if saved.tokenizers is None or saved.family != "transformer":
        raise ConfigError(f"{options.model}: expected a Transformer that translates")
    sentences = read_lines(options.source)[: options.sentences]
    ours, rows = translate_ours(options.model, sentences), []
    with tempfile.TemporaryDirectory() as temporary:
        packages, folder = Path(temporary, "packages"), Path(temporary, "exported")
        packages.mkdir()
        folder.mkdir()
        print(f"installing {PACKAGE} …")
        version = install(packages)
        onnx_graphs.write(saved, folder, int8=True, progress=print)
        for kind in TYPES:
            print(f"translating {len(sentences):,} sentences in {kind} …")
            command = ["node", str(SCRIPT.resolve()), str(folder), kind]
            answer: dict[str, Any] = json.loads(run(command, packages, json.dumps(sentences)))
            pairs = list(zip(ours, answer["outputs"], strict=True))
            for mine, theirs in [pair for pair in pairs if pair[0] != pair[1]][:3]:
                print(f"  ours: {mine}\n  {kind}: {theirs}")
            same = sum(mine == theirs for mine, theirs in pairs)
            speed = len(pairs) / answer["seconds"]
            rows.append([kind, f"{same:,} of {len(pairs):,}", f"{speed:,.0f}"])
    lines = [*where, f"- {version}", "", *measuring.table(COLUMNS, rows)]
    print("\n".join(["", *lines]))
    if options.record:
        measuring.record(measuring.RESULTS, "ONNX graphs in transformers.js", lines)
    return 0


if __name__ == "__main__":
    measuring.run(main)
