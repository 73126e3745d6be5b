"""`polyhead generate`, and the other commands for language models."""

import io
import json
import sys

import pytest
from saved_models import save_model
from tiny import write_corpus
from tiny_gpt import SMALL, train_gpt

from polyhead.cli.main import main
from polyhead.decoding.options import DecodeConfig
from polyhead.pipelines.text_generator import TextGenerator

CPU = ("--device", "cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return train_gpt(tmp_path_factory.mktemp("writer"), "train.steps=80")


def test_the_prompt_and_its_continuation_are_printed(run, model):
    words = ("generate", model, "--prompt", "오늘은", "--greedy", "--max-tokens", 9, *CPU)
    generator = TextGenerator.from_dir(model, device="cpu")
    expected = generator.generate("오늘은", options=DecodeConfig(max_length=9))
    assert run(*words) == (0, f"오늘은{expected}\n", "")


def test_sampling_by_torch_converts_nothing(run, model, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = ("generate", model, "--prompt", "오늘은", "--max-tokens", 2)
    for options in ((), ("--top-p", 0.9, "--temperature", 2)):
        code, _, err = run(*words, *options)
        assert (code, err) == (0, "")
    assert not (tmp_path / "cache").exists()
    assert run(*words, "--greedy")[0] == 0
    assert (tmp_path / "cache").exists()


def test_the_prompt_may_be_piped_or_empty(run, model):
    words = ("generate", model, "--seed", 3, "--max-tokens", 9, *CPU)
    assert run(*words, stdin="오늘은\n") == run(*words, "--prompt", "오늘은")
    code, out, _ = run(*words)
    assert (code, out[:1].isspace()) == (0, False)


def test_a_piped_prompt_in_another_encoding_needs_its_name(run, fail, model):
    data = "오늘은 비가 와요".encode("cp949")
    fail("generate", model, *CPU, stdin=data, code=4, mention="--encoding cp949")
    two = ("generate", model, "--greedy", "--max-tokens", 4, *CPU)
    named = run(*two, "--encoding", "cp949", stdin="오늘은 비가".encode("cp949"))
    assert named == run(*two, "--prompt", "오늘은 비가")
    assert run(*two, stdin="오늘은\r\n비가") == run(*two, "--prompt", "오늘은\n비가")


def test_samples_differ_and_each_can_be_repeated_by_its_seed(run, model):
    words = ("generate", model, "--prompt", "오늘은", "--max-tokens", 12, "--jsonl", *CPU)
    code, out, _ = run(*words, "--n", 3, "--seed", 5)
    samples = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [sample["seed"] for sample in samples] == [5, 6, 7]
    assert len({sample["text"] for sample in samples}) > 1
    assert json.loads(run(*words, "--seed", 6)[1]) == samples[1]
    found = json.loads(run(*words, "--seed", 6, "--tokens", "--top-k", 9)[1])
    generator = TextGenerator.from_dir(model, device="cpu")
    options = generator.defaults.with_options({"max_length": 12, "sample": True, "top_k": 9})
    expected = generator.generate_tokens("오늘은", options=options, seed=6)
    assert found.pop("tokens") == [vars(token) for token in expected.tokens]
    assert found == {"prompt": "오늘은", "text": expected.text, "seed": 6}


def test_a_model_with_outputs_that_are_not_finite_is_one_error(fail, model, tmp_path):
    saved = TextGenerator.from_dir(model, device="cpu").saved
    for parameter in saved.model.parameters():
        parameter.data *= 1e25  # finite, unlike the sums computed with it
    broken = save_model(saved, tmp_path / "broken")
    for words in (("generate", broken, "--jsonl"), ("generate", broken, "--jsonl", "--greedy")):
        fail(*words, "--prompt", "오늘은", *CPU, code=5, error="not_finite")
    (tmp_path / "text.txt").write_text("오늘은\n", encoding="utf-8")
    fail("evaluate", broken, "--text", tmp_path / "text.txt", *CPU, code=5, error="not_finite")


def test_the_text_ends_before_a_stop(run, model):
    words = ("generate", model, "--prompt", "오늘은", "--max-tokens", 300, "--seed", 1, *CPU)
    whole = run(*words)[1].removeprefix("오늘은").removesuffix("\n")
    middle = whole[len(whole) // 2]
    assert "\n" in whole
    for option, text in ((middle, middle), ("\\n", "\n")):
        assert run(*words, "--stop", option)[1] == f"오늘은{whole.partition(text)[0]}\n"


def test_a_prompt_longer_than_the_context_is_warned_about(run, model):
    code, _, err = run("generate", model, "--prompt", "오늘은 " * 30, "--max-tokens", 2, *CPU)
    assert code == 0
    assert "16" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "error", "mention"),
    [
        (("--greedy", "--top-k", 3), "conflicting_options", "--top-k"),
        (("--greedy", "--n", 2), "conflicting_options", "--n 2"),
        (("--tokens",), "conflicting_options", "--jsonl"),
        (("--n", 0), "out_of_range", "--n 0"),
        (("--max-tokens", 0), "out_of_range", "--max-tokens 0"),
        (("--temperature", 0), None, "temperature = 0.0"),
        (("--temperature", "nan"), None, "temperature = nan"),
        (("--temperature", "inf"), None, "temperature = inf"),
        (("--temperature", "1e-320"), None, "temperature = 1e-320"),
        (("--seed", 2**63), None, "seed = 9223372036854775808"),
        (("--seed", -1), None, "seed = -1"),
        (("--stop", "\udcb0"), "not_utf8", "--stop"),
        (("--prompt", "\udcb0"), "not_utf8", "--prompt"),
        (("--top-p", 2), None, "top_p = 2.0"),
        (("--top-k", -1), "out_of_range", "--top-k -1"),
        (("--stop", ""), "out_of_range", "--stop"),
    ],
)
def test_invalid_options_are_rejected(fail, model, options, error, mention):
    words = ("generate", model, "--prompt", "a", *options, *CPU)
    fail(*words, code=2, error=error, mention=mention)


def test_training_prints_the_command_that_uses_the_model(run, tmp_path):
    text = write_corpus(tmp_path)["source"][0]
    files = ("--text", text, "--valid-text", text, "--run", tmp_path / "a run")
    code, _, err = run("train", "gpt-tiny", *SMALL, "train.steps=2", *files)
    assert code == 0
    assert f"use it with: polyhead generate '{tmp_path / 'a run'}'\n" in err
    assert "bits_per_character" in err
    assert "held out" not in err


def test_the_text_is_flushed_piece_by_piece(model, monkeypatch):
    written = []

    class Recorder(io.BytesIO):
        def write(self, data):
            written.append(bytes(data))
            return len(data)

    out = io.TextIOWrapper(Recorder(), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", out)
    words = ["generate", str(model), "--prompt", "오늘은", "--max-tokens", "12", "--greedy", *CPU]
    assert main(words) == 0
    assert len(written) > 4
    b"".join(written).decode()
