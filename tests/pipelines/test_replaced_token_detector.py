"""ReplacedTokenDetector: probabilities of transformers' ELECTRA, words, refusals, attention."""

from dataclasses import replace

import pytest
import torch
import transformers
from expected_errors import raises
from saved_models import build_electra, save_model

import polyhead
from polyhead.convert.model_export import export_model
from polyhead.errors import CheckpointError, DataError
from polyhead.special_tokens import BOS, EOS
from polyhead.viz.capture import attention_view

TEXT = "오늘은  비가 와요."


@pytest.fixture(scope="module", params=["embeddings", "none"])
def folder(request, tmp_path_factory):
    saved = build_electra([TEXT, "내일은 서울에 가요."], request.param)
    return save_model(saved, tmp_path_factory.mktemp("electra") / "model")


@pytest.fixture(scope="module")
def detector(folder):
    return polyhead.load(folder, device="cpu")


def test_the_probabilities_are_those_of_transformers(folder, detector, tmp_path):
    export_model(folder, tmp_path / "theirs")
    kind = transformers.ElectraForPreTraining
    place = tmp_path / "theirs" / "discriminator"
    theirs = kind.from_pretrained(place, attn_implementation="eager").eval()
    ids = [BOS, *detector.tokenizer.encode(TEXT)[:-1], EOS]
    with torch.inference_mode():
        outputs = theirs(torch.tensor([ids]), output_attentions=True)
    found = detector.detect(TEXT)
    expected = outputs.logits[0, 1:-1].sigmoid().tolist()
    assert [token.probability for token in found.tokens] == pytest.approx(expected, abs=1e-5)
    assert max(expected) - min(expected) > 0.01
    maps = attention_view(detector, TEXT).maps
    for one, weights in zip(maps, outputs.attentions, strict=True):
        torch.testing.assert_close(torch.tensor(one.weights), weights[0], atol=1e-5, rtol=1e-4)


def test_a_word_has_the_largest_probability_of_its_tokens(detector):
    found = detector.detect(TEXT)
    assert [word.text for word in found.words] == ["오늘은", "비가", "와요."]
    assert "".join(token.text for token in found.tokens) == "오늘은 비가 와요."
    by_word = {}
    for token in found.tokens:
        word = len(by_word) + (token.text.startswith(" ") or not by_word) - 1
        by_word.setdefault(word, []).append(token.probability)
    assert [word.probability for word in found.words] == [max(p) for p in by_word.values()]
    assert any(max(p) > min(p) for p in by_word.values())


def test_the_discriminator_reads_a_complete_text_and_the_generator_one_with_masks(detector):
    for text, n_heads in ((TEXT, 2), ("오늘은 [MASK] 와요.", 1)):
        view = attention_view(detector, text)
        assert {one.weights.shape[0] for one in view.maps} == {n_heads}
    assert detector.fill("오늘은 [MASK] 와요.", 2).blanks[0]


def test_other_texts_and_models_are_refused(detector):
    for text, code in (
        ("오늘은 [MASK]", "mask_in_text"),
        (" ", "empty_text"),
        ("가 " * 30, "text_too_long"),
    ):
        with raises(DataError, code):
            detector.detect(text)
    bert = replace(detector.saved, family="bert", model=detector.model.generator)
    with raises(CheckpointError, "wrong_task", "polyhead fill"):
        polyhead.ReplacedTokenDetector.from_saved(bert, "bert", detector.device)
