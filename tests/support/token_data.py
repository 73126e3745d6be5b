"""Small files of tagged words and of questions, whose labels follow from the words."""

import json
import random
from pathlib import Path

NAMES, OTHERS = ("민수", "영희", "Anna"), ("오늘", "어제", "빨리")


def write_tagged(path: Path, n: int, seed: int = 0) -> Path:
    """Write sentences with names (B-N, with 김 after it I-N) and numbers (B-Q)."""
    rng = random.Random(seed)
    lines = []
    for _ in range(n):
        name = [(rng.choice(NAMES), "B-N"), *([("김", "I-N")] if rng.random() < 0.5 else [])]
        rest = [(rng.choice(OTHERS), "O"), (str(rng.randint(1, 9)), "B-Q"), (".", "O")]
        lines += [f"{word}\t{tag}\n" for word, tag in name + rest] + ["\n"]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def write_questions(path: Path, n: int, seed: int = 0, impossible: float = 0.0) -> Path:
    """Write contexts with one number each, which is the answer."""
    rng = random.Random(seed)
    records = []
    for _ in range(n):
        first, last = rng.choice(OTHERS), rng.choice(OTHERS)
        number = str(rng.randint(10, 99))
        context = f"{first} {rng.choice(NAMES)} {number}번 {last} 왔다."
        answers = {"text": [number], "answer_start": [context.index(number)]}
        if rng.random() < impossible:
            context, answers = context.replace(number, "여러"), {"text": [], "answer_start": []}
        records.append({"question": "몇 번?", "context": context, "answers": answers})
    rows = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    path.write_text("".join(rows), encoding="utf-8")
    return path
