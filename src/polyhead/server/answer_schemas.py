"""What answers say; /openapi.json shows these descriptions, and the routes fill them in."""

from typing import Literal

from pydantic import BaseModel

Code = Literal[
    "empty",  # a text that says nothing
    "too_long",  # a text, for the server or for the model
    "too_many_blanks",
    "bad_token",  # that the model cannot write, or not there
    "bad_image",  # that cannot be read
    "cannot_draw",  # what was chosen, as a picture
    "too_many_weights",  # for the form that was asked for
]


class Error(BaseModel):
    """Why not, in one line; `field` if one field is to blame, `code` for what programs may meet."""

    error: str
    field: str | None = None
    code: Code | None = None


class Defaults(BaseModel):
    """How a model writes unless a request says otherwise."""

    beam: int
    length_penalty: float
    max_length: int
    sample: bool
    temperature: float
    top_k: int
    top_p: float


class ImageShape(BaseModel):
    """What an image is brought to before the model reads it."""

    height: int
    width: int
    channels: int
    patch: int


class ModelEntry(BaseModel):
    """One model: what it is for, and what it can read at once."""

    name: str
    family: str
    use: str
    source_language: str | None
    target_language: str | None
    parameters: int
    max_length: int | None
    attention: list[str]
    defaults: Defaults | None
    classes: list[str] | None
    image: ImageShape | None


class Models(BaseModel):
    """All models, and the limits of requests."""

    version: str
    limits: dict[str, int]
    models: list[ModelEntry]


class Token(BaseModel):
    """A piece of text: `word` is the number of the word that it is a part of."""

    id: int
    text: str
    word: int
    special: bool = False


class Link(BaseModel):
    """From which source word a target word took most; words are counted from 0."""

    source: int
    target: int
    weight: float


class Hypothesis(BaseModel):
    """One translation; `score` ranks it, `log_p` is the sum over its tokens.

    `ended`: the model closed it, it was not cut off at the greatest length; null for a text in
    several pieces.
    """

    text: str
    score: float
    log_p: float
    ids: list[int]
    ended: bool | None = None
    tokens: list[Token] | None = None
    alignment: list[Link] | None = None


class Translated(BaseModel):
    """A text, into how many pieces it was cut, and its translations, best first."""

    text: str
    pieces: int
    hypotheses: list[Hypothesis]


class Translations(BaseModel):
    """One entry for each text."""

    model: str
    translations: list[Translated]


class Choice(BaseModel):
    """A token and how likely it is."""

    id: int
    text: str
    probability: float


class Step(BaseModel):
    """The token that was taken, and the likeliest ones."""

    id: int
    text: str
    probability: float
    forced: bool
    alternatives: list[Choice]


class ReadText(BaseModel):
    """A text as a model read it."""

    text: str
    tokens: list[Token]


class Walk(BaseModel):
    """An output, token by token."""

    model: str
    source: ReadText
    steps: list[Step]
    text: str
    tokens: list[Token]
    ended: bool


class TreeNode(BaseModel):
    """A token that beam search kept: `log_p` is the sum from the root."""

    node: int
    parent: int | None
    step: int
    id: int
    text: str
    log_p: float
    probability: float
    ended: bool


class TreeLeaf(BaseModel):
    """An output of beam search, and the node where it ends."""

    node: int
    text: str
    score: float
    log_p: float


class Tree(BaseModel):
    """A beam search: every beginning that was kept, and the outputs, best first."""

    model: str
    source: ReadText
    beam: int
    length_penalty: float
    nodes: list[TreeNode]
    hypotheses: list[TreeLeaf]


class Written(BaseModel):
    """What a language model wrote after a prompt."""

    model: str
    prompt: str
    text: str
    seconds: float


class Guess(BaseModel):
    """What may stand in a blank."""

    text: str
    probability: float


class Filling(BaseModel):
    """All blanks filled together."""

    text: str
    words: list[str]
    log_p: float


class Filled(BaseModel):
    """Guesses for each blank by itself, and for all together."""

    model: str
    text: str
    blanks: list[list[Guess]]
    together: list[Filling]


class ClassShare(BaseModel):
    """A class and how likely it is."""

    label: str
    probability: float


class Classified(BaseModel):
    """What something is; `cut` says that the model could not read all of it."""

    label: str
    probability: float
    cut: bool
    classes: list[ClassShare]


class Classes(BaseModel):
    """One entry for each text, or for the image."""

    model: str
    results: list[Classified]


class Detected(BaseModel):
    """A language that a text may be in, and the percentage of its letters that speak for it."""

    confidence: float
    language: str


class LibreTranslated(BaseModel):
    """LibreTranslate's answer: a text for a text, a list for a list."""

    translatedText: str | list[str]
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: Detected | list[Detected] | None = None


class Language(BaseModel):
    """A language that is read, and those that it is translated into."""

    code: str
    name: str
    targets: list[str]


class Health(BaseModel):
    """`ok`, or what is the matter."""

    status: str
