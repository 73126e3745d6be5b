"""Request and response bodies of OpenAI's completions API."""

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from polyhead.server.schemas import Length, ModelRequest, Name, Texts, TopP

StopText = Annotated[str, Field(min_length=1, max_length=100)]
Usage = Literal["prompt_tokens", "completion_tokens", "total_tokens"]
USAGE: tuple[Usage, ...] = get_args(Usage)
MAX_CHOICES = 64  # completions of a request
IGNORED: dict[str, tuple[Any, ...]] = {  # values of unsupported options that change nothing
    "best_of": (None, 1), "frequency_penalty": (None, 0), "logit_bias": (None, {}),
    "presence_penalty": (None, 0), "suffix": (None, ""),
}  # fmt: skip


class CompletionRequest(ModelRequest):
    """OpenAI: continue prompts; a temperature below 0.01 is greedy search.

    Other options of OpenAI are accepted with the values that change nothing.
    """

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)
    prompt: Texts
    max_tokens: Length | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: TopP | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    stop: StopText | Annotated[list[StopText], Field(max_length=8)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stream: bool | None = None
    stream_options: dict[Name, bool | None] | None = None
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool | None = None
    user: str | None = None


class EmbeddingsRequest(ModelRequest):
    """OpenAI: vectors of texts, as lists or as the base64 of float32 numbers."""

    input: Texts
    encoding_format: Literal["float", "base64"] = "float"
    user: str | None = None


class Embedding(BaseModel):
    """OpenAI: the vector of one text."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingsResponse(BaseModel):
    """OpenAI: the vectors of all texts."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: dict[Usage, int]


class Logprobs(BaseModel):
    """OpenAI: the tokens of a text with their log-probabilities; `text_offset` is their place."""

    tokens: list[str] = []
    token_logprobs: list[float] = []
    top_logprobs: list[dict[str, float]] = []
    text_offset: list[int] = []


class CompletionChoice(BaseModel):
    """OpenAI: one completion, or a part of it in a stream."""

    index: int
    text: str
    logprobs: Logprobs | None = None
    finish_reason: Literal["stop", "length"] | None = None


class CompletionResponse(BaseModel):
    """OpenAI: the completions of all prompts, or an event of a stream."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: dict[Usage, int] | None = None  # numbers of tokens


class OpenAIErrorResponse(BaseModel):
    """OpenAI: message, type, invalid field and code of an error."""

    error: dict[Literal["message", "type", "param", "code"], str | None]
