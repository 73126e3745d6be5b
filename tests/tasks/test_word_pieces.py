"""Words as ids with the places of their characters; parts of sentences and windows of contexts."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyhead.special_tokens import BOS, EOS
from polyhead.tasks.question_answering import windows_of
from polyhead.tasks.tagging import parts_of_words
from polyhead.tasks.words import WordEncoder
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.storage import train_tokenizers

LINES = ["세종은 1397년에 한양에서 태어났다.", "The cat sat on the mat, İstanbul."] * 3
TOKENIZERS = {
    kind: train_tokenizers(LINES, [], TextConfig(kind, 330, lowercase=kind == "bpe")).source
    for kind in ("bpe", "unigram")
}
NFD = unicodedata.normalize("NFD", "값")
CONTEXT = f"세종은 1397년에 한양에서  태어났다. {NFD}이 각 İstanbul   😀 cat"


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_ids_of_single_words_are_those_of_the_whole_line(kind):
    encoder = WordEncoder(TOKENIZERS[kind])
    for line in LINES:
        pieces = [piece.id for word in line.split() for piece in encoder(word)]
        assert [*pieces, EOS] == TOKENIZERS[kind].encode(line)


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("answer", ["1397", "한양", "각", "İstanbul", NFD, "😀", "세종은 1397년에"])
def test_a_labelled_span_covers_the_answer_and_nothing_of_other_words(kind, answer):
    encoder = WordEncoder(TOKENIZERS[kind])
    start = CONTEXT.index(answer)
    (window,) = windows_of(encoder, "언제?", CONTEXT, [(start, answer)], max_length=99, stride=50)
    first, last = (place - window.first for place in window.span)
    text = CONTEXT[window.places[first][0] : window.places[last][1]]
    assert answer in text
    assert len(text.split()) == len(answer.split())


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_places_stay_inside_their_words_where_normalisation_changes_the_length(kind):
    (window,) = windows_of(
        WordEncoder(TOKENIZERS[kind]), "언제?", CONTEXT, max_length=99, stride=50
    )
    words = {match.span() for match in re.finditer(r"\S+", CONTEXT)}
    seen = set()
    for first, end in window.places:
        (word,) = [word for word in words if word[0] <= first <= end <= word[1]]
        if len(TOKENIZERS[kind].normalise(CONTEXT[slice(*word)])) != word[1] - word[0]:
            assert (first, end) == word
        seen.add(word)
    assert seen == words


@given(max_length=st.integers(8, 40), stride=st.integers(1, 40), start=st.integers(0, 30),
       length=st.integers(1, 8))  # fmt: skip
def test_windows_cover_the_context_and_label_answers_inside(max_length, stride, start, length):
    encoder, answer = WordEncoder(TOKENIZERS["bpe"]), CONTEXT[start : start + length]
    windows = windows_of(
        encoder, "언제 태어났나?", CONTEXT, [(start, answer)], max_length=max_length, stride=stride
    )
    (whole,) = windows_of(encoder, "언제 태어났나?", CONTEXT, max_length=999, stride=999)
    assert list(dict.fromkeys(p for w in windows for p in w.places)) == list(
        dict.fromkeys(whole.places)
    )
    for window in windows:
        assert len(window.ids) <= max_length
        assert (window.ids[0], window.ids[window.first - 1], window.ids[-1]) == (BOS, EOS, EOS)
        assert len(window.ids) == window.first + len(window.places) + 1
        if window.span != (0, 0):
            first, last = (window.places[place - window.first] for place in window.span)
            assert first[0] < start + length
            assert last[1] > start


@given(max_length=st.integers(3, 30), n=st.integers(0, 12))
def test_sentences_are_cut_between_words(max_length, n):
    encoder = WordEncoder(TOKENIZERS["unigram"])
    words = (CONTEXT.split() * 2)[:n]
    parts = parts_of_words(encoder, words, max_length)
    assert sum(len(part.firsts) for part in parts) == n
    assert all(len(part.ids) <= max_length for part in parts)
    heads = [part.ids[place] for part in parts for place in part.firsts]
    assert heads == [encoder(word)[0].id for word in words]
