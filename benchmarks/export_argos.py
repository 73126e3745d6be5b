"""A translator exported as a package of Argos Translate, installed and used by `argostranslate`.

    python benchmarks/export_argos.py runs/demo --offline

`argostranslate` of PyPI, unmodified, is installed into an environment of its own (about 1.5 GB:
stanza requires torch), or is in the one of --python. There the package is installed by
`argostranslate.package.install_from_path`, and every held-out sentence is translated alone. The
outputs are compared with those of CTranslate2 called as Argos calls it (beam 4, its length penalty
0.2, compute type "auto", which is int8 on most processors), with our tokenizer, and with those of
Polyhead's beam of 4 in float32.

Argos splits a text into sentences with a model that MiniSBD downloads when it is first used, and
keeps in `argos-translate/minisbd/` of its data directory. With --offline a small graph is put there
instead, which ends a sentence at . ! or ? before a space.
"""

import json
import os
import re
import subprocess
import venv
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ctranslate2
import measuring
import onnx
import torch
from onnx import TensorProto, helper

from polyhead.checkpoint.model_dir import load_model
from polyhead.checkpoint.model_files import resolve
from polyhead.config import from_dict
from polyhead.convert.ctranslate2_target import token_names, write, write_argos
from polyhead.data.config import DataConfig
from polyhead.metrics.bleu import score
from polyhead.pipelines.translator import Translator
from polyhead.training.tasks.translation import read_parallel_corpus

CHILD = """
import json, sys
from argostranslate import package, translate
path, source, target = sys.argv[1:]
package.install_from_path(path)
lines = json.load(sys.stdin)
outputs = [translate.translate(line, source, target) for line in lines]
json.dump({"installed": [str(p) for p in package.get_installed_packages()], "outputs": outputs},
          sys.stdout)
"""
ENDS = ".!?。！？"


def write_splitter(path: Path, language: str) -> None:
    """Write a model of MiniSBD: label 2, the end of a sentence, at the marks before a space."""
    units = ["<PAD>", "<UNK>", " ", *ENDS]
    config = {"feat_funcs": ["space_before"], "max_seqlen": 100_000}
    vocab = {"lang": language, "_unit2id": {unit: i for i, unit in enumerate(units)},
             "_id2unit": units, "idx": 0, "cutoff": 0, "lower": False}  # fmt: skip
    tables = {
        "marks": [float(unit in ENDS) for unit in units],
        "gaps": [float(unit in ("<PAD>", " ")) for unit in units],
    }
    initial = [
        helper.make_tensor(name, TensorProto.FLOAT, [len(units)], values)
        for name, values in tables.items()
    ]
    numbers = {"one": [1], "far": [2**31], "two": [2], "ends": [0, 0, 0, 1]}
    initial += [helper.make_tensor(n, TensorProto.INT64, [len(v)], v) for n, v in numbers.items()]
    initial += [
        helper.make_tensor("pad", TensorProto.FLOAT, [], [1.0]),
        helper.make_tensor("ending", TensorProto.FLOAT, [3], [0.0, 0.0, 1.0]),
        helper.make_tensor("inside", TensorProto.FLOAT, [3], [0.5, 0.0, 0.0]),
    ]
    nodes = [
        helper.make_node("Gather", ["marks", "units"], ["is_mark"]),
        helper.make_node("Gather", ["gaps", "units"], ["is_gap"]),
        helper.make_node("Slice", ["is_gap", "one", "far", "one"], ["later"]),
        helper.make_node("Pad", ["later", "ends", "pad"], ["next_is_gap"]),
        helper.make_node("Mul", ["is_mark", "next_is_gap"], ["ends_here"]),
        helper.make_node("Unsqueeze", ["ends_here", "two"], ["column"]),
        helper.make_node("Mul", ["column", "ending"], ["at_end"]),
        helper.make_node("Add", ["at_end", "inside"], ["scores"]),
    ]
    inputs = [
        helper.make_tensor_value_info("units", TensorProto.INT64, ["batch", "length"]),
        helper.make_tensor_value_info("features", TensorProto.FLOAT, ["batch", "length", "f"]),
    ]
    outputs = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", "length", 3])]
    graph = helper.make_graph(nodes, "splitter", inputs, outputs, initial)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    helper.set_model_props(
        model,
        {"lang_code": language, "config": json.dumps(config), "vocab": json.dumps(vocab)},
    )
    path.parent.mkdir(parents=True)
    onnx.save(model, path)


def environment(python: str | None, folder: Path) -> str:
    """Return a Python with argostranslate; without one, it is installed."""
    if python is not None:
        return python
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    for requirement in (f"torch=={torch.__version__}", "argostranslate"):  # torch without CUDA
        subprocess.run([python, "-m", "pip", "install", "-q", requirement], check=True)
    return python


def as_argos(saved: Any, folder: Path, lines: Sequence[str]) -> list[str]:
    """Translate with CTranslate2, by Argos' options and our tokenizer, sentence by sentence."""
    names, _ = token_names(saved)
    ids = {name: id for id, name in enumerate(names)}
    translator = ctranslate2.Translator(str(folder), compute_type="auto")
    outputs = []
    for line in lines:
        sentences = saved.tokenizers.source.encode_batch(re.split(f"(?<=[{ENDS}]) ", line))
        results = translator.translate_batch(
            [[names[id] for id in sentence[:-1]] for sentence in sentences],
            replace_unknowns=True, beam_size=4, length_penalty=0.2,
        )  # fmt: skip
        tokens = [token for result in results for token in result.hypotheses[0]]
        outputs.append(saved.tokenizers.target.decode([ids[token] for token in tokens]))
    return outputs


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    options = measuring.parser(__doc__)
    options.add_argument("model")
    options.add_argument("--python", help="of an environment with argostranslate")
    options.add_argument("--offline", action="store_true", help="put a sentence splitter there")
    options.add_argument("--most", type=int, default=1000, help="sentences")
    words = options.parse_args(arguments)
    print(*measuring.environment("export_argos.py", arguments), sep="\n")
    saved = load_model(resolve(Path(words.model)))
    source, target = saved.about["languages"]
    run = saved.about["run"]
    data = from_dict(DataConfig, run["data"], "data.")
    pairs = read_parallel_corpus(data, run["train"]["seed"])[0].valid
    lines, references = pairs.texts[: words.most], pairs.labels[: words.most]
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_argos(saved, folder, "float32")
        [package] = folder.glob("*.argosmodel")
        print(f"- {package.name}: {package.stat().st_size / 1e6:.1f} MB")
        if words.offline:
            write_splitter(folder / "argos-translate" / "minisbd" / f"{source}.onnx", source)
        home = {"XDG_DATA_HOME": name, "XDG_CONFIG_HOME": name, "XDG_CACHE_HOME": name}
        result = subprocess.run(
            [environment(words.python, folder / "venv"), "-c", CHILD, package, source, target],
            input=json.dumps(lines), text=True, stdout=subprocess.PIPE, env=os.environ | home,
            check=True,
        )  # fmt: skip
        answer = json.loads(result.stdout)
        (folder / "plain").mkdir()
        write(saved, folder / "plain", "float32")
        direct = as_argos(saved, folder / "plain", lines)
    ours = Translator.from_dir(words.model).translate(lines)  # its beam is 4
    theirs = answer["outputs"]
    print(f"- installed: {answer['installed']}")
    rows = [
        [name, *(f"{s.value:.2f}" for s in score(texts, references, bootstrap=1)),
         f"{sum(map(str.__eq__, texts, theirs)):,} of {len(theirs):,}"]
        for name, texts in (("argostranslate", theirs), ("CTranslate2", direct), ("polyhead", ours))
    ]  # fmt: skip
    print("", *measuring.table(["", "BLEU", "chrF", "equal to argostranslate"], rows), sep="\n")
    for line, a, b in zip(lines, theirs, direct, strict=True):
        if a != b:
            print(f"differs: {line!r}\n  argostranslate {a!r}\n  CTranslate2    {b!r}")
    return 0


if __name__ == "__main__":
    measuring.run(main)
