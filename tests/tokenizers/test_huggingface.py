"""Encoding of long texts in portions, against GPT-2's own tokenizer; hostile files."""

import pytest
from expected_errors import raises
from foreign_models import HOSTILE_PARTS, word_tokenizer
from hypothesis import example, given, settings
from hypothesis import strategies as st

from polyhead.errors import CheckpointError
from polyhead.special_tokens import EOS, UNK
from polyhead.tokenizers.huggingface import FastEngine, portions

hf = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
SPACES = " \n\t\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u1680\u180e\u2003\u2028\u2029\u202f\u205f\u3000"
OTHERS = "abZé1²٣'stdmlrev.,!_-\x00\x7f\xad\u0301\u200b\u200d\u2060\ufeff\ue000\U000e0001가힣ᄀ中🚀"
HOSTILE = st.lists(  # runs of spaces between runs of anything
    st.one_of(
        st.text(" \n", min_size=1, max_size=4),
        st.text(SPACES, min_size=1, max_size=3),
        st.text(OTHERS, min_size=1, max_size=5),
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=3),
    ),
    max_size=20,
).map("".join)
END = "<|endoftext|>"
CORPUS = [
    "it's  we'll\n\n\n they've \t\t x1 22  ..  !!!\r\n\r\n",
    SPACES * 3 + "a b  c   d\n e\n\nf" + "가 나  다\n 라" * 2,
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """GPT-2's files, with merges of whatever meets anywhere, above all of spaces."""
    path = tmp_path_factory.mktemp("gpt2")
    bpe = tokenizers.ByteLevelBPETokenizer()
    bpe.train_from_iterator(CORPUS * 9, 600, 2, show_progress=False, special_tokens=[END])
    bpe.save_model(str(path))
    return path


@pytest.fixture(scope="module")
def theirs(folder):
    return hf.GPT2TokenizerFast.from_pretrained(folder)


def engine_of(folder, *names):
    return FastEngine({name: (folder / name).read_bytes() for name in names})


@pytest.fixture(scope="module")
def engine(folder):
    found = engine_of(folder, "vocab.json", "merges.txt")
    assert found.portion > 1
    found.portion = 1  # a cut wherever there can be one
    return found


@settings(max_examples=400)
@given(text=HOSTILE)
@example(text="a\u180e \n b")
@example(text="a\x1c \x1c\n b")
@example(text="it's 'll  'll\n's")
@example(text=f"x {END} y\n{END}\n")
def test_portions_give_the_ids_of_the_whole_text(engine, theirs, text):
    assert engine.read([text]) == [theirs(text, split_special_tokens=True)["input_ids"]]


@settings(max_examples=400)
@given(text=HOSTILE, size=st.integers(1, 9))
def test_portions_keep_words(text, size):
    """Words, not only ids: what no merge shows would show with the next vocabulary."""
    found = list(portions(text, size))
    assert "".join(found) == text
    assert all(len(part) >= size for part in found[:-1])
    words = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str
    assert [w for part in found for w, _ in words(part)] == [w for w, _ in words(text)]


def test_portions_are_small():
    parts = list(portions("낱말 " * 1000 + "끝\n" * 1000, 100))
    assert max(map(len, parts)) < 110
    assert list(portions("가" * 500, 100)) == ["가" * 500]


def test_other_tokenizers_read_the_whole_text(folder, theirs):
    """A prefix at the beginning, another text than was given, a token with a space in it."""
    theirs.save_pretrained(folder / "plain")
    program = tokenizers.Tokenizer.from_file(str(folder / "plain" / "tokenizer.json"))
    path = folder / "tokenizer.json"

    def portion():
        program.save(str(path))
        return engine_of(folder, "tokenizer.json").portion

    words, byte_level = program.pre_tokenizer, tokenizers.pre_tokenizers.ByteLevel
    assert portion() is not None
    program.pre_tokenizer = byte_level(add_prefix_space=True)
    assert portion() is None
    program.pre_tokenizer = byte_level(add_prefix_space=False, use_regex=False)
    assert portion() is None
    program.pre_tokenizer = words
    program.normalizer = tokenizers.normalizers.Strip()
    assert portion() is None
    program.normalizer = None
    assert portion() is not None
    program.add_tokens(["a b"])
    assert portion() is None


@pytest.mark.parametrize("attack", HOSTILE_PARTS)
def test_a_hostile_file_is_an_error_of_one_line(attack):
    with raises(CheckpointError, "broken_tokenizer") as error:
        word_tokenizer(5, **HOSTILE_PARTS[attack]).check()
    assert "\n" not in str(error.value)


def test_text_that_breaks_a_tokenizer_leaves_it_usable():
    tokenizer = word_tokenizer(5, **HOSTILE_PARTS["regex"])
    for _ in range(2):
        assert tokenizer.encode("w4") == [4, EOS]
        with raises(CheckpointError, "broken_tokenizer"):
            tokenizer.encode("a" * 40)
    assert tokenizer.encode_batch(["w4", "a\ud800", ""]) == [[4, EOS], [UNK, EOS], [EOS]]
