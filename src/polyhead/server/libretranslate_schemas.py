"""Request and response bodies of LibreTranslate's routes."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from polyhead.server.schemas import Name, Text
from polyhead.server.settings import MAX_N_BEST, MAX_TEXTS


class KeyField(BaseModel):
    """API key in a request of LibreTranslate's clients."""

    api_key: Annotated[str, Field(max_length=1000)] | None = None


class LibreTranslateRequest(KeyField):
    """Request of LibreTranslate's clients; unknown fields are ignored."""

    q: Text | Annotated[list[Text], Field(max_length=MAX_TEXTS)]
    source: Name
    target: Name
    format: Literal["text", "html"] = "text"
    alternatives: Annotated[int, Field(ge=0, lt=MAX_N_BEST)] = 0


class DetectRequest(KeyField):
    """LibreTranslate: detect the language of a text."""

    q: Text


class DetectedLanguage(BaseModel):
    """A language, and the confidence in it in percent."""

    confidence: float
    language: str


class LibreTranslateResponse(BaseModel):
    """LibreTranslate: a translation of a text, or a list for a list."""

    translatedText: str | list[str]
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None


class Language(BaseModel):
    """A source language with its target languages."""

    code: str
    name: str
    targets: list[str]
