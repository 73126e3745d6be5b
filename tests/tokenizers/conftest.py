"""Tokenizers of all kinds, trained on a tiny corpus of two languages."""

import io
from functools import cache

import pytest
import sentencepiece
from hypothesis import HealthCheck, settings

from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.storage import train_tokenizers

settings.register_profile(  # the machine may be busy
    "text", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("text")

ENGLISH = [
    "The quick brown fox jumps over the lazy dog.",
    "Two men are cooking, and a third one watches them!",
    "A woman in a red coat walks her dog across the street.",
    "If x < 3 then y > 4; the answer is 42 (or 17).",
    "“Naïve café” — she said: déjà vu…",
]
KOREAN = [
    "두 남자가 요리를 하고 있고, 한 사람은 그들을 보고 있다.",
    "빨간 코트를 입은 여자가 개를 데리고 길을 건넌다!",
    "안녕하세요? 오늘은 2026년 11월 15일입니다.",
    "우주인 👩‍🚀 이 웃는다 😀",
]
OPTIONS = {
    "bpe": {"kind": "bpe", "vocab": 500},
    "unigram": {"kind": "unigram", "vocab": 500},
    "bpe without bytes": {"kind": "bpe", "vocab": 300, "byte_fallback": False},
    "unigram without bytes": {"kind": "unigram", "vocab": 300, "byte_fallback": False},
    "characters": {"kind": "characters"},
    "words": {"kind": "words"},
}


@cache
def learned(name, joint=True, lowercase=False, sampling=0.0):
    config = TextConfig(**OPTIONS[name], joint=joint, lowercase=lowercase, sampling=sampling)
    return train_tokenizers(ENGLISH, KOREAN, config)


@pytest.fixture(scope="session")
def train_model():
    """Return a function that trains with SentencePiece alone; return the bytes of the model."""

    def train(lines, **options):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=model, minloglevel=2, **options
        )
        return model.getvalue()

    return train


@pytest.fixture(scope="session")
def english():
    return ENGLISH


@pytest.fixture(scope="session")
def korean():
    return KOREAN


@pytest.fixture(scope="session")
def learn():
    """Return a function from a name in OPTIONS to cached tokenizers."""
    return learned


@pytest.fixture(scope="session", params=OPTIONS)
def name(request):
    return request.param


@pytest.fixture(scope="session")
def tokenizer(name):
    """Return the source tokenizer of each kind."""
    return learned(name).source
