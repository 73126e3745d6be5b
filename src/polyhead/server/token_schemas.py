"""Response bodies with tokens and words as the pipelines of torch return them."""

from pydantic import BaseModel

from polyhead.pipelines.mask_filler import Filling, Guess
from polyhead.pipelines.question_answerer import AnsweredQuestion
from polyhead.pipelines.replaced_token_detector import Suspicion
from polyhead.pipelines.step_through import Step
from polyhead.pipelines.tagger import TaggedText
from polyhead.server.schemas import KnownToken, TextTokens


class StepsResponse(BaseModel):
    """An output, token by token."""

    model: str
    source: TextTokens
    steps: list[Step]
    text: str
    tokens: list[KnownToken]
    ended: bool


class FillResponse(BaseModel):
    """Candidates for each blank alone, and for all together."""

    model: str
    text: str
    blanks: list[list[Guess]]
    together: list[Filling]


class DetectReplacedResponse(BaseModel):
    """Probability of every word and token of being replaced."""

    model: str
    text: str
    words: list[Suspicion]
    tokens: list[Suspicion]


class TagResponse(BaseModel):
    """The words of each text with their tags, and the entities that the tags mark."""

    model: str
    results: list[TaggedText]


class AnswerResponse(BaseModel):
    """The best answer, and the next ones; places are characters of the context."""

    model: str
    result: AnsweredQuestion
