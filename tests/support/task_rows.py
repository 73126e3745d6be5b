"""One row per task, or kind of it: a tiny run, its data, an input of the model and requests.

A task of a plug-in has the same contracts (tests/tasks) once it has a row.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

N_TRAIN, N_VALID = 48, 12
SIZES = {"n_layers": 1, "d_model": 16, "n_heads": 2, "d_ff": 24, "dropout": 0.1}
STEPS = {
    "train.steps": 6, "train.save_every": 2, "train.validate_every": 3, "train.log_every": 2,
    "train.max_tokens": 300, "train.seed": 7, "train.keep": 9,
    "train.schedule.kind": "constant", "train.schedule.rate": 1e-2, "train.schedule.warmup": 2,
}  # fmt: skip
NOUNS = ["회의", "수업", "점심", "약속", "출장", "발표", "면접", "산책"]
THINGS = ["meeting", "class", "lunch", "promise", "trip", "talk", "interview", "walk"]
DAYS = ["월요일", "화요일", "수요일", "목요일", "금요일", "토요일", "일요일"]
TEXT, OTHER = "금요일 4시에 발표가 있어요.", "일요일 9시에 산책이 있어요."
COLOURS = ("blue", "green", "red")
LONG = f"{TEXT} " * 60


def _fields(_given: Any, result: Any) -> dict[str, Any]:
    return asdict(result)


def _without_model(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name != "model"}


@dataclass(frozen=True)
class Row:
    """A task as users meet it.

    data: name of its examples; rows of equal data read equal files.
    option: of `polyhead train` and `polyhead evaluate`. stack: place of the sizes of the blocks.
    use: inputs, as lines that the command reads; `words` are its options, `keywords` those of
        Python that mean the same as `request`, the body of a request for the first input.
    others, wrong: more valid bodies, and fields that are out of bounds.
    record: the JSON line of an input and its result; `served`: (a part of) it, from an answer.
    panel: selector of what the page shows for the first input.
    method: of the pipeline; by default that of the name of the command.
    base: row whose run `--init` reads; None: its own.
    """

    task: str
    recipe: str
    data: str
    option: str
    stack: str
    verb: str
    use: tuple[str, ...]
    request: dict[str, Any]
    others: Sequence[dict[str, Any]]
    wrong: dict[str, Any]
    panel: str
    words: tuple[object, ...] = ()
    keywords: dict[str, Any] = field(default_factory=dict)
    record: Callable[[Any, Any], dict[str, Any]] = _fields
    served: Callable[[dict[str, Any]], dict[str, Any]] = _without_model
    settings: dict[str, Any] = field(default_factory=dict)
    base: str | None = "masked_lm"
    method: str = ""

    def call(self, pipeline: Any, given: Any) -> Any:
        """Return what a pipeline gives for a line of `use`, or for the file of an image."""
        arguments = [given]
        if self.verb == "answer":
            arguments = [self.request["question"], self.request["context"]]
        return getattr(pipeline, self.method or self.verb)(*arguments, **self.keywords)

    @property
    def route(self) -> str:
        """Return the route of the server."""
        return f"/v1/{self.verb}"

    def overrides(self, **changes: Any) -> dict[str, Any]:
        """Return the settings of a tiny run; in names of `changes`, __ is a dot."""
        settings = STEPS | {f"{self.stack}.{name}": size for name, size in SIZES.items()}
        settings |= {} if self.option == "images" else {"text.vocab": 600}
        changes = {name.replace("__", "."): value for name, value in changes.items()}
        return settings | self.settings | changes

    def refused(self) -> list[dict[str, Any]]:
        """Return bodies of requests that are refused."""
        first, *_ = self.request or {"image": ""}
        return [
            {**self.request, "unknown_option": 1}, {**self.request, first: None},
            {**self.request, first: 7}, {**self.request, "model": "nothing"},
            {**self.request, **self.wrong},
        ]  # fmt: skip


def _of_text(task: str, recipe: str, verb: str, data: str, *use: str, **more: Any) -> Row:
    values = {
        "option": "data", "stack": "model.encoder.stack", "request": {"text": use[0]},
        "wrong": {"text": "가" * 10_001}, "others": ({"text": [*use]}, {"text": LONG}),
    }  # fmt: skip
    return Row(task, recipe, data, verb=verb, use=use, **values | more)


def _translated(line: str, translations: Any) -> dict[str, Any]:
    best = [{name: getattr(one, name) for name in SCORED} for one in translations]
    return {"source": line, "translations": best}


def _hypotheses(answer: dict[str, Any]) -> dict[str, Any]:
    (best,) = answer["translations"]
    return {"translations": [{name: one[name] for name in SCORED} for one in best["hypotheses"]]}


def _classified(text: str, result: Any) -> dict[str, Any]:
    return {"text": text, **asdict(result)}


def _classes(answer: dict[str, Any]) -> dict[str, Any]:
    (result,) = answer["results"]
    shares = {one["label"]: one["probability"] for one in result["classes"]}
    more = {name: result[name] for name in ("labels", "number") if result[name] is not None}
    return {"label": result["label"], "probabilities": shares, **more}


SCORED = ("text", "score", "log_p", "confidence")
PLAIN = {"option": "text", "stack": "model.stack", "base": None}
CLASSES = {"panel": ".answer", "record": _classified, "served": _classes}
CLASSIFY = ("text_classification", "classify-small", "classify")
EMBED = ("sentence_embedding", "embed-small", "embed")
VECTORS: dict[str, Any] = {
    "panel": ".matrix", "record": lambda text, row: {"text": text, "embedding": row.tolist()},
    "served": lambda answer: {"embedding": answer["embeddings"][0]},
}  # fmt: skip
PAIR = {"text": TEXT, "text_pair": OTHER}
MASKED = "금요일 4시에 [MASK] 있어요."
QUESTION = {"question": "몇 시?", "context": TEXT}
ROWS = {
    "translation": _of_text(
        "translation", "small", "translate", "pairs", TEXT, OTHER, **PLAIN | {"option": "pairs"},
        settings={"train.bleu_sentences": 4}, wrong={"beam": 0}, panel=".text",
        others=({"text": [TEXT, OTHER], "n_best": 2, "beam": 3, "tokens": True},
                {"text": TEXT, "beam": 1, "max_length": 5, "alignment": True}),
        method="n_best", record=_translated, served=_hypotheses,
    ),
    "language_modeling": _of_text(
        "language_modeling", "gpt-tiny", "generate", "text", TEXT, **PLAIN, panel="#write",
        request={"prompt": TEXT, "stream": False, "greedy": True, "max_tokens": 6},
        others=({"prompt": TEXT, "stream": False, "seed": 3, "max_tokens": 6},
                {"prompt": TEXT, "max_tokens": 4}),
        wrong={"temperature": 0}, words=("--greedy", "--max-tokens", 6),
        keywords={"max_length": 6, "sample": False},
        record=lambda prompt, text: {"prompt": prompt, "text": str(text), "seed": 0},
        served=lambda answer: {name: answer[name] for name in ("prompt", "text")},
    ),
    "masked_lm": _of_text(
        "masked_lm", "bert-tiny", "fill", "text", MASKED, f"[MASK] {MASKED}", **PLAIN,
        wrong={"top": 51}, panel=".option",
        others=({"text": f"[MASK] {MASKED}", "top": 2}, {"text": MASKED, "top": 50}),
    ),
    "replaced_token": _of_text(
        "replaced_token", "electra-tiny", "detect", "text", TEXT, OTHER, **PLAIN,
        settings={"model.d_embed": 8}, panel=".suspects",
        others=({"text": OTHER}, {"text": f"{TEXT} {OTHER}"}),
    ),
    "single_label": _of_text(*CLASSIFY, "single_label", TEXT, OTHER, **CLASSES),
    "multi_label": _of_text(*CLASSIFY, "multi_label", TEXT, OTHER, **CLASSES),
    "regression": _of_text(*CLASSIFY, "regression", TEXT, OTHER, **CLASSES | {"panel": ".number"}),
    "text_pairs": _of_text(
        *CLASSIFY, "text_pairs", f"{TEXT}\t{OTHER}", f"{TEXT}\t{TEXT}", **CLASSES, request=PAIR,
        others=({"text": [TEXT, TEXT], "text_pair": [OTHER, TEXT]}, PAIR | {"top": 1}),
        wrong={"top": 0},
    ),
    "contrastive": _of_text(*EMBED, "sentences", TEXT, OTHER, option="pairs", **VECTORS),
    "graded": _of_text(*EMBED, "graded", TEXT, OTHER, **VECTORS),
    "token_classification": _of_text(
        "token_classification", "tagger-small", "tag", "tags", TEXT, OTHER, panel=".tagged",
        served=lambda answer: answer["results"][0],
    ),
    "question_answering": _of_text(
        "question_answering", "qa-small", "answer", "questions",
        json.dumps(QUESTION, ensure_ascii=False), request=QUESTION, wrong={"top": 21},
        others=(QUESTION | {"top": 2, "threshold": 0.5}, QUESTION | {"context": LONG}),
        words=("--top", 5), panel=".tagged", served=lambda answer: answer["result"],
    ),
    "image_classification": Row(
        "image_classification", "vit-digits", "images", "images", "model.stack", "classify", (),
        {}, ({"top": 1}, {"top": 3}), {"top": 0}, "#map", ("--top", 3), {"top": 3},
        lambda path, result: {"image": str(path), "labels": [
            {"name": name, "probability": p} for name, p in result.probabilities.items()]},
        lambda answer: {"labels": [
            {"name": one["label"], "probability": one["probability"]}
            for one in answer["results"][0]["classes"]]},
        {"model.channels": 3, "model.stack.n_heads": 4}, None,
    ),
}  # fmt: skip


def examples(data: str, first: int = 0, n: int = N_TRAIN) -> list[Any]:
    """Return examples of some data by arithmetic; all have different texts."""
    numbers = range(first, first + n)
    if data == "images":  # as in folders of classes
        return [(picture(i), COLOURS[i % 3]) for i in sorted(numbers, key=lambda i: i % 3)]
    return [_example(data, number) for number in numbers]


def _example(data: str, i: int) -> Any:
    noun, day, hour = i % 8, (i // 3) % 7, i % 12 + 1
    words = [DAYS[day], f"{hour}시에", f"{NOUNS[noun]}{'이' if i % 2 else '가'}", f"{i}번"]
    text = f"{' '.join(words)} {'있어요' if i % 2 else '없어요'}."
    other = f"There is {THINGS[noun]} {i} at {hour} on day {day}."
    if data == "questions":
        spans = {"text": [str(hour)], "answer_start": [text.index(f"{hour}시")]}
        return {"question": QUESTION["question"], "context": text, "answers": spans}
    pair = {"sentence1": text, "sentence2": text if i % 2 else TEXT}
    kinds: dict[str, Any] = {
        "pairs": {"source": text, "target": other},
        "sentences": {"sentence1": text, "sentence2": other},
        "single_label": {"text": text, "label": "there" if i % 2 else "gone"},
        "multi_label": {"text": text, "labels": ["odd"] * (i % 2) + ["late"] * (hour > 6)},
        "regression": {"text": text, "score": hour + 0.5},
        "text_pairs": pair | {"label": "same" if i % 2 else "different"},
        "graded": pair
        | {
            "sentence2": text.replace("어", "네") if i % 2 else TEXT,
            "score": 4.5 * (i % 2) + hour / 24,
        },
        "tags": {"words": words, "tags": ["B-DAY", "B-HOUR", "B-NOUN", "O"]},
    }
    return kinds.get(data, text)


def picture(i: int) -> Any:
    """Return an image of 8 x 8 pixels whose colour says its class."""
    import numpy as np

    places = np.arange(192)
    pixels = (40 + 170 * (places % 3 == i % 3) + 7 * i + places % 11) % 256
    return pixels.astype(np.uint8).reshape(8, 8, 3)


def write(data: str, path: Path, first: int = 0, n: int = N_TRAIN) -> Path:
    """Write examples as lines, as JSON lines or as a folder of images."""
    rows = examples(data, first, n)
    if data == "images":
        from PIL import Image

        for number, (pixels, label) in enumerate(rows):
            (path / label).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path / label / f"{number:02}.png")
        return path
    is_text = isinstance(rows[0], str)
    path = path.with_suffix(".txt" if is_text else ".jsonl")
    lines = rows if is_text else [json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def write_files(name: str, folder: Path) -> dict[str, str]:
    """Write data to train on and to validate on; return the paths by option."""
    row = ROWS[name]
    folder.mkdir(exist_ok=True)
    data = write(row.data, folder / "data")
    valid = write(row.data, folder / "valid", 100, N_VALID)
    return {row.option: str(data), f"valid_{row.option}": str(valid)}
