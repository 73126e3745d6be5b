"""A sample of the mutants of every kind, and that failures are counted."""

import os
import signal

import fuzz
import pytest
from fuzz_mutants import KINDS, Kind, Mutant

SAMPLE = {"tokenizer.json": 25, "sentencepiece": 60, "config.json": 12, "safetensors": 16,
          "huggingface": 3, "image": 30, "idx": 8, "table": 60,
          "questions": 60, "arrow": 12, "parquet": 12, "xlsx": 12}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_no_mutant_crashes_hangs_or_fills_memory(kind):
    if kind == "huggingface":
        pytest.importorskip("transformers")
    messages = []
    tally = fuzz.fuzz(kind, SAMPLE[kind], seed=5, tell=messages.append)
    assert messages == []
    assert tally.opened + sum(tally.codes.values()) == SAMPLE[kind]
    assert sum(tally.codes.values()) > 0


def test_every_kind_of_failure_is_counted(monkeypatch):
    def crash():
        os.kill(os.getpid(), signal.SIGKILL)

    def fill():
        bytearray(400 * 2**20)

    def fail():
        raise KeyError("a bug")

    actions = [lambda: None, crash, fill, fail, lambda: None]

    def make(_):
        numbered = {fuzz.Random(f"bad 1 {i}").random(): a for i, a in enumerate(actions)}
        return lambda rng: Mutant(1, numbered[rng.random()])

    monkeypatch.setitem(KINDS, "bad", Kind(5, make))
    tally = fuzz.fuzz("bad", 5, tell=lambda _: None)
    assert tally.opened == 3
    assert [outcome.number for outcome in tally.failures] == [1, 2, 3]
