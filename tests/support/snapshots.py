"""Record what users depend on: weights of tiny runs, command options, HTTP schema and answers.

    python tests/support/snapshots.py           # rewrite tests/snapshots/ after a wanted change

Everything goes through `polyhead.cli.main.main` and HTTP, so that no recording depends on how the
package is laid out. Prose (help texts, messages, schema titles) is not recorded.
"""

import hashlib
import json
import platform
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import requests
import torch
from safetensors.torch import load_file
from served_models import started

from polyhead.cli.main import main, program

FOLDER = Path(__file__).parents[1] / "snapshots"
STEPS = (
    "train.steps=8", "train.max_tokens=300", "train.validate_every=4", "train.save_every=4",
    "train.log_every=2", "train.schedule.warmup=3", "train.seed=5",
)  # fmt: skip
STACK = ("n_layers=2", "d_model=16", "n_heads=2", "d_ff=32")
VIT = ("height=8", "width=8", "patch=4")
TRANSLATION = ("text.vocab=600", "data.hold_out=20", "train.bleu_sentences=2")
PROSE = ("title", "description", "summary", "error")
VARYING = ("seconds", "operationId", "created")


def stack(prefix: str = "model.stack") -> list[str]:
    """Return the overrides of a stack of two small layers."""
    return [f"{prefix}.{size}" for size in STACK]


def runs(data: Path) -> dict[str, list[str]]:
    """Return the arguments of `polyhead train` for every recorded run."""
    parallel = ["--source", f"{data}/train.ko", "--target", f"{data}/train.en"]
    text = ["--text", f"{data}/train.ko"]
    labelled = ["--data", f"{data}/train.tsv"]
    images = ["--images", f"{data}/images"]
    gnmt = ["model.d_model=16", "model.n_layers=3"]
    translator = ["small", *TRANSLATION, *stack(), *parallel]
    return {
        "transformer": translator,
        "experts": ["small-moe", *TRANSLATION, *stack(), *parallel],
        "gnmt-rl": [
            "multi30k-de-en-gnmt", *TRANSLATION, *gnmt, "train.reward.samples=2", *parallel,
        ],
        "gpt": ["gpt-tiny", "text.vocab=600", *stack(), *text],
        "reformer": ["reformer-tiny", "text.vocab=600", *text],
        "bert": ["bert-tiny", "text.vocab=600", *stack(), *text],
        "electra": ["electra-tiny", "text.vocab=600", *stack(), *text],
        "classifier": [
            "classify-small", "text.vocab=600", *stack("model.encoder.stack"), *labelled,
        ],
        "vit": ["vit-digits", *(f"model.{n}" for n in VIT), *stack(), *images],
        "resumed": translator,
    }  # fmt: skip


def write_data(folder: Path) -> None:
    """Write a small parallel corpus, labelled lines and images by arithmetic, without a seed."""
    from PIL import Image

    nouns = ["회의", "수업", "점심", "약속", "출장", "발표", "면접", "산책"]
    things = ["meeting", "class", "lunch", "promise", "trip", "talk", "interview", "walk"]
    days = ["월요일", "화요일", "수요일", "목요일", "금요일", "토요일", "일요일"]
    names = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    korean, english, rows = [], [], ["text\tlabel"]
    for i in range(160):
        noun, day, hour = i % 8, (i // 3) % 7, i % 12 + 1
        korean.append(f"{days[day]} {hour}시에 {nouns[noun]}{'이' if i % 2 else '가'} 있어요.")
        english.append(f"There is a {things[noun]} at {hour} o'clock on {names[day]}.")
        rows.append(f"{korean[-1]}\t{'weekend' if day > 4 else 'weekday'}")
    for name, lines in (("train.ko", korean), ("train.en", english), ("train.tsv", rows)):
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    for c, name in enumerate(("blue", "green", "red")):
        (folder / "images" / name).mkdir(parents=True)
        for i in range(8):
            pixels = bytes((40 + 170 * (p % 3 == c) + 7 * i + p % 11) % 256 for p in range(192))
            Image.frombytes("RGB", (8, 8), pixels).save(folder / "images" / name / f"{i}.png")


def train_all(folder: Path) -> None:
    """Train every recorded run below `folder`, in this process, with one thread."""
    torch.set_num_threads(1)
    write_data(folder)
    for name, arguments in runs(folder).items():
        command = ["train", *arguments, *STEPS, "--run", str(folder / name)]
        if name == "resumed":
            assert main([*command, "train.steps=4"]) == 0
            command.append("--accept-changes")
        assert main(command) == 0, name


def environment() -> str:
    """Name what the last bits of a training depend on besides the code."""
    info = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*:\s*(.*)", info.read_text()) if info.exists() else None
    processor = model[1] if model else platform.processor()
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {processor}"


def read_weights(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the digest, the number of values and the mean size of each run's final weights."""
    weights = {}
    for name in runs(folder):
        newest = max((folder / name).glob("checkpoints/step-*"))
        tensors = load_file(newest / "model.safetensors")
        digest = hashlib.sha256()
        for key in sorted(tensors):
            digest.update(
                key.encode() + tensors[key].contiguous().view(torch.uint8).numpy().tobytes()
            )
        sizes = torch.stack([tensor.double().abs().mean() for tensor in tensors.values()])
        weights[name] = {
            "sha256": digest.hexdigest(),
            "values": sum(tensor.numel() for tensor in tensors.values()),
            "mean": round(float(sizes.mean()), 6),
        }
    return weights


def read_options(command: Any) -> dict[str, Any]:
    """Return names and defaults of all options of a command and of those below it."""
    if subcommands := getattr(command, "commands", None):
        return {name: read_options(sub) for name, sub in sorted(subcommands.items())}
    return {
        param.name: {
            "opts": sorted([*param.opts, *param.secondary_opts]),
            "default": str(param.default),
            "required": param.required,
            "multiple": param.nargs == -1 or getattr(param, "multiple", False),
        }
        for param in command.params
    }  # fmt: skip


def without_prose(value: Any, schemas: dict[str, Any] | None = None) -> Any:
    """Drop titles, descriptions and messages; replace references to schemas by the schemas."""
    if isinstance(value, dict):
        if schemas is not None and "$ref" in value:
            return without_prose(schemas[value["$ref"].rsplit("/", 1)[1]], schemas)
        return {
            k: without_prose(v, schemas)
            for k, v in value.items()
            if not (k in PROSE and isinstance(v, str)) and k not in VARYING
        }
    if isinstance(value, list):
        return [without_prose(item, schemas) for item in value]
    return value


def recorded_requests(folder: Path) -> list[tuple[str, str, Any]]:
    """Return method, path and body of the recorded requests."""
    text = "월요일 3시에 회의가 있어요."
    image = (folder / "images" / "red" / "0.png").read_bytes()
    look, html = {"text": text, "format": "json"}, {"format": "html"}
    return [
        ("GET", "/health", None),
        ("GET", "/health/live", None),
        ("GET", "/languages", None),
        ("GET", "/frontend/settings", None),
        ("GET", "/v1/models", None),
        ("GET", "/nothing", None),
        ("DELETE", "/translate", None),
        ("POST", "/translate", {"q": text, "source": "ko", "target": "en"}),
        ("POST", "/translate", {"q": [text, "수업"], "source": "auto", "target": "en"}),
        ("POST", "/translate", {"q": f"<p>{text}", "source": "ko", "target": "en", **html}),
        ("POST", "/translate", {"q": text, "source": "ko", "target": "en", "alternatives": 2}),
        ("POST", "/translate", {"q": text, "source": "xx", "target": "en"}),
        ("POST", "/translate", {"q": text}),
        ("POST", "/detect", {"q": text}),
        ("POST", "/v1/translate", {"text": text, "n_best": 2, "beam": 3, "tokens": True}),
        ("POST", "/v1/translate", {"text": [text, ""], "alignment": True, "max_length": 5}),
        ("POST", "/v1/translate", {"text": text, "beam": 0}),
        ("POST", "/v1/translate", {"text": text, "bean": 3}),
        ("POST", "/v1/translate", {"text": text, "model": "unknown"}),
        ("POST", "/v1/attention", look),
        ("POST", "/v1/attention", {**look, "model": "bert"}),
        ("POST", "/v1/attention", {**look, "kind": "cross", "layer": 9}),
        ("POST", "/v1/attention", image),
        ("POST", "/v1/steps", {"text": text, "top": 2, "max_tokens": 4}),
        ("POST", "/v1/beam", {"text": text, "beam": 2, "max_length": 4}),
        ("POST", "/v1/generate", {"prompt": text, "max_tokens": 5, "seed": 1, "stream": False}),
        ("POST", "/v1/generate", {"prompt": text, "max_tokens": 3, "greedy": True, "stream": True}),
        ("POST", "/v1/fill", {"text": "월요일 3시에 [MASK] 있어요.", "top": 2}),
        ("POST", "/v1/fill", {"text": text}),
        ("POST", "/v1/classify", {"text": [text, "일요일"], "top": 2}),
        ("POST", "/v1/classify", image),
        ("POST", "/v1/classify", b"\x89PNG not an image"),
    ]  # fmt: skip


def ask(address: str, method: str, path: str, body: Any) -> tuple[int, str, bytes]:
    """Send one request; return its status, content type and body."""
    data, kind = body, "image/png"
    if not isinstance(body, bytes):
        data, kind = body and json.dumps(body), "application/json"
    headers = {"Content-Type": kind}
    response = requests.request(method, address + path, data=data, headers=headers, timeout=60)
    return response.status_code, response.headers["Content-Type"], response.content


def _shortened(value: Any) -> Any:
    """Replace long lists by their digest, so that the file stays readable."""
    if isinstance(value, dict):
        return {k: _shortened(v) for k, v in value.items()}
    if isinstance(value, list):
        if len(text := json.dumps(value)) > 2000:
            return {"length": len(value), "sha256": hashlib.sha256(text.encode()).hexdigest()}
        return [_shortened(item) for item in value]
    return value


def read_http(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the schema and the answers to all requests, without prose."""
    models = [folder / name for name in ("transformer", "gpt", "bert", "classifier", "vit")]
    with started(*models, "--threads", "1", "--engine", "torch") as server:
        schema = json.loads(ask(server.url, "GET", "/openapi.json", None)[2])
        answers = {}
        for method, path, body in recorded_requests(folder):
            status, kind, raw = ask(server.url, method, path, body)
            text = re.sub(r', "seconds": [\d.]+', "", raw.decode("utf-8", "replace"))
            content = _shortened(without_prose(json.loads(raw) if "json" in kind else text))
            key = f"{len(answers):02} {method} {path}"
            answers[key] = {"status": status, "type": kind, "body": content}
    schemas = schema["components"]["schemas"]
    operations = {
        f"{method.upper()} {path}": without_prose(operation, schemas)
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
    }
    return operations, answers


def record(folder: Path) -> dict[str, Any]:
    """Train all runs and return every recording by its file name."""
    train_all(folder)
    schema, answers = read_http(folder)
    return {
        "weights": {"environment": environment(), **read_weights(folder)},
        "options": read_options(program()),
        "openapi": schema,
        "http": answers,
    }


def update(names: Sequence[str] = ("weights", "options", "openapi", "http")) -> None:
    """Write the named recordings; that of the options needs no training."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        only_options = list(names) == ["options"]
        values = {"options": read_options(program())} if only_options else record(Path(folder))
        for name in names:
            (FOLDER / f"{name}.json").write_text(as_lines(values[name]), encoding="utf-8")


def as_lines(values: dict[str, Any]) -> str:
    """Return JSON with one line per entry, so that a difference names what differs."""
    rows = [
        f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False, sort_keys=True)}"
        for name, value in values.items()
    ]
    return "{\n" + ",\n".join(rows) + "\n}\n"


if __name__ == "__main__":
    update(*([sys.argv[1:]] if sys.argv[1:] else []))
