"""SentencePiece itself is the oracle: same ids, same offsets, same text."""

import io
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random
from unicodedata import category

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from polyhead.errors import ConfigError, DataError
from polyhead.special_tokens import EOS, UNK
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.normalize import normalise
from polyhead.tokenizers.sentencepiece import MAX_LINE, PieceTokenizer, learn_pieces

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
def test_ids_are_those_of_sentencepiece(learn, name, line):
    tokenizer = learn(name).source
    assert tokenizer.encode(line) == [*processor_of(tokenizer).encode(line), EOS]


@every_kind
@given(line=PLAIN)
def test_offsets_are_those_of_sentencepiece(learn, name, line):
    tokenizer = learn(name).source
    mapping = processor_of(tokenizer).encode(line, return_type="offset_mapping")
    assert [(p.start, p.end) for p in tokenizer.pieces(line)] == mapping["offsets"]


@every_kind
@given(line=PLAIN, seed=st.integers(0, 9))
def test_decoding_is_that_of_sentencepiece(learn, name, line, seed):
    tokenizer = learn(name, sampling=0.5).source
    ids = [id for id in tokenizer.encode(line, sample=Random(seed)) if id != UNK]
    expected = processor_of(tokenizer).decode(ids)
    assert tokenizer.decode(ids) == " ".join(expected.split())


@both
@given(ids=st.lists(st.integers(4, 4 + 255), max_size=8))
def test_bytes_that_are_no_characters_are_replaced(learn, kind, ids):
    """The 256 ids after the special ones are the bytes, in order; a piece ends a character."""
    tokenizer = learn(kind).source
    piece = next(id for id in range(260, len(tokenizer)) if tokenizer.symbol(id) == "a")
    for end, added in ([], b""), ([piece], b"a"):
        expected = (bytes(id - 4 for id in ids) + added).decode("utf-8", "replace")
        spaced = "".join(" " if category(c) == "Cc" else c for c in expected)
        assert tokenizer.decode([*ids, *end]) == " ".join(spaced.split())


@both
def test_the_vocabulary_is_the_one_sentencepiece_learns(kind, korean):
    """Trained by its own front door, from bytes, with its own options."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(korean),
        model_writer=written,
        model_type=kind,
        vocab_size=320,
        byte_fallback=True,
        character_coverage=1.0,
        normalization_rule_name="identity",
        pad_id=0,
        bos_id=1,
        eos_id=2,
        unk_id=3,
        minloglevel=2,
    )
    oracle = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    tokenizer = learn_pieces(korean, TextConfig(kind=kind, vocab=320))
    names = [oracle.id_to_piece(id) for id in range(len(oracle))]
    assert [tokenizer.symbol(id) for id in range(len(tokenizer))] == [
        name.replace("\u200d", "<U+200D>") for name in names
    ]


@every_kind
@given(line=st.text(), seed=st.integers(0, 99))
def test_sampled_ids_are_another_spelling_of_the_same_text(learn, name, line, seed):
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
def test_our_merging_without_dropout_is_byte_pair_encoding(learn, name, line, repeats):
    tokenizer = learn(name).source
    text = normalise((line + "the dog gogogo 요리 ") * repeats).replace("<", "")
    ours = replace_sampling(tokenizer, 1e-300).encode(text, sample=Random(1))
    assert ours == tokenizer.encode(text)


@pytest.mark.parametrize("name", ["unigram", "unigram without bytes"])
def test_our_lattice_without_smoothing_finds_the_best_cut(learn, name, english, korean):
    tokenizer = learn(name).source
    scores = processor_of(tokenizer).get_score
    for line in [*english, *korean, "gogogo thethe 中 리를를"]:
        cold = replace_sampling(tokenizer, 1e6).encode(line, sample=Random(1))
        best = tokenizer.encode(line)
        assert len(cold) > 1
        ours, theirs = (sum(scores(id) for id in ids if id > UNK + 256) for ids in (cold, best))
        assert ours == pytest.approx(theirs, rel=1e-4)


def replace_sampling(tokenizer, sampling):
    return PieceTokenizer(tokenizer.model, replace(tokenizer.config, sampling=sampling))


@both
def test_much_dropout_gives_more_pieces(learn, kind, english):
    plain = learn(kind).source
    wild = replace_sampling(plain, 0.9 if kind == "bpe" else 0.01)
    n_plain = sum(len(plain.encode(line)) for line in english)
    n_wild = sum(len(wild.encode(line, sample=Random(1))) for line in english)
    assert n_wild > n_plain


@both
@settings(max_examples=30)
@given(lines=st.lists(st.text(max_size=30), max_size=4))
def test_any_corpus_teaches_something_or_is_empty(kind, lines):
    config = TextConfig(kind=kind)
    if not any(map(normalise, lines)):
        with pytest.raises(DataError):
            learn_pieces(lines, config)
        return
    tokenizer = learn_pieces(lines, config)
    for line in [*lines, "new text"]:
        assert tokenizer.decode(tokenizer.encode(line)) == normalise(line)


@both
def test_a_small_corpus_gives_what_it_allows_and_says_so(kind, caplog):
    with caplog.at_level(logging.WARNING, logger="polyhead"):
        tokenizer = learn_pieces(["a small corpus"], TextConfig(kind=kind, vocab=8000))
    assert 4 + 256 + 9 <= len(tokenizer) < 400
    expected = f"text.vocab = 8000: this corpus allows only {len(tokenizer)}; using these"
    assert [record.getMessage() for record in caplog.records] == [expected]


@both
@pytest.mark.parametrize("byte_fallback", [True, False])
def test_a_vocabulary_too_small_for_the_characters_says_how_many_are_needed(kind, byte_fallback):
    least = 4 + 256 * byte_fallback + len("▁abcd")
    config = TextConfig(kind=kind, vocab=least, byte_fallback=byte_fallback)
    assert len(learn_pieces(["abcd dcba"], config)) == least
    parts = f"4 special ids, {256 * byte_fallback} bytes, 5 characters"
    with pytest.raises(ConfigError) as caught:
        learn_pieces(["abcd dcba"], replace(config, vocab=least - 1))
    assert str(caught.value) == (
        f"text.vocab = {least - 1}: this corpus needs at least {least} ({parts}); "
        "raise text.vocab, or lower text.character_coverage"
        + (" or set text.byte_fallback = false" if byte_fallback else "")
    )


@both
def test_rare_characters_can_be_left_to_bytes(kind, english):
    corpus = [*english * 4, "Œ"]
    everything = learn_pieces(corpus, TextConfig(kind=kind, vocab=400))
    nearly = learn_pieces(corpus, TextConfig(kind=kind, vocab=400, character_coverage=0.99))
    assert [piece.text for piece in everything.pieces("aŒ")][-1] == "Œ"
    assert [piece.text for piece in nearly.pieces("aŒ")][-2:] == ["", "Œ"]  # two bytes
    assert nearly.decode(nearly.encode("Œ")) == "Œ"


@both
@pytest.mark.parametrize("byte_fallback", [True, False])
def test_the_space_has_an_id_however_rare_it_is(kind, byte_fallback):
    corpus = ["두남자가요리를하고있고한사람은그들을" * 20, "두 남자"]
    config = TextConfig(kind=kind, character_coverage=0.98, byte_fallback=byte_fallback)
    tokenizer = learn_pieces(corpus, config)
    assert tokenizer.decode(tokenizer.encode("남자 두 사람")) == "남자 두 사람"


@both
def test_the_same_lines_give_the_same_bytes(kind, english, korean):
    config = TextConfig(kind=kind, vocab=450)
    models = {learn_pieces(english + korean, config).model for _ in range(3)}
    assert len(models) == 1


@both
def test_overlong_lines_do_not_disturb_learning(kind, english):
    long = "한" * (MAX_LINE + 1)
    config = TextConfig(kind=kind, vocab=400)
    assert learn_pieces([*english, long * 9], config).model == learn_pieces(english, config).model
    with pytest.raises(DataError, match="from 1 lines: all are empty or longer than 10000 char"):
        learn_pieces([long], config)


@pytest.mark.parametrize("sign", ["y", "한", "😀"])
def test_the_longest_line_is_learned_from_and_longer_ones_are_encoded(sign, english):
    config = TextConfig(vocab=400)
    tokenizer = learn_pieces([*english, sign * MAX_LINE], config)
    assert tokenizer.model != learn_pieces(english, config).model
    assert tokenizer.decode(tokenizer.encode(sign * 5 * MAX_LINE)) == sign * 5 * MAX_LINE


def test_of_too_many_lines_some_are_taken_from_everywhere(monkeypatch, english):
    monkeypatch.setattr("polyhead.tokenizers.sentencepiece.MAX_LINES", 4)
    config = TextConfig(vocab=400)
    corpus = [line for line in english[:4] for _ in range(3)]
    assert len(set(english[:4])) == 4
    assert learn_pieces(corpus, config).model == learn_pieces(english[:4], config).model
