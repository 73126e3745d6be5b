"""Response bodies with tokens and words as the pipelines of torch return them."""

from pydantic import BaseModel

from polyhead.pipelines.mask_filler import Filling, Guess
from polyhead.pipelines.replaced_token_detector import Suspicion
from polyhead.pipelines.step_through import Step
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
