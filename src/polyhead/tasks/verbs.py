"""Verbs of the command line and of HTTP: the task of each, its words and its options.

Nothing here imports numpy or torch, so that the help of a command starts quickly.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin

from polyhead.bounds import Bounds
from polyhead.config import from_dict
from polyhead.errors import ConfigError
from polyhead.plugin_registry import Registry

T = TypeVar("T")


@dataclass(frozen=True)
class NoOptions:
    """No options."""


@dataclass(frozen=True)
class ClassifyOptions:
    """Options of a classification; `scores`: its row has the probabilities of all classes."""

    scores: bool = False


@dataclass(frozen=True)
class FillOptions:
    """Options of masked tokens; `top` has no upper bound in Python.

    Every hypothesis for several masks is extended by as many candidates.
    """

    top: Annotated[int, Bounds(1, 200), "Number of candidates."] = 5


@dataclass(frozen=True)
class DetectOptions:
    """Options of the lines that show replaced words."""

    threshold: Annotated[float, Bounds(0, 1), "Mark words of at least this probability."] = 0.5


@dataclass(frozen=True)
class AnswerOptions:
    """Options of an answer.

    threshold: by how much the score of no answer must exceed that of the best answer; None: 0 for
        a model that was trained with such questions, while others always answer.
    """

    top: Annotated[int, Bounds(1, 20), "Number of answers to show."] = 5
    threshold: (
        Annotated[
            float,
            Bounds(-1000, 1000),
            "Margin by which no answer must win (default: 0, if the model was trained so).",
        ]
        | None
    ) = None


@dataclass(frozen=True)
class Verb:
    """A verb of the command line.

    task: the place of the task's class, "module:Class".
    activity: what a progress bar shows.
    help: of the command.
    route, request, response: texts of the API description; as `help` without those of a verb
        whose command and route are written by hand.
    options: a dataclass whose fields are the options; numbers have `Bounds`, and a text for help.
    defaults: of options whose default on the command line is another.
    """

    task: str
    activity: str
    help: str = ""
    route: str = ""
    request: str = ""
    response: str = ""
    options: type = NoOptions
    defaults: Mapping[str, Any] = field(default_factory=dict)


VERBS = Registry(
    "verb",
    {
        "fill": Verb(
            "polyhead.tasks.masked_tokens:MaskedLM",
            "filling",
            """Predict the masked tokens of a text.

            Each [MASK] of several is predicted alone, then all together from left to right; the
            number before such a line is the sum of the log probabilities.

            polyhead fill runs/bert "서울은 대한민국의 [MASK]이다"
            polyhead fill runs/bert --top 3 --jsonl < texts.txt
            """,
            "Predict the masked tokens of a text",
            "Predict the masked tokens of a text.",
            "Candidates for each blank alone, and for all together.",
            FillOptions,
        ),
        "detect": Verb(
            "polyhead.tasks.masked_tokens:ReplacedToken",
            "detecting",
            """Detect replaced words with the discriminator of an ELECTRA.

            Each text is printed with a probability after every word that looks replaced; --jsonl
            prints those of all words and tokens.

            polyhead detect runs/electra "수요일 도서관에 회의가 있어요."
            polyhead detect runs/electra --jsonl < texts.txt
            """,
            "Probability of every word of being replaced, by ELECTRA",
            "Detect replaced words of a text, with an ELECTRA.",
            "Probability of every word and token of being replaced.",
            DetectOptions,
        ),
        "tag": Verb(
            "polyhead.tasks.tagging:Tagging",
            "tagging",
            """Tag every word of a text.

            Prints a line of word and tag for every word, and an empty line after each text.

            polyhead tag runs/names "세종대왕은 서울에서 태어났다."
            polyhead tag runs/names --jsonl < texts.txt
            """,
            "Tag the words of texts",
            "Tag the words of texts.",
            "The words of each text with their tags, and the entities that the tags mark.",
        ),
        "classify": Verb(
            "polyhead.tasks.text_classification:TextClassification",
            "classifying",
            options=ClassifyOptions,
        ),
        "embed": Verb("polyhead.tasks.sentence_embedding:SentenceEmbedding", "embedding"),
        "answer": Verb(
            "polyhead.tasks.question_answering:QuestionAnswering",
            "answering",
            """Find the answers to questions in a text.

            polyhead answer runs/qa --context article.txt "세종은 어디에서 태어났나?"
            polyhead answer runs/qa --jsonl < questions.jsonl
            """,
            "Find the answer to a question in a text",
            "Find the answer to a question in a context.\n\n`threshold`: by how much the score of "
            "no answer must exceed that of the best answer; by default\n0 for a model that was "
            "trained with such questions, while others always answer.",
            "The best answer, and the next ones; places are characters of the context.",
            AnswerOptions,
            {"top": 1},
        ),
    },
)


class OptionField(NamedTuple):
    """A field of options: its type without what `Annotated` adds, its bounds and its help."""

    name: str
    kind: Any
    default: Any
    bounds: Bounds | None
    help: str | None


def option_fields(options: type) -> list[OptionField]:
    """Return the fields of options, for the command line and for checks in Python.

    Annotated[int, Bounds(1, 20), "help"] | None becomes int | None with bounds and help.
    """
    shown = []
    for item in fields(options):
        kinds = [kind for kind in get_args(item.type) if kind is not NoneType]
        is_optional = get_origin(item.type) in (Union, UnionType) and len(kinds) == 1
        kind: Any = kinds[0] if is_optional else item.type
        kind, *marks = get_args(kind) if get_origin(kind) is Annotated else (kind,)
        bounds = next((mark for mark in marks if isinstance(mark, Bounds)), None)
        text = next((mark for mark in marks if isinstance(mark, str)), None)
        plain = kind | None if is_optional else kind
        shown.append(OptionField(item.name, plain, item.default, bounds, text))
    return shown


def build_options(options: type[T], given: Mapping[str, Any]) -> T:
    """Return options of these values; ConfigError for an unknown name or one out of bounds."""
    for option in option_fields(options):
        value, bounds = given.get(option.name), option.bounds
        if isinstance(value, int | float) and bounds and not bounds.low <= value <= bounds.high:
            expected = f"expected {bounds.low:g} to {bounds.high:g}"
            raise ConfigError(f"{option.name} = {value}: {expected}", "out_of_range")
    return from_dict(options, given)
