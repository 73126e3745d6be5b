"""/v1/VERB of tasks: bodies and responses follow from the task, and requests share batches."""

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, create_model
from starlette.requests import Request
from starlette.responses import Response

from polyhead.errors import ConfigError, DataError
from polyhead.pipelines.task_pipeline import pipeline_of, plugin_tasks
from polyhead.server.context import AppContext, Endpoint, disconnected, run_cancellable
from polyhead.server.model_registry import ServedModel
from polyhead.server.queued_work import BatchKey, IsCancelled, QueuedRequest
from polyhead.server.request_parsing import count_characters, read_json
from polyhead.server.responses import HTTPError, invalid_input, json_response
from polyhead.server.schemas import ModelRequest, Text, Texts
from polyhead.server.settings import MAX_BLANKS
from polyhead.special_tokens import MASK
from polyhead.tasks.base import Task
from polyhead.tasks.masked_tokens import MaskedLM, ReplacedToken
from polyhead.tasks.question_answering import QuestionAnswering
from polyhead.tasks.tagging import Tagging


def endpoint_of(
    task: Task[Any, Any, Any],
    inputs: dict[str, Any],
    options: dict[str, Any] | None = None,
    kind: str = "",
    *,
    alone: bool = False,
) -> Endpoint:
    """Return the route of a task.

    inputs: types of the texts of a request; the first one is `Texts` if there may be several.
    options: types of the options, if they are not those of the verb.
    kind: beginning of the names of the schemas, if it is not the verb.
    alone: requests share no batch, and the response has the fields of the one result.
    """
    words, kind = task.words, kind or task.verb.capitalize()
    defaults = {item.name: item.default for item in fields(words.options)}
    if options is None:
        options = {item.name: item.type for item in fields(words.options)}
    given: dict[str, Any] = {name: (type_, ...) for name, type_ in inputs.items()}
    given |= {name: (type_, defaults[name]) for name, type_ in options.items()}
    body_class = create_model(
        f"{kind}Request", __base__=ModelRequest, __doc__=words.request, **given
    )
    many = next(iter(inputs.values())) is Texts
    result: Any = list[task.result_class] if many else task.result_class  # type: ignore[name-defined]
    shape: dict[str, Any] = {"results" if many else "result": (result, ...)}
    if alone:
        shape = {item.name: (item.type, ...) for item in fields(task.result_class)}
    shape = {"model": (str, ...), **shape}
    response = create_model(f"{kind}Response", __base__=BaseModel, __doc__=words.response, **shape)

    pipeline_class = pipeline_of(task)

    async def use(context: AppContext, request: Request) -> Response:
        values = vars(await read_json(request, body_class))
        served: Any = context.models.pick(values["model"], pipeline_class)
        served = replace(served, model=served.model.for_verb(task.verb))
        columns = [values[name] for name in inputs]
        several = isinstance(columns[0], list)
        rows = list(zip(*columns, strict=True)) if several else [tuple(columns)]
        chosen = words.options(**{name: values[name] for name in options})
        blank = (name for name, text in zip(inputs, rows[0], strict=True) if not text.strip())
        _, results = await submit(
            context, request, served, rows, chosen, field=next(blank, task.fields[-1]), alone=alone
        )
        answer = {"results": results} if many else {"result": results[0]}
        answer = vars(results[0]) if alone else answer
        return json_response(response(model=served.name, **answer))

    return Endpoint(
        "POST", f"/v1/{task.verb}", words.route, use, body=body_class, response=response,
        statuses=(404, 429),
    )  # fmt: skip


async def submit(
    context: AppContext, request: Request, served: ServedModel[Any],
    rows: Sequence[tuple[str, ...]], options: Any, *, field: str = "text", alone: bool = False,
) -> tuple[list[Any], list[Any]]:  # fmt: skip
    """Return inputs and results of texts, in batches that requests with equal options share.

    field: the field of the request that an error of reading names.
    alone: of every batch, only one request.
    """
    model, task = served.model, served.model.task
    n_characters = sum(len(text) for row in rows for text in row)
    if len(task.fields) == 1:
        count_characters(["\t".join(row) for row in rows])
    try:
        inputs = await context.prepare(partial(task.read, model.used, rows), n_characters)
    except (ConfigError, DataError) as error:  # others are faults of the model
        raise invalid_input(error, field=field) from None

    def run(given: list[Any], is_cancelled: IsCancelled) -> Sequence[Any]:
        return run_cancellable(model, partial(model.results, given, options), is_cancelled)

    key = BatchKey((served.name, model.use, options), run, max_slots=1 if alone else 64)
    requests = [
        QueuedRequest(key, given, sum(len(part.ids) for part in given.parts)) for given in inputs
    ]
    results: list[Any] = await context.scheduler.submit(requests, disconnected(request))
    context.metrics.characters.inc(n_characters)
    return inputs, results


def check_blanks(text: str) -> str:
    """Return a text if it has no more masks than a request may have."""
    if text.count(MASK) > MAX_BLANKS:
        message = f"more than {MAX_BLANKS} blanks"
        raise HTTPError(422, message, field="text", code="too_many_blanks")
    return text


Blanks = Annotated[Text, AfterValidator(check_blanks)]


def plugin_endpoints() -> list[Endpoint]:
    """Return the routes of the tasks that plug-ins have registered."""
    return [endpoint_of(task, {"text": Texts}) for task in plugin_tasks()]


Question = Annotated[str, Field(max_length=2000)]
Top = Annotated[int, Field(ge=1, le=50)]  # of the candidates of every blank
ENDPOINTS = (
    endpoint_of(MaskedLM(), {"text": Blanks}, {"top": Top}, alone=True),
    endpoint_of(ReplacedToken(), {"text": Text}, {}, "DetectReplaced", alone=True),
    endpoint_of(Tagging(), {"text": Texts}),
    endpoint_of(QuestionAnswering(), {"question": Question, "context": Text}),
)
