"""Replacement of unknown words, and fine-tuning of recurrent translators from end to end."""

import json
from pathlib import Path

import pytest
import torch
from expected_errors import raises
from tiny import write_corpus

import polyhead
from polyhead.checkpoint import model_dir as model_folder
from polyhead.data.bilingual_dictionary import FILE
from polyhead.decoding.options import DecodeConfig, Output
from polyhead.errors import ConfigError
from polyhead.models.baselines.seq2seq import Seq2Seq, Seq2SeqConfig
from polyhead.pipelines.torch_backend import find_dictionary, replace_unknown, spell
from polyhead.special_tokens import UNK
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.storage import train_tokenizers
from polyhead.training.config import read_run, recipe_names
from polyhead.training.trainer import train

WORDS = TextConfig(kind="words", joint=False)
TINY = (
    "model.d_model=16", "model.n_layers=2", "train.steps=8", "train.max_tokens=400",
    "train.validate_every=4", "train.save_every=4", "train.log_every=2", "train.bleu_sentences=4",
    "train.schedule.warmup=4", "data.hold_out=20",
)  # fmt: skip
MINE = ("lstm", "gru", "gru-attention", "deep-att", "gnmt")


@pytest.fixture(scope="module")
def tokenizers():
    return train_tokenizers(["wir sehen Berlin im Regen"], ["we see the rain in town"], WORDS)


def test_an_unknown_word_is_replaced_by_its_most_attended_source_word(tokenizers):
    """Translated by the dictionary if it has the word, else copied; known words stay."""
    we, see = tokenizers.target.encode("we see")[:2]
    ids = [we, see, UNK, UNK]
    weights = torch.tensor([
        [0.9, 0.1, 0.0, 0.0],
        [0.1, 0.9, 0.0, 0.0],
        [0.0, 0.1, 0.3, 0.6],  # the end of the source is no word
        [0.5, 0.4, 0.1, 0.0],
    ])  # fmt: skip
    words = ["Wir", "sehen", "Aachen"]
    assert tokenizers.target.decode(ids) == "we see ⁇ ⁇"
    found = spell(tokenizers, ids, words, weights, {"Wir": "us", "Berlin": "Berlin"})
    assert found == "we see Aachen us"


def test_a_model_without_cross_attention_is_refused(tokenizers):
    model = Seq2Seq(Seq2SeqConfig(9, 9, d_model=4)).eval()
    with raises(ConfigError, "no_cross_attention"):
        replace_unknown([model], tokenizers, ["wir"], [[Output([UNK], 0.0, 0.0, False, [0.0])]], {})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A GNMT with a small vocabulary of words."""
    folder = tmp_path_factory.mktemp("words")
    files = write_corpus(folder)
    words = ("model.family=gnmt", 'text.kind="words"', "text.vocab=12", "text.joint=false")
    run = read_run("multi30k-de-en-gnmt", (*TINY, *words), files)
    train(run, folder / "run")
    return folder, files


def test_training_on_words_saves_a_dictionary_that_translation_uses(trained):
    folder, files = trained
    assert (folder / "run" / FILE).read_text(encoding="utf-8").count("\t") > 5
    translator = polyhead.load(folder / "run")
    with torch.no_grad():
        translator.model.to_logits.bias[UNK] += 5.0
    assert len(find_dictionary(folder / "run" / "best")) > 5
    lines = Path(files["source"][0]).read_text(encoding="utf-8").splitlines()[:6]
    plain = translator.n_best(lines, options=DecodeConfig(beam=2, max_length=8))
    options = DecodeConfig(beam=2, max_length=8, replace_unknown=True, coverage=0.2)
    replaced = translator.n_best(lines, options=options)
    assert any("⁇" in best[0].text for best in plain)
    assert not any("⁇" in best[0].text for best in replaced)
    own = folder / "own.tsv"
    words = {word for line in lines for word in line.split()}
    own.write_text("".join(f"{word}\tX\n" for word in sorted(words)), encoding="utf-8")
    replaced = translator.with_dictionary(own).n_best(lines, options=options)
    assert any("X" in best[0].text.split() for best in replaced)


def test_fine_tuning_by_reward_starts_from_the_weights(trained):
    folder, files = trained
    more = ("model.family=gnmt", f'train.init="{folder / "run"}"', "train.reward.samples=2",
            "train.steps=3")  # fmt: skip
    run = read_run("multi30k-de-en-gnmt", (*TINY, *more), files)
    result = train(run, folder / "rewarded")
    assert result.step == 3
    before, after = (model_folder.load_model(folder / name) for name in ("run", "rewarded/last"))
    assert after.config == before.config
    assert len(after.tokenizers.target) == len(before.tokenizers.target) == 12
    moved = [
        float((a - b).detach().abs().max())
        for a, b in zip(before.model.parameters(), after.model.parameters(), strict=True)
    ]
    assert 0 < max(moved) < 0.05  # changed, but not much
    log = (folder / "rewarded" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert all(json.loads(line) for line in log)


def test_the_initial_model_stays_the_best_if_training_makes_it_worse(trained):
    folder, files = trained
    worse = ("model.family=gnmt", f'train.init="{folder / "run"}"', "train.steps=3", "train.keep=1",
             "train.save_every=1", "train.validate_every=1", "train.schedule.kind=constant",
             "train.schedule.rate=1.0", "train.schedule.warmup=1")  # fmt: skip
    result = train(read_run("multi30k-de-en-gnmt", (*TINY, *worse), files), folder / "worse")
    assert (result.step, result.best.resolve().name) == (3, "step-00000000")
    before, best, last = (
        list(model_folder.load_model(folder / name).model.parameters())
        for name in ("run", "worse/best", "worse/last")
    )
    assert all(map(torch.equal, before, best))
    assert not all(map(torch.equal, before, last))


@pytest.mark.parametrize("name", MINE)
def test_every_recipe_trains_and_translates(name, tmp_path):
    recipe = f"multi30k-de-en-{name}"
    assert recipe in recipe_names()
    files = write_corpus(tmp_path)
    train(read_run(recipe, (*TINY, "text.vocab=900", "train.steps=2"), files), tmp_path / "run")
    (translation,) = polyhead.load(tmp_path / "run").translate(["내일 회의가 있어요."])
    assert isinstance(translation, str)
