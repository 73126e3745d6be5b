"""Exported tokenizers have our ids and texts, on strings that the benchmark generates."""

from functools import cache

import pytest
import tokenizer_parity as script

from polyhead.tokenizers.storage import train_tokenizers


@cache
def lines():
    return script.corpus()[::8]


@pytest.mark.parametrize("name", script.KINDS)
def test_ids_and_texts_are_ours(name):
    tokenizer = train_tokenizers(lines(), [], script.KINDS[name]).source
    by_format = script.compare(tokenizer, list(script.strings(600, lines(), seed=2)))
    assert len(by_format) == (2 if name.startswith(("bpe", "unigram")) else 1)
    for differences in by_format.values():
        assert [d for d in differences if d.reason == script.OTHER] == []
        assert len(differences) < 60


def test_a_difference_without_a_reason_is_found():
    assert script.reason("ab", [5, 6], lambda _: [6, 5]) == "equal scores"
    assert script.reason("a\0b", [5, 6], lambda text: [5, 6 + ("\0" in text)]) == "U+0000"
    assert script.reason("a\0b", [5, 6], lambda _: [5, 7]) == script.OTHER


def test_strings_are_reproducible_and_cover_hard_ones():
    first = list(script.strings(3000, lines()))
    assert first == list(script.strings(3000, lines()))
    assert "" in first
    for part in ("<s>", "▁", "\t", "\ufdd2", "\u11ab", "👩‍🚀", "a" * 300):
        assert any(part in text for text in first)
