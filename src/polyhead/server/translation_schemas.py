"""Request and response bodies of /v1/translate."""

from typing import Annotated

from pydantic import BaseModel, Field

from polyhead.server.schemas import Beam, KnownToken, Length, ModelRequest, Name, Penalty, Texts
from polyhead.server.settings import MAX_N_BEST


class TranslateRequest(ModelRequest):
    """Translate one text or several."""

    text: Texts
    source: Name | None = None
    target: Name | None = None
    n_best: Annotated[int, Field(ge=1, le=MAX_N_BEST)] = 1
    beam: Beam | None = None
    length_penalty: Penalty | None = None
    max_length: Length | None = None
    prefix: Annotated[str, Field(max_length=1000)] = ""
    split_sentences: bool | None = None
    alignment: bool = False
    tokens: bool = False


class WordLink(BaseModel):
    """Source word that a target word attends to most; words are counted from 0."""

    source: int
    target: int
    weight: float


class WordProbabilities(BaseModel):
    """A word of an output with the spaces around it, and the probabilities of its tokens."""

    text: str
    probabilities: list[float]


class SentenceTranslation(BaseModel):
    """One sentence of a translation; `confidence` is the geometric mean of token probabilities.

    `ended`: false if it was cut off at the maximum length.
    """

    text: str
    confidence: float
    ids: list[int]
    ended: bool
    words: list[WordProbabilities] | None = None


class TranslationHypothesis(BaseModel):
    """One translation; `score` ranks it, `log_p` is the sum over its tokens.

    `ended`: false if it was cut off at the maximum length, null for a text of several segments.
    """

    text: str
    sentences: list[SentenceTranslation]
    score: float
    log_p: float
    confidence: float
    ids: list[int]
    ended: bool | None = None
    tokens: list[KnownToken] | None = None
    alignment: list[WordLink] | None = None


class TextTranslations(BaseModel):
    """A text, the sentences that were translated one by one, and its translations, best first."""

    text: str
    sentences: list[str]
    pieces: int
    hypotheses: list[TranslationHypothesis]


class TranslateResponse(BaseModel):
    """Translations of each text."""

    model: str
    translations: list[TextTranslations]
