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
