"""What requests may say: the descriptions that check them, and that /openapi.json shows.

Everything is bounded: a number has a range, a text a length, a list a size. Unknown names are
refused, because a misspelt option that is silently ignored costs somebody an afternoon.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from polyhead.server.settings import (
    MAX_BEAM,
    MAX_CHARACTERS,
    MAX_N_BEST,
    MAX_TEXTS,
    MAX_TOKENS,
)

Text = Annotated[str, StringConstraints(max_length=MAX_CHARACTERS)]
Name = Annotated[str, StringConstraints(max_length=200)]
Ids = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=MAX_TOKENS)]
Beam = Annotated[int, Field(ge=1, le=MAX_BEAM)]
Penalty = Annotated[float, Field(ge=0, le=2)]
Length = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
Layer = Annotated[int, Field(ge=1, le=1000)]
Place = Annotated[int, Field(ge=1, le=MAX_CHARACTERS)]  # of a token, counted from 1
Kind = Literal["encoder", "decoder", "cross"]
Key = Annotated[str, StringConstraints(max_length=1000)]


class ModelRequest(BaseModel):
    """A request. `model` is a name from /v1/models; without it the first that fits is used."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    model: Name | None = None


class Translate(ModelRequest):
    """Translate one text or several."""

    text: Text | Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS)]
    source: Name | None = None
    target: Name | None = None
    n_best: Annotated[int, Field(ge=1, le=MAX_N_BEST)] = 1
    beam: Beam | None = None
    length_penalty: Penalty | None = None
    max_length: Length | None = None
    prefix: Annotated[str, StringConstraints(max_length=1000)] = ""
    alignment: bool = False
    tokens: bool = False


class MapName(BaseModel):
    """One layer of one kind of attention, counted from 1."""

    model_config = ConfigDict(extra="forbid", strict=True)
    kind: Kind
    layer: Layer


class Look(ModelRequest):
    """Show what the heads look at while they read a text (and write a translation)."""

    text: Text
    target: Text | None = None
    target_ids: Ids | None = None
    maps: Annotated[list[MapName], Field(max_length=1000)] | None = None
    precision: Literal["float32", "float16", "uint8"] = "float16"
    size: Annotated[int, Field(ge=1, le=1024)] | None = None
    format: Literal["binary", "json", "html", "svg"] = "binary"
    kind: Kind | None = None
    layer: Layer | None = None
    heads: Annotated[list[Layer], Field(max_length=256)] | Literal["mean", "max"] | None = None
    word: Annotated[str, StringConstraints(max_length=200)] | Place | None = None
    column: Place | None = None
    lines: bool = False
    merge: bool = False
    log: bool = False
    special: bool = True


class Steps(ModelRequest):
    """Write token by token, with the likeliest alternatives; `prefix` is forced."""

    text: Text
    prefix: Ids = []
    top: Annotated[int, Field(ge=1, le=20)] = 5
    max_tokens: Length | None = None


class Beams(ModelRequest):
    """Show a beam search as a tree."""

    text: Text
    beam: Beam | None = None
    length_penalty: Penalty | None = None
    max_length: Length | None = None
    prefix: Ids = []


class Generate(ModelRequest):
    """Go on with a text."""

    prompt: Text = ""
    max_tokens: Length | None = None
    temperature: Annotated[float, Field(ge=0.01, le=10)] | None = None
    top_k: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    top_p: Annotated[float, Field(ge=0.001, le=1)] | None = None
    greedy: bool = False
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    stop: Annotated[
        list[Annotated[str, StringConstraints(min_length=1, max_length=100)]], Field(max_length=8)
    ] = []
    stream: bool = True


class Fill(ModelRequest):
    """Say what may stand where [MASK] is."""

    text: Text
    top: Annotated[int, Field(ge=1, le=50)] = 5


class Classify(ModelRequest):
    """Say what texts are."""

    text: Text | Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS)]
    top: Annotated[int, Field(ge=1, le=100)] | None = None


class Upload(BaseModel):
    """What goes with an image, in the address or in the form."""

    model_config = ConfigDict(extra="forbid")
    model: Name | None = None
    top: Annotated[int, Field(ge=1, le=100)] | None = None
    format: Literal["json", "html"] = "json"


class LookAtImage(Upload):
    """What goes with an image to look into. Of a picture: a layer, one head of it, or all."""

    format: Literal["json", "html", "svg"] = "json"  # type: ignore[assignment]
    layer: Layer | Literal["rollout"] | None = None
    head: Layer | Literal["mean", "max"] | None = None
    alone: bool = False


class LibreTranslate(BaseModel):
    """The request of LibreTranslate's clients; what we do not know of it is passed over."""

    model_config = ConfigDict(extra="ignore")
    q: Text | Annotated[list[Text], Field(max_length=MAX_TEXTS)]
    source: Name
    target: Name
    format: Literal["text", "html"] = "text"
    alternatives: Annotated[int, Field(ge=0, lt=MAX_N_BEST)] = 0
    api_key: Key | None = None


class LibreDetect(BaseModel):
    """The question of LibreTranslate's clients which language a text is in."""

    model_config = ConfigDict(extra="ignore")
    q: Text
    api_key: Key | None = None
