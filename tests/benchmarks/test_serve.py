"""The server's benchmark counts what came back, and keeps its clock."""

import sys

import pytest
import serve


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_whole_benchmark_runs_with_a_tiny_model(tiny_run, tmp_path, capsys):
    source = tmp_path / "some.ko"
    source.write_text("내일 회의가 있어요.\n오늘은 금요일입니다.\n", encoding="utf-8")
    words = ["--quick", "--model", str(tiny_run), "--source", str(source), "--beam", "1"]
    assert serve.main(words) == 0
    out = capsys.readouterr().out
    for part in ("library, one by one", "float32, 64 clients", "int8, 70% of the capacity",
                 " of that of torch, 0.33: ", "only 200, 429, 503: kept",
                 "memory after 40 and 400 requests"):  # fmt: skip
        assert part in out
