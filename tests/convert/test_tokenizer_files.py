"""Tokenizer files for other programs, read by sentencepiece, protobuf and transformers."""

import io
import subprocess
import sys
from functools import cache

import pytest
import sentencepiece
from expected_errors import raises
from sentencepiece import sentencepiece_model_pb2
from transformers import AutoTokenizer

from polyhead.convert import sentencepiece_file
from polyhead.convert.tokenizer_files import fast_tokenizer, sentencepiece_model, write_tokenizer
from polyhead.errors import CheckpointError
from polyhead.special_tokens import BOS, EOS
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.huggingface import HuggingFaceTokenizer
from polyhead.tokenizers.mask_tokens import encode_masked
from polyhead.tokenizers.sentencepiece import SentencePieceTokenizer
from polyhead.tokenizers.storage import TokenizerPair, train_tokenizers

SOURCE = [
    "두 남자가 요리를 하고 있다.",
    "오늘은 2026년 11월이다. <b>굵게</b> ▅ x < y",
    "나는 길을 간다",
] * 3
TARGET = [
    "Two men are cooking.",
    "It is November 2026. naïve <i>",
    "a <s>b</s> <s>c</s> <s>d</s>",
] * 3
KINDS = ("bpe", "unigram", "characters", "words")


@cache
def pair_of(kind, joint=True, **options):
    config = TextConfig(kind=kind, vocab=420, joint=joint, **options)
    return train_tokenizers(SOURCE, TARGET, config)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_the_wire_format_is_that_of_protobuf(kind):
    tokenizer = pair_of(kind).source
    theirs, ours = (sentencepiece_model_pb2.ModelProto() for _ in range(2))
    theirs.ParseFromString(tokenizer.model)
    fields = sentencepiece_file.read_message(tokenizer.model)
    assert sentencepiece_file.write_message(fields) == tokenizer.model
    assert [content for number, _, content in fields if number == 1] == [
        piece.SerializeToString() for piece in theirs.pieces
    ]
    ours.ParseFromString(sentencepiece_model(tokenizer))
    spec, back = ours.normalizer_spec, ours.denormalizer_spec
    assert (spec.add_dummy_prefix, spec.remove_extra_whitespaces, spec.escape_whitespaces) == (
        True, True, True,
    )  # fmt: skip
    assert (back.add_dummy_prefix, back.escape_whitespaces) == (False, False)
    assert ours.trainer_spec.unk_surface == "⁇"
    names = sentencepiece_file.piece_names(tokenizer)
    for piece, original, name in zip(ours.pieces, theirs.pieces, names, strict=True):
        assert (piece.piece, piece.score, piece.type) == (name, original.score, original.type)


def test_pieces_are_named_as_they_are_written():
    """Argos Translate joins pieces itself."""
    tokenizer = pair_of("bpe").source
    pieces = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model(tokenizer))
    shown = "".join(pieces.encode("x < y ▅ <b>", out_type=str)).replace("▁", " ")
    assert shown == " x < y ▅ <b>"
    assert pieces.decode(pieces.encode("▁ 요\u1105\u1175")) == "▁ 요리"


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_piece_never_gets_a_reserved_name(kind):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["x\ufdd2s> \ufdd2s>y \ufdd2s>", "a\ufdd2/s>"] * 20),
        model_writer=model, model_type=kind, vocab_size=290, byte_fallback=True, pad_id=0, bos_id=1,
        eos_id=2, unk_id=3, normalization_rule_name="identity", hard_vocab_limit=False,
        split_by_unicode_script=False, minloglevel=2,
    )  # fmt: skip
    tokenizer = SentencePieceTokenizer(model.getvalue(), TextConfig(kind=kind))
    assert "\ufdd2s>" in sentencepiece_file.piece_names(tokenizer)  # would be <s>
    pieces = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model(tokenizer))
    for text in ("<s>", "x <s>y </s>"):
        assert pieces.encode(text) == tokenizer.encode(text)[:-1]
        assert pieces.decode(pieces.encode(text)) == text


def test_other_tokenizers_are_refused(tmp_path):
    foreign = HuggingFaceTokenizer("fast", {"vocab.txt": b"[UNK]\n"}, (0, 1, 2, 3))
    for tokenizer in (pair_of("words").source, foreign):
        with raises(CheckpointError, "not_exportable"):
            sentencepiece_model(tokenizer)
    with raises(CheckpointError, "not_exportable"):
        fast_tokenizer(foreign)
    write_tokenizer(TokenizerPair(foreign, foreign, TextConfig()), tmp_path, "masked_lm")
    assert (tmp_path / "vocab.txt").read_bytes() == b"[UNK]\n"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("joint", [True, False])
def test_translators_load_as_auto_tokenizers(tmp_path, kind, joint):
    pair = pair_of(kind, joint)
    write_tokenizer(pair, tmp_path, "translation", 64)
    folders = {"": pair.source} if joint else {"": pair.source, "target_tokenizer": pair.target}
    assert (tmp_path / "target_tokenizer").exists() != joint
    for folder, ours in folders.items():
        theirs = AutoTokenizer.from_pretrained(tmp_path, subfolder=folder)
        special = theirs.pad_token_id, theirs.bos_token_id, theirs.eos_token_id, theirs.unk_token_id
        assert (*special, theirs.model_max_length, len(theirs)) == (0, 1, 2, 3, 64, len(ours))
        for text in [*SOURCE[:3], *TARGET[:3], "<pad> </s> <unk>", ""]:
            ids = ours.encode(text)
            assert theirs(text)["input_ids"] == ids
            if 3 not in ids:
                assert theirs.decode(ids, skip_special_tokens=True) == ours.decode(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_masks_are_read_from_texts(tmp_path, kind):
    ours = pair_of(kind).source
    write_tokenizer(pair_of(kind), tmp_path, "masked_lm")
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert (theirs.mask_token_id, len(theirs)) == (len(ours), len(ours) + 1)
    texts = ["두 [MASK] 요리를", "[MASK] [MASK] 길을", "오늘은 [MASK]"]
    for text in [*texts, "두 남자[MASK] 요리[MASK]다 [MASK]"][: 3 if kind == "words" else 4]:
        assert theirs(text)["input_ids"] == encode_masked(ours, text, len(ours)).ids


@pytest.mark.parametrize(
    ("task", "before", "after"),
    [("language_modeling", [], []), ("text_classification", [BOS], [EOS])],
)
def test_ids_are_framed_as_in_training(tmp_path, task, before, after):
    write_tokenizer(pair_of("bpe"), tmp_path, task)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for text in ("두 남자 [MASK] <s>", ""):
        ids = pair_of("bpe").source.encode(text)[:-1]
        assert theirs(text)["input_ids"] == [*before, *ids, *after]


def test_torch_is_not_imported():
    code = "import sys, polyhead.convert.tokenizer_files; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
