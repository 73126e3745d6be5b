"""Count the functions, files and packages of polyhead that everyday commands enter.

    python tools/walk.py                     # print the figures
    python tools/walk.py --check             # exit with 1 if a limit is exceeded
    python tools/walk.py --list translate    # also print the functions of one walk

Every walk is a tiny run through the command line, counted with `sys.setprofile` in all threads. A
switch is a newly entered function in another file, or in another package, than the one entered
before it. Special methods (`__init__`), lambdas, comprehensions and imports are not counted.
"""

import contextlib
import inspect
import io
import os
import pkgutil
import signal
import socket
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType

import polyhead
from polyhead.cli import main as cli

SOURCE = f"{Path(polyhead.__file__).resolve().parent}{os.sep}"
LIMITS = {  # functions, files: lower them with every step, raise one in a commit of its own
    "train": (383, 70), "translate": (118, 22), "POST /translate": (87, 20),
    "generate": (148, 34), "attention": (201, 47), "compare": (591, 98),
}  # fmt: skip
SHORT = ("text.vocab=300", "train.max_tokens=200", "train.bleu_sentences=2")
STEPS = ("train.steps=2", "train.save_every=2", "train.validate_every=2")
STACK = ("n_layers=1", "d_model=16", "n_heads=2", "d_ff=16")
TRAIN = (*SHORT, *STEPS, *(f"model.stack.{size}" for size in STACK))
LINE = "a b c d"


class Recorder:
    """Functions of polyhead entered while `walk` is active, in order of first entry."""

    active = False
    entered: dict[CodeType, None]

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if self.active and event == "call" and code.co_filename.startswith(SOURCE):
            is_function = code.co_flags & inspect.CO_OPTIMIZED  # and not a class body
            if is_function and not code.co_name.startswith(("<", "__")):
                self.entered.setdefault(code)

    @contextlib.contextmanager
    def walk(self) -> Iterator[None]:
        """Forget earlier functions and record until the end of the block."""
        self.entered, self.active = {}, True
        yield
        self.active = False

    def figures(self) -> tuple[int, ...]:
        """Return functions, files, packages, switches of files and switches of packages."""
        files = [code.co_filename for code in self.entered]
        packages = [name.removeprefix(SOURCE).split(os.sep)[0] for name in files]
        switches = [sum(a != b for a, b in pairwise(names)) for names in (files, packages)]
        return len(files), len(set(files)), len(set(packages)), *switches


def run(arguments: list[str], stdin: str = "") -> None:
    """Call the command line in this process with this standard input; discard its output."""
    keyboard, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    with (
        tempfile.TemporaryFile("w+") as log,
        contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")),
        contextlib.redirect_stderr(log),
    ):
        code = cli.main(arguments)
        log.seek(0)
        assert code == 0, f"polyhead {' '.join(arguments)}: exit code {code}\n{log.read()}"
    sys.stdin = keyboard


def post(model: str, recorder: Recorder) -> None:
    """Serve a model in this process and record one request to /translate."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    body = f"q={LINE.replace(' ', '+')}&source=auto&target=en".encode()  # a form, as curl -d

    def wait_for(function: str) -> None:
        for _ in range(6000):
            if function in {code.co_name for code in list(recorder.entered)}:
                break
            time.sleep(0.01)

    def send(path: str, data: bytes | None = None) -> None:
        with recorder.walk():
            urllib.request.urlopen(f"{address}{path}", data, timeout=60).close()
            wait_for("connection_lost")  # the server notices later that the client is gone

    def request() -> None:
        with recorder.walk():
            wait_for("say")  # the server announces itself after it has started to answer
        send("/health")
        send("/translate", body)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=request).start()
    run(["serve", model, "--port", address.rpartition(":")[2], "--threads", "1"])


def walks(recorder: Recorder, folder: Path) -> Iterator[str]:
    """Do every walk; yield its name while the recorder holds its functions."""
    source, target, model, writer, table = (
        str(folder / name) for name in ("train.ko", "train.en", "run", "writer", "table")
    )
    for path, letters in ((source, "abcdefghij"), (target, "jihgfedcba")):
        rows = (" ".join(letters[(i + k) % 10] for k in range(2 + i % 4)) for i in range(60))
        Path(path).write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    parallel = ["--source", source, "--target", target]
    run(["train", "gpt-tiny", *TRAIN, "--text", source, "--run", writer])
    systems = ["--steps", "4", "--systems", "lstm,transformer", "--run", table]
    for name, arguments in {
        "train": [*TRAIN, *parallel, "--run", model],
        "translate": [model],
        "POST /translate": [],
        "generate": [writer, "--prompt", LINE, "--max-tokens", "4"],
        "attention": [model, LINE, "--output", f"{model}/page.html"],
        "compare": [*SHORT, *parallel, *systems],
    }.items():
        if name == "POST /translate":
            post(model, recorder)
        else:
            with recorder.walk():
                run([name, *arguments], stdin=f"{LINE}\n" if name == "translate" else "")
        yield name


def main() -> int:
    """Print the figures of every walk; return 1 if limits are checked and exceeded."""
    listed = sys.argv[sys.argv.index("--list") + 1] if "--list" in sys.argv else None
    for module in pkgutil.walk_packages(polyhead.__path__, "polyhead."):
        if module.name != "polyhead.__main__":
            import_module(module.name)
    recorder, exceeded = Recorder(), []
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    print("walk              functions  files  packages  file switches  package switches")
    with tempfile.TemporaryDirectory() as folder:
        for name in walks(recorder, Path(folder)):
            figures = recorder.figures()
            widths = zip(figures, (11, 7, 10, 15, 18), strict=True)
            print(f"{name:16}" + "".join(f"{count:{width}}" for count, width in widths))
            if figures[0] > LIMITS[name][0] or figures[1] > LIMITS[name][1]:
                exceeded.append("{}: at most {} functions in {} files".format(name, *LIMITS[name]))
            for code in recorder.entered if name == listed else ():
                print(f"  {code.co_filename.removeprefix(SOURCE)}: {code.co_qualname}")
    print("\n".join(exceeded), end="\n" if exceeded else "", file=sys.stderr)
    return int("--check" in sys.argv and bool(exceeded))


if __name__ == "__main__":
    sys.exit(main())
