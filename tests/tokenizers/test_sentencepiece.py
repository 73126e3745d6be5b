"""Ids, offsets and decoding against SentencePiece itself; training and sampling."""

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random
from unicodedata import category

import pytest
import sentencepiece
from expected_errors import raises
from hypothesis import given, settings
from hypothesis import strategies as st

from polyhead.errors import ConfigError, DataError
from polyhead.special_tokens import EOS, UNK
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.normalize import normalise
from polyhead.tokenizers.sentencepiece import MAX_LINE, SentencePieceTokenizer, train_sentencepiece

PLAIN = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="<▁▅")).map(
    normalise
)
PIECES = ["bpe", "unigram", "bpe without bytes", "unigram without bytes"]

every_kind = pytest.mark.parametrize("name", PIECES)
both = pytest.mark.parametrize("kind", ["bpe", "unigram"])


def processor_of(tokenizer):
    return sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)


@every_kind
@given(line=PLAIN)
def test_ids_match_sentencepiece(learn, name, line):
    tokenizer = learn(name).source
    assert tokenizer.encode(line) == [*processor_of(tokenizer).encode(line), EOS]


@every_kind
@given(line=PLAIN)
def test_offsets_match_sentencepiece(learn, name, line):
    tokenizer = learn(name).source
    mapping = processor_of(tokenizer).encode(line, return_type="offset_mapping")
    assert [(p.start, p.end) for p in tokenizer.pieces(line)] == mapping["offsets"]


@every_kind
@given(line=PLAIN, seed=st.integers(0, 9))
def test_decoding_matches_sentencepiece(learn, name, line, seed):
    tokenizer = learn(name, sampling=0.5).source
    ids = [id for id in tokenizer.encode(line, sample=Random(seed)) if id != UNK]
    expected = processor_of(tokenizer).decode(ids)
    assert tokenizer.decode(ids) == " ".join(expected.split())


@both
@given(ids=st.lists(st.integers(4, 4 + 255), max_size=8))
def test_invalid_bytes_are_replaced(learn, kind, ids):
    """The 256 ids after the special ones are the bytes, in order."""
    tokenizer = learn(kind).source
    piece = next(id for id in range(260, len(tokenizer)) if tokenizer.symbol(id) == "a")
    for end, added in ([], b""), ([piece], b"a"):
        expected = (bytes(id - 4 for id in ids) + added).decode("utf-8", "replace")
        spaced = "".join(" " if category(c) == "Cc" else c for c in expected)
        assert tokenizer.decode([*ids, *end]) == " ".join(spaced.split())


@both
def test_the_vocabulary_matches_sentencepiece(kind, korean, train_model):
    options = {"byte_fallback": True, "character_coverage": 1.0}
    special = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3}
    identity = {"normalization_rule_name": "identity"}
    model = train_model(korean, model_type=kind, vocab_size=320, **options, **special, **identity)
    oracle = sentencepiece.SentencePieceProcessor(model_proto=model)
    tokenizer = train_sentencepiece(korean, TextConfig(kind=kind, vocab=320))
    names = [oracle.id_to_piece(id) for id in range(len(oracle))]
    assert [tokenizer.symbol(id) for id in range(len(tokenizer))] == [
        name.replace("\u200d", "<U+200D>") for name in names
    ]


@every_kind
@given(line=st.text(), seed=st.integers(0, 99))
def test_sampled_ids_decode_to_the_same_text(learn, name, line, seed):
    tokenizer = learn(name, sampling=0.3).source
    ids = tokenizer.encode(line, sample=Random(seed))
    if UNK not in tokenizer.encode(line):
        assert tokenizer.decode(ids) == normalise(line)
    assert ids[-1] == EOS
    assert all(UNK <= id < len(tokenizer) for id in ids[:-1])


@every_kind
def test_sampling_depends_on_line_and_generator_alone(learn, name, english, korean):
    tokenizer = learn(name, sampling=0.3).source
    jobs = [(line, seed) for line in english + korean for seed in range(10)]

    def cut(job):
        return tokenizer.encode(job[0], sample=Random(job[1]))

    first = [cut(job) for job in jobs]
    assert [cut(job) for job in reversed(jobs)][::-1] == first
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(cut, jobs)) == first
    assert len(set(map(tuple, first))) > len(jobs) / 2


@every_kind
def test_without_a_generator_nothing_is_sampled(learn, name, english):
    for line in english:
        assert learn(name, sampling=0.9).source.encode(line) == learn(name).source.encode(line)


@pytest.mark.parametrize("name", ["bpe", "bpe without bytes"])
@given(line=st.text(), repeats=st.integers(1, 3))
def test_bpe_dropout_of_zero_matches_sentencepiece(learn, name, line, repeats):
    tokenizer = learn(name).source
    text = normalise((line + "the dog gogogo 요리 ") * repeats).replace("<", "")
    ours = replace_sampling(tokenizer, 1e-300).encode(text, sample=Random(1))
    assert ours == tokenizer.encode(text)


@pytest.mark.parametrize("name", ["unigram", "unigram without bytes"])
def test_the_lattice_without_smoothing_finds_the_best_segmentation(learn, name, english, korean):
    tokenizer = learn(name).source
    scores = processor_of(tokenizer).get_score
    for line in [*english, *korean, "gogogo thethe 中 리를를"]:
        cold = replace_sampling(tokenizer, 1e6).encode(line, sample=Random(1))
        best = tokenizer.encode(line)
        assert len(cold) > 1
        ours, theirs = (sum(scores(id) for id in ids if id > UNK + 256) for ids in (cold, best))
        assert ours == pytest.approx(theirs, rel=1e-4)


def replace_sampling(tokenizer, sampling):
    return SentencePieceTokenizer(tokenizer.model, replace(tokenizer.config, sampling=sampling))


@both
@settings(max_examples=30)
@given(lines=st.lists(st.text(max_size=30), max_size=4))
def test_any_nonempty_corpus_can_be_trained_on(kind, lines):
    config = TextConfig(kind=kind)
    if not any(map(normalise, lines)):
        with pytest.raises(DataError):
            train_sentencepiece(lines, config)
        return
    tokenizer = train_sentencepiece(lines, config)
    for line in [*lines, "new text"]:
        assert tokenizer.decode(tokenizer.encode(line)) == normalise(line)


@both
def test_a_small_corpus_gives_fewer_tokens_with_a_warning(kind, caplog):
    with caplog.at_level(logging.WARNING, logger="polyhead"):
        tokenizer = train_sentencepiece(["a small corpus"], TextConfig(kind=kind, vocab=8000))
    assert 4 + 256 + 9 <= len(tokenizer) < 400
    (message,) = [record.getMessage() for record in caplog.records]
    assert "8000" in message
    assert str(len(tokenizer)) in message


@both
@pytest.mark.parametrize("byte_fallback", [True, False])
def test_a_vocabulary_smaller_than_the_characters_is_an_error(kind, byte_fallback):
    least = 4 + 256 * byte_fallback + len("▁abcd")
    config = TextConfig(kind=kind, vocab=least, byte_fallback=byte_fallback)
    assert len(train_sentencepiece(["abcd dcba"], config)) == least
    parts = f"4 special ids, {256 * byte_fallback} bytes, 5 characters"
    with raises(ConfigError, "vocab_too_small", f"= {least - 1}", f"at least {least}", parts):
        train_sentencepiece(["abcd dcba"], replace(config, vocab=least - 1))


@both
def test_rare_characters_are_encoded_as_bytes(kind, english):
    corpus = [*english * 4, "Œ"]
    everything = train_sentencepiece(corpus, TextConfig(kind=kind, vocab=400))
    nearly = train_sentencepiece(corpus, TextConfig(kind=kind, vocab=400, character_coverage=0.99))
    assert [piece.text for piece in everything.pieces("aŒ")][-1] == "Œ"
    assert [piece.text for piece in nearly.pieces("aŒ")][-2:] == ["", "Œ"]  # two bytes
    assert nearly.decode(nearly.encode("Œ")) == "Œ"


@both
@pytest.mark.parametrize("byte_fallback", [True, False])
def test_the_space_always_has_an_id(kind, byte_fallback):
    corpus = ["두남자가요리를하고있고한사람은그들을" * 20, "두 남자"]
    config = TextConfig(kind=kind, character_coverage=0.98, byte_fallback=byte_fallback)
    tokenizer = train_sentencepiece(corpus, config)
    assert tokenizer.decode(tokenizer.encode("남자 두 사람")) == "남자 두 사람"


@both
def test_training_gives_the_same_bytes(kind, english, korean):
    config = TextConfig(kind=kind, vocab=450)
    models = {train_sentencepiece(english + korean, config).model for _ in range(3)}
    assert len(models) == 1


@both
def test_overlong_lines_are_not_trained_on(kind, english):
    long = "한" * (MAX_LINE + 1)
    config = TextConfig(kind=kind, vocab=400)
    assert (
        train_sentencepiece([*english, long * 9], config).model
        == train_sentencepiece(english, config).model
    )
    with raises(DataError, "no_text", "1 lines", "10000"):
        train_sentencepiece([long], config)


@pytest.mark.parametrize("sign", ["y", "한", "😀"])
def test_overlong_lines_can_be_encoded(sign, english):
    config = TextConfig(vocab=400)
    tokenizer = train_sentencepiece([*english, sign * MAX_LINE], config)
    assert tokenizer.model != train_sentencepiece(english, config).model
    assert tokenizer.decode(tokenizer.encode(sign * 5 * MAX_LINE)) == sign * 5 * MAX_LINE


def test_many_lines_are_subsampled_evenly(monkeypatch, english):
    monkeypatch.setattr("polyhead.tokenizers.sentencepiece.MAX_LINES", 4)
    config = TextConfig(vocab=400)
    corpus = [line for line in english[:4] for _ in range(3)]
    assert len(set(english[:4])) == 4
    assert (
        train_sentencepiece(corpus, config).model == train_sentencepiece(english[:4], config).model
    )
