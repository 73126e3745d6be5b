"""Request and response bodies of /v1/…; /openapi.json is generated from them.

Every request field is bounded, and unknown fields are rejected.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema

from polyhead.pipelines.text_generator import ScoredToken
from polyhead.server.settings import MAX_BEAM, MAX_CHARACTERS, MAX_TEXTS, MAX_TOKENS
from polyhead.viz.tokens import Token

Text = Annotated[str, Field(max_length=MAX_CHARACTERS)]
Texts = Text | Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS)]
Name = Annotated[str, Field(max_length=200)]
Ids = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=MAX_TOKENS)]
Beam = Annotated[int, Field(ge=1, le=MAX_BEAM)]
Penalty = Annotated[float, Field(ge=0, le=2)]
Length = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
Temperature = Annotated[float, Field(ge=0.01, le=10)]
TopK = Annotated[int, Field(ge=0, le=1_000_000)]
TopP = Annotated[float, Field(ge=0.001, le=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Layer = Annotated[int, Field(ge=1, le=1000)]
Position = Annotated[int, Field(ge=1, le=MAX_CHARACTERS)]  # of a token, from 1
Kind = Literal["encoder", "decoder", "cross"]
TOKEN_FIELDS = {
    "id": {"type": "integer"}, "text": {"type": "string"}, "word": {"type": "integer"},
    "special": {"type": "boolean", "default": False},
}  # fmt: skip
TOKEN_SCHEMA = {"type": "object", "properties": TOKEN_FIELDS, "required": ["id", "text", "word"]}
KnownToken = Annotated[  # a token with its id
    Token,
    PlainSerializer(lambda token: {name: vars(token)[name] for name in TOKEN_FIELDS}),
    WithJsonSchema(TOKEN_SCHEMA),
]
Code = Literal[  # stable identifiers of errors
    "empty",
    "too_long",  # for the server or for the model
    "too_many_blanks",
    "bad_token",  # unknown to the model, or impossible at this position
    "bad_image",
    "cannot_draw",  # the selected view, as SVG
    "too_many_weights",  # for the requested format
]


class ModelRequest(BaseModel):
    """Base of requests; `model` is a name from /v1/models (default: the first suitable model)."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    model: Name | None = None


class MapName(BaseModel):
    """One layer of one kind of attention; layers are counted from 1."""

    model_config = ConfigDict(extra="forbid", strict=True)
    kind: Kind
    layer: Layer


class AttentionRequest(ModelRequest):
    """Return the attention weights of all heads for a text (and its translation).

    Of a text that is translated in several sentences, `sentence` is shown, counted from 1. For a
    language model `target_ids` are the tokens that it generated after the text. `ended`: false if
    the translation of `target_ids` was cut off at the maximum length.
    """

    text: Text
    sentence: Annotated[int, Field(ge=1)] = 1
    target: Text | None = None
    target_ids: Ids | None = None
    ended: bool = True
    maps: Annotated[list[MapName], Field(max_length=1000)] | None = None
    precision: Literal["float32", "float16", "uint8"] = "float16"
    size: Annotated[int, Field(ge=1, le=1024)] | None = None
    format: Literal["binary", "json", "html", "svg"] = "binary"
    kind: Kind | None = None
    layer: Layer | None = None
    heads: Annotated[list[Layer], Field(max_length=256)] | Literal["mean", "max"] | None = None
    word: Annotated[str, Field(max_length=200)] | Position | None = None
    column: Position | None = None
    lines: bool = False
    merge: bool = False
    log: bool = False
    special: bool = True


class Sampling(BaseModel):
    """Options of sampling; the model's defaults for those that are not given."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    temperature: Temperature | None = None
    top_k: TopK | None = None
    top_p: TopP | None = None
    seed: Seed = 0


class StepsRequest(ModelRequest):
    """Decode with the likeliest tokens of every step; `prefix` is forced.

    Greedily, or with `sampling`: that of a /v1/generate request gives the tokens of its response.
    """

    text: Text
    prefix: Ids = []
    top: Annotated[int, Field(ge=1, le=20)] = 5
    max_tokens: Length | None = None
    sampling: Sampling | None = None


class BeamRequest(ModelRequest):
    """Return a beam search as a tree."""

    text: Text
    beam: Beam | None = None
    length_penalty: Penalty | None = None
    max_length: Length | None = None
    prefix: Ids = []


class GenerateRequest(ModelRequest, Sampling):
    """Continue a prompt; the tokens `prefix` are forced."""

    prompt: Text = ""
    prefix: Ids = []
    max_tokens: Length | None = None
    greedy: bool = False
    stop: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=100)]], Field(max_length=8)
    ] = []
    stream: bool = True


class GenerateResponse(BaseModel):
    """Continuation of a prompt, and the tokens that were sampled.

    An event of the stream has the `text` and the `tokens` since the last one.
    """

    model: str
    prompt: str
    text: str
    tokens: list[ScoredToken]
    seconds: float


class ClassifyRequest(ModelRequest):
    """Classify texts, or pairs of texts; `text_pair` has the second of each."""

    text: Texts
    text_pair: Texts | None = None
    top: Annotated[int, Field(ge=1, le=100)] | None = None


class EmbedRequest(ModelRequest):
    """Return a vector for each text."""

    text: Texts


class ImageOptions(BaseModel):
    """Options of a request with an image, as query parameters or form fields."""

    model_config = ConfigDict(extra="forbid")
    model: Name | None = None
    top: Annotated[int, Field(ge=1, le=100)] | None = None
    format: Literal["json", "html"] = "json"


class ImageAttentionOptions(ImageOptions):
    """Options of the attention of an image; `layer`, `head` and `alone` are for SVG."""

    format: Literal["json", "html", "svg"] = "json"  # type: ignore[assignment]
    layer: Layer | Literal["rollout"] | None = None
    head: Layer | Literal["mean", "max"] | None = None
    alone: bool = False


class ErrorResponse(BaseModel):
    """Error message, with the invalid `field` and a stable `code` where there is one."""

    error: str
    field: str | None = None
    code: Code | None = None


class DecodingDefaults(BaseModel):
    """Decoding options that a model uses unless a request sets them."""

    model_config = ConfigDict(from_attributes=True)
    beam: int
    length_penalty: float
    max_length: int
    sample: bool
    temperature: float
    top_k: int
    top_p: float


class ImageInput(BaseModel):
    """Size of the images that a model reads."""

    height: int
    width: int
    channels: int
    patch: int


class ModelEntry(BaseModel):
    """A served model: its task, languages, size and limits."""

    name: str
    family: str
    use: str
    engine: str
    source_language: str | None
    target_language: str | None
    parameters: int
    max_length: int | None
    attention: list[str]
    defaults: DecodingDefaults | None
    classes: list[str] | None
    image: ImageInput | None
    problem: str | None
    pairs: Literal["no", "optional", "required"]
    range: tuple[float, float] | None


class OpenAIModel(BaseModel):
    """A served model as OpenAI's clients read it; `id` is its name."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "polyhead"


class ModelsResponse(BaseModel):
    """All served models, and the limits of requests; `object` and `data` for OpenAI's clients."""

    version: str
    limits: dict[str, int]
    models: list[ModelEntry]
    object: Literal["list"] = "list"
    data: list[OpenAIModel]


class TextTokens(BaseModel):
    """A text as the model reads it."""

    text: str
    tokens: list[KnownToken]


class BeamTreeNode(BaseModel):
    """A token that beam search kept; `log_p` is the sum from the root."""

    node: int
    parent: int | None
    step: int
    id: int
    text: str
    log_p: float
    probability: float
    ended: bool


class BeamOutput(BaseModel):
    """An output of beam search, and its last node."""

    node: int
    text: str
    score: float
    log_p: float


class BeamResponse(BaseModel):
    """A beam search: all nodes, and the outputs, best first."""

    model: str
    source: TextTokens
    beam: int
    length_penalty: float
    nodes: list[BeamTreeNode]
    hypotheses: list[BeamOutput]


class ClassProbability(BaseModel):
    """A class and its probability."""

    label: str
    probability: float


class ClassificationResponse(BaseModel):
    """The most probable class; `cut`: the text was longer than the model reads.

    `labels` are those more probable than not, of a model of several. A model of numbers gives a
    `number`, whose text is `label`, and no classes.
    """

    label: str
    probability: float | None
    cut: bool
    classes: list[ClassProbability]
    labels: list[str] | None = None
    number: float | None = None


class ClassifyResponse(BaseModel):
    """One entry for each text, or for the image."""

    model: str
    results: list[ClassificationResponse]


class EmbedResponse(BaseModel):
    """A vector of length 1 for each text; `cut`: it was longer than the model reads."""

    model: str
    embeddings: list[list[float]]
    cut: list[bool]


class Health(BaseModel):
    """State of the server."""

    status: str
