"""Response bodies with tokens and words as the pipelines of torch return them."""

from pydantic import BaseModel

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
