"""Exports to CTranslate2 and Argos Translate, used by these libraries and SentencePiece alone."""

import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import sentencepiece
import torch
from expected_errors import raises
from foreign_models import shaken

from polyhead.checkpoint.model_dir import SavedModel
from polyhead.convert import ctranslate2_target as target
from polyhead.convert.target_types import Example
from polyhead.decoding.batch import decode_all
from polyhead.decoding.options import DecodeConfig
from polyhead.errors import CheckpointError
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.bert import BERTConfig
from polyhead.models.gpt import GPTConfig
from polyhead.models.registry import FAMILIES
from polyhead.models.text_classifier import ClassifierConfig
from polyhead.models.transformer import TransformerConfig
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.storage import train_tokenizers

ctranslate2 = pytest.importorskip("ctranslate2")
SOURCES = ["나는 학교에 갔다 <b>", "a < b ▁ c", "너는 집에 왔다"]
TARGETS = ["I went to school", "a < b ▁ c", "you came home"]
STACK = StackConfig(n_layers=1, d_model=16, n_heads=2, d_ff=24)
ABOUT = {"languages": ["ko", "en"], "classes": ["no", "yes", "maybe"]}


def make(family, text=None, **config):
    """Return a model, never trained, with its tokenizers."""
    torch.manual_seed(1)
    pair = train_tokenizers(SOURCES, TARGETS, text or TextConfig(vocab=330))
    n, n_target = len(pair.source), len(pair.target)
    if family == "transformer":
        tie = "all" if pair.source is pair.target else "target"
        sizes = TransformerConfig(n, n_target, tie=tie, stack=STACK, output_bias=True)
    elif family == "gpt":
        sizes = GPTConfig(n, 40, stack=STACK)
    else:
        sizes = BERTConfig(n + 1, 40, stack=STACK)
        sizes = ClassifierConfig(3, encoder=sizes) if family == "classifier" else sizes
    sizes = replace(sizes, **config)
    model = shaken(FAMILIES[family].model(sizes), 0.1)
    if family == "transformer":
        with torch.no_grad():
            model.to_logits.bias[:2] = -1e4  # as there
    return SavedModel(family, sizes, model, pair, ABOUT)


def best(saved, lines, beam=4):
    sources = [saved.tokenizers.source.encode(line) for line in lines]
    options = DecodeConfig(beam, length_penalty=0.0, max_length=12, max_extra=12)
    outputs = decode_all(saved.model, sources, options, device=torch.device("cpu"))
    return [saved.tokenizers.target.decode(output[0].ids) for output in outputs]


def translated(translator, reader, writer, lines, beam=4):
    """Translate raw text as another program would."""
    tokens = [reader.encode(line, out_type=str) for line in lines]
    results = translator.translate_batch(
        tokens, beam_size=beam, length_penalty=0, min_decoding_length=0, max_decoding_length=12
    )
    return [writer.decode(result.hypotheses[0]) for result in results]


@pytest.mark.parametrize("joint", [True, False])
def test_translators_read_and_write_raw_text(tmp_path, joint):
    saved = make("transformer", TextConfig(vocab=330, joint=joint))
    written = target.write(saved, tmp_path, "float32")
    names = ("sentencepiece.model",) * 2 if joint else ("source.spm", "target.spm")
    assert all(name in written.tokenizer for name in names)
    assert bool(written.notes) != joint
    sides = [sentencepiece.SentencePieceProcessor(str(tmp_path / name)) for name in names]
    translator = ctranslate2.Translator(str(tmp_path))
    lines = [*SOURCES, "\u1112\u1161\u11ab 글", "x\ty"]  # decomposed Hangul, a tab
    ours = best(saved, lines)
    assert translated(translator, *sides, lines) == ours
    reader = target.open_model(saved, tmp_path, "float32")
    sources = [saved.tokenizers.source.encode(line) for line in lines]
    assert [saved.tokenizers.target.decode(ids) for ids in reader.search(sources, 4, 12)] == ours


def test_readers_return_log_probabilities(tmp_path):
    gpt = make("gpt")
    target.write(gpt, tmp_path, "float32")
    ids = gpt.tokenizers.source.encode(SOURCES[0])
    [log_p] = target.open_model(gpt, tmp_path, "").outputs([Example([2, *ids[:-1]], ids)])
    logits = gpt.model(torch.tensor([[2, *ids[:-1]]]))[0, :, 2:].log_softmax(-1)
    expected = logits[torch.arange(len(ids)), torch.tensor(ids) - 2]
    assert (log_p - expected).abs().max() < 1e-4


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_classifiers_are_completed_by_a_small_head(tmp_path, pooling):
    saved = make("classifier", pooling=pooling)
    assert "head.npz" in target.write(saved, tmp_path, "float32").notes[0]
    pieces = sentencepiece.SentencePieceProcessor(str(tmp_path / "sentencepiece.model"))
    tokens = ["<s>", *pieces.encode(SOURCES[0], out_type=str), "</s>"]
    output = ctranslate2.Encoder(str(tmp_path)).forward_batch([tokens])
    head = np.load(tmp_path / "head.npz")
    if pooling == "first":
        pooled = np.array(output.pooler_output)
    else:
        mean = np.array(output.last_hidden_state).mean(1)
        pooled = np.tanh(mean @ head["pool.1.weight"].T + head["pool.1.bias"])
    logits = pooled @ head["to_logits.weight"].T + head["to_logits.bias"]
    ids = torch.tensor([[1, *saved.tokenizers.source.encode(SOURCES[0])]])
    assert (torch.tensor(logits) - saved.model(ids)).abs().max() < 1e-4
    assert head["classes"].tolist() == ABOUT["classes"]
    [states] = target.open_model(saved, tmp_path, "").outputs([Example(ids[0].tolist(), [])])
    assert (states - saved.model.encoder(ids)[0]).abs().max() < 1e-4


def test_argos_packages_have_one_folder_that_translates(tmp_path):
    saved = make("transformer")
    target.write_argos(saved, tmp_path, "float32", "1.2")
    top = "translate-ko_en-1_2"
    with zipfile.ZipFile(tmp_path / f"{top}.argosmodel") as archive:
        assert {name.partition("/")[0] for name in archive.namelist()} == {top}
        archive.extractall(tmp_path)
    metadata = json.loads((tmp_path / top / "metadata.json").read_text())
    assert metadata.items() >= {
        "package_version": "1.2", "from_code": "ko", "from_name": "Korean", "to_code": "en",
        "to_name": "English",
    }.items()  # fmt: skip
    pieces = sentencepiece.SentencePieceProcessor(str(tmp_path / top / "sentencepiece.model"))
    translator = ctranslate2.Translator(str(tmp_path / top / "model"))
    assert translated(translator, pieces, pieces, SOURCES) == best(saved, SOURCES)
    reader = target.open_package(saved, tmp_path, "float32")
    sources = [saved.tokenizers.source.encode(line) for line in SOURCES]
    found = [saved.tokenizers.target.decode(ids) for ids in reader.search(sources, 4, 12)]
    assert found == best(saved, SOURCES)


def test_models_without_a_place_there_are_refused(tmp_path):
    saved = make("transformer")
    local = replace(saved.config, stack=replace(STACK, attention="local"))
    with raises(CheckpointError, "not_exportable"):
        target.architecture("transformer", local, None)
    for family, text in (("gpt", None), ("transformer", TextConfig(joint=False))):
        with raises(CheckpointError, "not_exportable", "Argos"):
            target.argos_architecture(family, make(family).config, text)
    assert target.argos_architecture("transformer", saved.config, TextConfig())
    with raises(CheckpointError, "not_exportable", "languages"):
        target.write_argos(replace(saved, about={}), tmp_path, "float32")
    with raises(CheckpointError, "not_exportable", "tokenizer"):
        target.write_argos(replace(saved, tokenizers=None), tmp_path, "float32")


def test_other_tokenizers_leave_ids_as_names(tmp_path):
    saved = make("transformer", TextConfig("characters", vocab=60))
    assert "not written" in target.write(saved, tmp_path, "float32").tokenizer
    sources = [saved.tokenizers.source.encode(line) for line in SOURCES]
    found = target.open_model(saved, tmp_path, "float32").search(sources, 4, 12)
    assert [saved.tokenizers.target.decode(ids) for ids in found] == best(saved, SOURCES)
