"""One row per task, or kind of it: a tiny run, its data, an input of the model and requests.

A task of a plug-in has the same contracts (tests/tasks) once it has a row.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class Row:
    """A task as users meet it.

    option: of `polyhead train` and `polyhead evaluate`.
    use: inputs of the command, a line each.
    request, others: bodies of valid requests; `wrong`: fields that are out of bounds.
    base: row whose run `--init` reads; None: its own.
    """

    task: str
    recipe: str
    option: str
    stack: str
    use: tuple[str, ...]
    route: str
    request: dict[str, Any]
    others: Sequence[dict[str, Any]]
    wrong: dict[str, Any]
    verb: str
    settings: dict[str, Any] = field(default_factory=dict)
    base: str | None = None

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
            {**self.request, "unknown_option": 1}, {first: None}, {**self.request, first: 7},
            {**self.request, "model": "nothing"}, {**self.request, **self.wrong},
        ]  # fmt: skip


def _text_row(task: str, recipe: str, verb: str, *use: str, **more: Any) -> Row:
    values = {
        "option": "data", "stack": "model.encoder.stack", "route": f"/v1/{verb}",
        "request": {"text": use[0]}, "wrong": {"text": "가" * 10_001}, "base": "masked_lm",
        "others": ({"text": [*use]}, {"text": LONG}),
    }  # fmt: skip
    return Row(task, recipe, use=use, verb=verb, **values | more)


CLASSIFY = ("text_classification", "classify-small", "classify")
EMBED = ("sentence_embedding", "embed-small", "embed")
PAIR = {"text": TEXT, "text_pair": OTHER}
MASKED = "금요일 4시에 [MASK] 있어요."
QUESTION = {"question": "몇 시?", "context": TEXT}
ROWS = {
    "translation": _text_row(
        "translation", "small", "translate", TEXT, OTHER, option="pairs", stack="model.stack",
        settings={"train.bleu_sentences": 4}, base=None, wrong={"beam": 0},
        others=({"text": [TEXT, OTHER], "n_best": 2, "beam": 3, "tokens": True},
                {"text": TEXT, "beam": 1, "max_length": 5, "alignment": True}),
    ),
    "language_modeling": _text_row(
        "language_modeling", "gpt-tiny", "generate", TEXT, option="text", stack="model.stack",
        request={"prompt": TEXT, "stream": False, "greedy": True, "max_tokens": 6}, base=None,
        others=({"prompt": TEXT, "stream": False, "seed": 3, "max_tokens": 6},
                {"prompt": TEXT, "max_tokens": 4}),
        wrong={"temperature": 0},
    ),
    "masked_lm": _text_row(
        "masked_lm", "bert-tiny", "fill", MASKED, f"[MASK] {MASKED}", option="text",
        stack="model.stack", base=None, wrong={"top": 51},
        others=({"text": f"[MASK] {MASKED}", "top": 2}, {"text": MASKED, "top": 50}),
    ),
    "replaced_token": _text_row(
        "replaced_token", "electra-tiny", "detect", TEXT, OTHER, option="text",
        stack="model.stack", settings={"model.d_embed": 8}, base=None,
        others=({"text": OTHER}, {"text": f"{TEXT} {OTHER}"}),
    ),
    "single_label": _text_row(*CLASSIFY, TEXT, OTHER),
    "multi_label": _text_row(*CLASSIFY, TEXT, OTHER),
    "regression": _text_row(*CLASSIFY, TEXT, OTHER),
    "text_pairs": _text_row(
        *CLASSIFY, f"{TEXT}\t{OTHER}", f"{TEXT}\t{TEXT}", request=PAIR, wrong={"top": 0},
        others=({"text": [TEXT, TEXT], "text_pair": [OTHER, TEXT]}, PAIR | {"top": 1}),
    ),
    "contrastive": _text_row(*EMBED, TEXT, OTHER, option="pairs"),
    "graded": _text_row(*EMBED, TEXT, OTHER),
    "token_classification": _text_row(
        "token_classification", "tagger-small", "tag", TEXT, OTHER
    ),
    "question_answering": _text_row(
        "question_answering", "qa-small", "answer", json.dumps(QUESTION, ensure_ascii=False),
        request=QUESTION, others=(QUESTION | {"top": 2, "threshold": 0.5},
                                  QUESTION | {"context": LONG}), wrong={"top": 21},
    ),
    "image_classification": Row(
        "image_classification", "vit-digits", "images", "model.stack", (), "/v1/classify", {},
        ({"top": 1}, {"top": 3}), {"top": 0}, "classify",
        {"model.channels": 3, "model.stack.n_heads": 4},
    ),
}  # fmt: skip


def examples(name: str, first: int = 0, n: int = N_TRAIN) -> list[Any]:
    """Return examples of a row by arithmetic, without a seed; all have different texts."""
    numbers = range(first, first + n)
    if name == "image_classification":  # as in folders of classes
        return [(picture(i), COLOURS[i % 3]) for i in sorted(numbers, key=lambda i: i % 3)]
    return [_example(name, number) for number in numbers]


def _example(name: str, i: int) -> Any:
    noun, day, hour = i % 8, (i // 3) % 7, i % 12 + 1
    words = [DAYS[day], f"{hour}시에", f"{NOUNS[noun]}{'이' if i % 2 else '가'}", f"{i}번"]
    text = f"{' '.join(words)} {'있어요' if i % 2 else '없어요'}."
    other = f"There is {THINGS[noun]} {i} at {hour} on day {day}."
    if name == "question_answering":
        spans = {"text": [str(hour)], "answer_start": [text.index(f"{hour}시")]}
        return {"question": QUESTION["question"], "context": text, "answers": spans}
    pair = {"sentence1": text, "sentence2": text if i % 2 else TEXT}
    kinds: dict[str, Any] = {
        "translation": {"source": text, "target": other},
        "contrastive": {"sentence1": text, "sentence2": other},
        "single_label": {"text": text, "label": "there" if i % 2 else "gone"},
        "multi_label": {"text": text, "labels": ["odd"] * (i % 2) + ["late"] * (hour > 6)},
        "regression": {"text": text, "score": hour + 0.5},
        "text_pairs": pair | {"label": "same" if i % 2 else "different"},
        "graded": pair | {"score": 4.5 * (i % 2) + hour / 24},
        "token_classification": {"words": words, "tags": ["B-DAY", "B-HOUR", "B-NOUN", "O"]},
    }
    return kinds.get(name, text)


def picture(i: int) -> Any:
    """Return an image of 8 x 8 pixels whose colour says its class."""
    import numpy as np

    places = np.arange(192)
    pixels = (40 + 170 * (places % 3 == i % 3) + 7 * i + places % 11) % 256
    return pixels.astype(np.uint8).reshape(8, 8, 3)


def write(name: str, path: Path, first: int = 0, n: int = N_TRAIN) -> Path:
    """Write examples as lines, as JSON lines or as a folder of images."""
    rows = examples(name, first, n)
    if name == "image_classification":
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
    option = ROWS[name].option
    folder.mkdir(exist_ok=True)
    data = write(name, folder / "data")
    valid = write(name, folder / "valid", 100, N_VALID)
    return {option: str(data), f"valid_{option}": str(valid)}
