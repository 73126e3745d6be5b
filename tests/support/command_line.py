"""Call the command line as a shell does."""

import io

import pytest

from polyhead.cli import main as program


@pytest.fixture
def run(capfdbinary, monkeypatch):
    """Return a function from arguments and standard input to exit code, stdout and stderr."""

    def call(*arguments, stdin=""):
        data = stdin if isinstance(stdin, bytes) else stdin.encode()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
        capfdbinary.readouterr()
        code = program.main([str(argument) for argument in arguments])
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return call


@pytest.fixture
def fail(run, monkeypatch):
    """Return a function that expects a failed command; it returns exit code, error code and line.

    Nothing may be printed on stdout, and on stderr only stages ("reading the data …") before it.
    """
    codes = []
    report = program.report
    monkeypatch.setattr(program, "report", lambda e, code: codes.append(e.code) or report(e, code))

    def call(*arguments, stdin="", code=None, error=None, mention=""):
        exit_code, out, err = run(*arguments, stdin=stdin)
        *stages, line = err.splitlines()
        assert out == ""
        assert line.startswith("polyhead: ")
        assert all(stage.endswith("…") for stage in stages), err
        assert code in (None, exit_code)
        assert error in (None, codes[-1])
        assert mention in line
        return exit_code, codes[-1], line

    return call
