"""Use an exported translator without Polyhead, and compare what it writes.

    polyhead demo
    python benchmarks/export_hf.py runs/demo

The model is exported (`--to hf`) and loaded in a new virtual environment that has only torch,
transformers and tokenizers, by `AutoModelForSeq2SeqLM` and `AutoTokenizer`. It translates 1,000
sentences of the embedded corpus that training never saw, or those of `--sentences`, from raw text:

    ids              of the tokenizers
    greedy           num_beams = 1
    beam of 4        length_penalty = 0 in both, since transformers divides by length^α and we by
                     the formula of Wu et al. 2016
    default          generate() without options, against the run's own options here
    log p            of our greedy outputs, token by token

A line with several sentences is one text here, too. Exit code 1 if ids, greedy or beam outputs
differ, or a log-probability by more than 1e-4.
"""

import json
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import measuring
import torch
from torch.nn import functional as F

from polyhead.checkpoint.model_dir import load_model
from polyhead.convert.model_export import export_model
from polyhead.convert.tokenizer_files import write_tokenizer
from polyhead.data.schedules.generator import generate
from polyhead.data.text_files import read_lines
from polyhead.pipelines.translator import Translator
from polyhead.special_tokens import BOS

PACKAGES = ("torch", "transformers", "tokenizers")
LIMIT = 1e-4
LONGEST = 256  # tokens of an output, as in the export
THEIRS = """
import importlib.util, json, sys
import torch, transformers
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
assert importlib.util.find_spec("polyhead") is None, "polyhead is installed there"
folder, job = sys.argv[1], json.load(sys.stdin)
torch.set_num_threads(1)
model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
tokenizer = AutoTokenizer.from_pretrained(folder)
answer = {"class": type(model).__name__, "version": transformers.__version__, "log_p": []}
searches = {"greedy": {"num_beams": 1}, "beam": {"num_beams": 4, "length_penalty": 0.0},
            "default": {}}
answer |= {"ids": [], **{name: [] for name in searches}}
with torch.inference_mode():
    for start in range(0, len(job["texts"]), 50):
        texts = job["texts"][start : start + 50]
        given = tokenizer(texts, return_tensors="pt", padding=True)
        answer["ids"] += tokenizer(texts)["input_ids"]
        for name, options in searches.items():
            written = model.generate(**given, **options)
            answer[name] += tokenizer.batch_decode(written, skip_special_tokens=True)
    for text, target in zip(job["texts"], job["targets"], strict=True):
        given = tokenizer(text, return_tensors="pt")
        target = torch.tensor([target])
        log_p = model(**given, decoder_input_ids=target[:, :-1]).logits.log_softmax(-1)
        answer["log_p"].append(log_p.gather(-1, target[:, 1:, None]).flatten().tolist())
print(json.dumps(answer))
"""


def fresh_python(folder: Path) -> Path:
    """Create a virtual environment with nothing but what the export needs."""
    print(f"installing {', '.join(PACKAGES)} in a new environment")
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
    return python


def held_out() -> list[str]:
    """Return the 1,000 sentences of the embedded corpus that are not for training."""
    splits = generate()
    return [source for source, _ in (*splits.valid, *splits.test)]


def ours(model: Path, texts: Sequence[str]) -> dict[str, Any]:
    """Translate with Polyhead; log-probabilities are those of the greedy outputs."""
    translator = Translator.from_dir(model, device="cpu")
    whole = replace(translator.defaults, split_sentences=False)  # as transformers reads a text
    exact = replace(whole, beam=4, length_penalty=0.0, max_length=LONGEST, max_extra=LONGEST)
    searches = {"greedy": replace(exact, beam=1), "beam": exact, "default": whole}
    answer: dict[str, Any] = {
        name: translator.translate(list(texts), options=options)
        for name, options in searches.items()
    }
    source, target = translator.tokenizers.source, translator.tokenizers.target
    answer["ids"] = source.encode_batch(list(texts))
    answer["targets"] = [[BOS, *ids] for ids in target.encode_batch(answer["greedy"])]
    answer["log_p"] = []
    network: Any = translator.model
    with torch.inference_mode():
        for given, written in zip(answer["ids"], answer["targets"], strict=True):
            logits = network(torch.tensor([given]), torch.tensor([written[:-1]]))[0]
            picked = F.log_softmax(logits, -1).gather(-1, torch.tensor(written[1:])[:, None])
            answer["log_p"].append(picked.flatten().tolist())
    return answer


def export(model: Path, folder: Path) -> None:
    """Export the model; add the tokenizer if the export has none."""
    export_model(model, folder)
    if not (folder / "tokenizer.json").exists():
        tokenizers = load_model(model).tokenizers
        assert tokenizers is not None
        write_tokenizer(tokenizers, folder, "translation")


def main(words: Sequence[str]) -> int:
    """Run the script."""
    parser = measuring.parser(__doc__)
    parser.add_argument("model", type=Path, help="run or model directory of a translator")
    parser.add_argument("--sentences", type=Path, help="a file with a sentence on each line")
    parser.add_argument("--python", type=Path, help="of an environment without polyhead")
    parser.add_argument("--record", action="store_true", help="append to RESULTS.md")
    args = parser.parse_args(words)
    texts = held_out() if args.sentences is None else list(read_lines(args.sentences))[:1000]
    *about, _ = measuring.environment("export_hf.py", words)  # nothing is timed: no load
    mine = ours(args.model, texts)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "export"
        export(args.model, folder)
        python = args.python or fresh_python(Path(scratch) / "venv")
        job = json.dumps({"texts": texts, "targets": mine["targets"]})
        command = [str(python), "-I", "-c", THEIRS, str(folder)]
        process = subprocess.run(command, input=job, stdout=subprocess.PIPE, text=True, check=True)
    theirs = json.loads(process.stdout)
    equal = {
        name: sum(map(lambda a, b: a == b, mine[name], theirs[name]))
        for name in ("ids", "greedy", "beam", "default")
    }
    pairs = zip(mine["log_p"], theirs["log_p"], strict=True)
    difference = max(abs(a - b) for row in pairs for a, b in zip(*row, strict=True))
    rows = [[name, f"{count:,} of {len(texts):,}"] for name, count in equal.items()]
    rows.append(["largest difference of log p", f"{difference:.1e}"])
    report = measuring.table(
        [f"{theirs['class']}, transformers {theirs['version']}", "equal"], rows
    )
    print("\n".join(report))
    for name in ("ids", "greedy", "beam"):
        for i in [i for i in range(len(texts)) if mine[name][i] != theirs[name][i]][:3]:
            print(f"{name}: {texts[i]!r}\n  ours   {mine[name][i]!r}\n  theirs {theirs[name][i]!r}")
    if args.record:
        heading = "Exported to transformers"
        measuring.record(measuring.RESULTS, heading, [*about, "", *report])
    exact = all(equal[name] == len(texts) for name in ("ids", "greedy", "beam"))
    return int(not exact or difference > LIMIT)


if __name__ == "__main__":
    measuring.run(main)
