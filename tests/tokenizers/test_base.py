"""Properties of all tokenizers; each test runs with every kind."""

import os
import subprocess
import sys
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from expected_errors import raises
from hypothesis import example, given
from hypothesis import strategies as st

from polyhead.errors import DataError
from polyhead.special_tokens import BOS, EOS, PAD, SPECIALS, UNK
from polyhead.tokenizers import base
from polyhead.tokenizers.base import UNKNOWN, TextConfig, encode_lines
from polyhead.tokenizers.normalize import normalise, words_of
from polyhead.tokenizers.storage import train_tokenizers

ANYTHING = st.text(st.characters(codec=None, exclude_categories=()))
RESERVED = [*SPECIALS, "<0x41>", "<0xFF>", "▁", "▁▁", "▅", "\ufdd0", "\ufdd2s>", UNKNOWN, "⁇ ⁇"]


def ids_of(tokenizer, most=30):
    return st.lists(st.integers(0, len(tokenizer) - 1), max_size=most)


@pytest.mark.parametrize("n_lines", [0, 1, 3, 6, 8])
def test_lines_are_encoded_in_chunks(tokenizer, english, monkeypatch, n_lines):
    monkeypatch.setattr(base, "CHUNK", 3)
    lines = english[:n_lines]
    assert list(encode_lines(tokenizer, lines)) == [tokenizer.encode(line) for line in lines]


@given(data=st.data())
def test_known_text_is_decoded_exactly(tokenizer, name, english, korean, data):
    lines = english + korean
    if name == "words":
        text = " ".join(data.draw(st.lists(st.sampled_from(" ".join(lines).split()))))
    else:
        text = data.draw(st.text(sorted(set("".join(lines)))))
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == normalise(text)
    assert UNK not in ids


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@given(text=ANYTHING)
@example("a\u0300 ▁▅< \ufdd0 <s>")
def test_any_text_is_decoded_exactly_with_byte_fallback(learn, kind, text):
    tokenizer = learn(kind).source
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == normalise(text)
    assert UNK not in ids


@given(text=ANYTHING)
@example("   two \n spaces ")
@example("")
def test_pieces_tile_the_line(tokenizer, text):
    normal = tokenizer.normalise(text)
    pieces = tokenizer.pieces(text)
    assert [piece.id for piece in pieces] + [EOS] == tokenizer.encode(text)
    assert "".join(piece.text for piece in pieces) == normal
    assert all(normal[piece.start : piece.end] == piece.text for piece in pieces)
    assert [piece.start for piece in pieces] == [0, *(piece.end for piece in pieces)][:-1]


@given(data=st.data())
def test_pieces_of_ids_tile_the_decoded_text(tokenizer, data):
    ids = data.draw(ids_of(tokenizer))
    written = ids[: ids.index(EOS)] if EOS in ids else ids
    text = tokenizer.decode(ids)
    pieces = tokenizer.pieces_of_ids(ids)
    assert [piece.id for piece in pieces] == written
    assert "".join(piece.text for piece in pieces) == text
    assert all(text[piece.start : piece.end] == piece.text for piece in pieces)
    assert all(not p.text for p in pieces if p.id in (PAD, BOS))


@given(data=st.data())
def test_any_ids_are_decoded_to_one_clean_line(tokenizer, data):
    text = tokenizer.decode(data.draw(ids_of(tokenizer)))
    assert text == " ".join(text.split())
    assert not any(unicodedata.category(character) == "Cc" for character in text)
    text.encode("utf-8")


@given(text=ANYTHING)
def test_ids_are_in_range_and_end_with_eos(tokenizer, name, text):
    *ids, last = tokenizer.encode(text)
    assert last == EOS
    lowest = UNK + 1 if name in ("bpe", "unigram") else UNK
    assert all(lowest <= id < len(tokenizer) for id in ids)


@given(text=st.text())
@example("두 남자가 요리를 하고")
def test_composed_and_decomposed_text_have_equal_ids(tokenizer, text):
    decomposed = unicodedata.normalize("NFD", text)
    assert tokenizer.encode(decomposed) == tokenizer.encode(unicodedata.normalize("NFC", text))


@pytest.mark.parametrize("reserved", RESERVED)
@pytest.mark.parametrize("line", ["{}", "a{}b", "The dog. {}", "{} {}{}"])
def test_reserved_names_in_a_text_are_text(tokenizer, name, reserved, line):
    line = line.replace("{}", reserved)
    ids = tokenizer.encode(line)
    assert not {PAD, BOS, EOS} & set(ids[:-1])
    assert "".join(piece.text for piece in tokenizer.pieces(line)) == normalise(line)
    if name in ("bpe", "unigram"):
        assert tokenizer.decode(ids) == normalise(line)


def test_reserved_names_in_the_corpus_are_text(name, learn):
    config = learn(name).config
    corpus = [" ".join(RESERVED)] * 20
    tokenizer = train_tokenizers(corpus, corpus, config).source
    ids = tokenizer.encode(corpus[0])
    assert tokenizer.decode(ids) == normalise(corpus[0])
    assert not {PAD, BOS, EOS, UNK} & set(ids[:-1])


def test_a_batch_equals_its_lines(tokenizer, english, korean):
    lines = ["", "  ", *english, *korean, "<s> 中 ▁"] * 20
    assert tokenizer.encode_batch(lines) == [tokenizer.encode(line) for line in lines]
    assert tokenizer.encode_batch(lines[:3]) == [tokenizer.encode(line) for line in lines[:3]]
    assert tokenizer.encode_batch([]) == []


def test_decoding_stops_at_eos_and_skips_padding(tokenizer, english):
    ids = tokenizer.encode(english[0])
    assert tokenizer.decode([BOS, PAD, *ids, *ids, PAD]) == english[0]
    assert tokenizer.decode([]) == tokenizer.decode([EOS]) == tokenizer.decode([PAD, BOS]) == ""
    assert tokenizer.decode([UNK]) == UNKNOWN


@pytest.mark.parametrize("id", [-1, 10**6])
def test_an_invalid_id_is_an_error(tokenizer, id):
    for lookup in (tokenizer.symbol, lambda id: tokenizer.decode([id])):
        with pytest.raises(ValueError, match=f"id {id}"):
            lookup(id)


def test_every_id_has_a_printable_name(tokenizer):
    names = [tokenizer.symbol(id) for id in range(len(tokenizer))]
    assert all(name and name.isprintable() and " " not in name for name in names)
    assert tuple(names[:4]) == SPECIALS
    assert len(names) <= tokenizer.config.vocab


@given(text=ANYTHING)
def test_pieces_belong_to_words(tokenizer, text):
    words = [""] * len(normalise(text).split())
    pieces = tokenizer.pieces(text)
    for piece, word in zip(pieces, words_of(pieces), strict=True):
        words[word] += piece.text.strip()
    assert words == normalise(text).split()


def test_sampling_is_off_by_default(tokenizer, english):
    for seed in range(20):
        assert tokenizer.encode(english[0], sample=Random(seed)) == tokenizer.encode(english[0])


def test_threads_can_share_a_tokenizer(tokenizer, english, korean):
    lines = (english + korean) * 50
    expected = [tokenizer.encode(line) for line in lines]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(tokenizer.encode, lines)) == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_can_use_a_tokenizer(tokenizer, english):
    lines = english * 100
    expected = tokenizer.encode_batch(lines)
    child = os.fork()
    if child == 0:
        os._exit(0 if tokenizer.encode_batch(lines) == expected else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_vocabularies_are_joint_or_separate(name, learn, english, korean):
    joint, separate = learn(name), learn(name, joint=False)
    assert joint.source is joint.target
    assert separate.source is not separate.target
    assert separate.source.decode(separate.source.encode(english[0])) == english[0]
    assert separate.target.decode(separate.target.encode(korean[0])) == korean[0]
    pieces = {separate.source.symbol(id) for id in range(len(separate.source))}
    assert "두" not in "".join(pieces)


def test_lowercase_ignores_case(name, learn, english):
    tokenizer = learn(name, lowercase=True).source
    assert tokenizer.encode(english[0].upper()) == tokenizer.encode(english[0].lower())
    assert tokenizer.decode(tokenizer.encode(english[0])) == english[0].lower()
    assert "".join(piece.text for piece in tokenizer.pieces("THE dog")) == "the dog"
    learned = [id for id in range(4, len(tokenizer)) if "<0x" not in tokenizer.symbol(id)]
    assert all(tokenizer.decode([id]) == tokenizer.decode([id]).lower() for id in learned)


@pytest.mark.parametrize("corpus", [[], [""], ["  ", "\n\t"]])
def test_an_empty_corpus_is_an_error(name, learn, corpus):
    with raises(DataError, "no_text"):
        train_tokenizers(corpus, corpus, learn(name).config)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocab": 4}, "vocab = 4"),
        ({"vocab": 10**7}, "vocab = 10000000"),
        ({"sampling": -0.1}, "sampling = -0.1"),
        ({"sampling": float("nan")}, "sampling = nan"),
        ({"kind": "unigram", "sampling": float("inf")}, "sampling = inf"),
        ({"sampling": 1.5}, "sampling = 1.5"),
        ({"kind": "words", "sampling": 0.1}, "sampling = 0.1"),
        ({"character_coverage": 0.5}, "character_coverage = 0.5"),
        ({"jamo": True}, "not bpe"),
    ],
)
def test_invalid_options_are_errors(options, message):
    with pytest.raises(ValueError, match=message):
        TextConfig(**options)


def test_torch_is_not_imported():
    code = "import polyhead.tokenizers.storage, sys; sys.exit('torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
