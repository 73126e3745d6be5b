"""Mutants of tables and question files for `fuzz.py`: random damage, and attacks on memory."""

import gzip
import io
import json
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow
from fuzz_mutants import Kind, Mutant, damage, damage_json
from pyarrow import ipc, parquet

from polyhead.data.columns import LABEL_ROLES, PAIR_ROLES, describe_columns, read_columns
from polyhead.data.config import DataConfig
from polyhead.data.labelled_text import TEXTS, collect, stream_labelled
from polyhead.tasks.question_answering import QUESTIONS
from polyhead.tasks.tagging import TAGGED

MAX_MEGABYTES = 500.0  # of a child process that has pyarrow in memory
KO = ["안녕, 여러분.", "비가 와요; 우산 있어요?", "집에 갔다.", '그는 "좋아"라고 했다.'] * 8
EN = ["Hello all.", "It rains; an umbrella?", "He went home.", "He said yes."] * 8
CONTEXT = "세종은 1397년에 한양에서 태어났다."
COLUMNS: dict[str, Sequence[Any]] = {
    "ko": KO, "en": EN, "label": [n % 3 for n in range(len(KO))],
    "words": [text.split() for text in KO], "tags": [["O"] * len(text.split()) for text in KO],
    "translation": [{"de": a, "fr": b} for a, b in zip(KO, EN, strict=True)],
    "score": [n / 7 for n in range(len(KO))],
}  # fmt: skip
QUESTION = {"question": "어디?", "answers": [{"text": "한양", "answer_start": 11}]}
SQUAD = {
    "version": "2",
    "data": [{"paragraphs": [{"context": CONTEXT, "qas": [QUESTION] * 3}]}] * 3,
}
ODD = (None, [], {}, "x", 5, -1, 1.5, True, "\ud800", "\0", "9" * 5_000, [[]], {"text": 5})
CSV = "ko,en\n" + "".join(f'"{k}","{e}"\n' for k, e in zip(KO, EN, strict=True)).replace("'", '""')
TSV = "".join(f"{k}\t{e}\t{n % 2}\n" for n, (k, e) in enumerate(zip(KO, EN, strict=True)))
TMX = '<?xml version="1.0"?><tmx version="1.4"><header/><body>' + "".join(
    f'<tu><tuv xml:lang="ko"><seg>{k}</seg></tuv><tuv xml:lang="en"><seg>{e}</seg></tuv></tu>'
    for k, e in zip(KO, EN, strict=True)
) + "</body></tmx>"  # fmt: skip
RECORDS = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]
CONLLU = "# text = a\tb\n1-2\tdu" + "\t_" * 8 + "\n1\tde\tde\tADP" + "\t_" * 6 + "\n\n"


def opened(content: bytes, path: Path, rng: Random, most: float = 300.0) -> Mutant:
    """Return a mutant that is read for a random task; its columns are named half of the time."""
    reading, is_named = rng.randrange(6), rng.random() < 0.5

    def opening() -> None:
        path.write_bytes(content)
        if reading == 0:
            describe_columns(path, PAIR_ROLES)
        elif reading < 3:
            roles = (PAIR_ROLES, LABEL_ROLES)[reading - 1]
            keys = (("ko", "en"), ("ko", None, "label"))[reading - 1]
            given = keys if is_named else (None,) * len(roles)
            for _ in read_columns(path, roles, given).records:
                pass
        else:
            form = (TEXTS, TAGGED, QUESTIONS)[reading - 3]
            text, label = (("ko", "label"), ("words", "tags"), (None, None))[reading - 3]
            config = DataConfig(text_key=text, label_key=label) if is_named else DataConfig()
            collect(stream_labelled([str(path)], config, [], form))

    return Mutant(len(content), opening, most)


def text_mutants(folder: Path) -> Callable[[Random], Mutant]:
    """Mutants of CSV, TSV, JSON, TMX and CoNLL files."""
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in RECORDS)
    texts = [text.encode() for text in (CSV, TSV, lines, json.dumps(RECORDS), TMX, CONLLU * 9)]

    def mutant(rng: Random) -> Mutant:
        content = damage(rng.choice(texts), rng)
        at = rng.randrange(len(content) + 1)
        extra = rng.choice((b"", b"", b"\r", b"\0", b'"', b"9" * 5_000, b"[" * 9_000, b"\xff\xfe"))
        content = content[:at] + extra + content[at:]
        content = gzip.compress(content, 1) if rng.random() < 0.2 else content
        return opened(content, folder / rng.choice(("a.txt", "a.csv", "a.jsonl")), rng)

    return mutant


def question_mutants(folder: Path) -> Callable[[Random], Mutant]:
    """Mutants of files in SQuAD's form, and of tables of questions."""
    row = {
        "question": "어디?",
        "context": CONTEXT,
        "answers": {"text": ["한양"], "answer_start": [11]},
    }

    def mutant(rng: Random) -> Mutant:
        tree = damage_json(rng.choice((SQUAD, row)), rng, ODD)
        content = json.dumps(tree).encode() + b"\n"
        content = damage(content, rng) if rng.random() < 0.2 else content
        return opened(content, folder / "a.json", rng)

    return mutant


def arrow_mutants(folder: Path, *, is_parquet: bool) -> Callable[[Random], Mutant]:
    """Mutants of Arrow or Parquet files, damaged mostly where offsets and sizes are."""
    table = pyarrow.table(COLUMNS)
    table = table.append_column("kind", pyarrow.array(EN).dictionary_encode())
    bases = []
    for kind in ("none", "zstd", "snappy" if is_parquet else "lz4"):
        for stream in (ipc.new_file, ipc.new_stream):
            file = io.BytesIO()
            if is_parquet:
                parquet.write_table(table, file, compression=kind, row_group_size=9)
            else:
                options = ipc.IpcWriteOptions(compression=None if kind == "none" else kind)
                with stream(file, table.schema, options=options) as writer:
                    writer.write_table(table)
            bases.append(file.getvalue())

    def bomb(rng: Random) -> bytes:
        n_rows, width = rng.choice(((1_000_000, 9), (200_000, 9_000), (3_000_000, 0)))
        numbers = pyarrow.array(memoryview(bytes(4 * n_rows)).cast("i"), "int32")
        texts = pyarrow.DictionaryArray.from_arrays(numbers, ["x" * width])
        file, large = io.BytesIO(), pyarrow.table({"ko": texts, "en": texts})
        if is_parquet:
            parquet.write_table(large, file, compression="zstd")
        else:
            options = ipc.IpcWriteOptions(compression="zstd")
            with ipc.new_file(file, large.schema, options=options) as writer:
                writer.write_table(large)
        return file.getvalue()

    def mutant(rng: Random) -> Mutant:
        content = bomb(rng) if rng.random() < 0.01 else damage(rng.choice(bases), rng)
        return opened(content, folder / "a.arrow", rng, MAX_MEGABYTES)

    return mutant


def sheet_mutants(folder: Path) -> Callable[[Random], Mutant]:
    """Mutants of .xlsx files: of their XML, and of the archive."""
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006/relationships"
    cells = "".join(
        f'<row r="{n}"><c r="A{n}" t="inlineStr"><is><t>{k}</t></is></c><c r="B{n}" t="s">'
        f'<v>{n % 4}</v></c><c r="C{n}"><v>{n / 3}</v></c></row>'
        for n, k in enumerate(KO, start=1)
    )
    parts = {
        "_rels/.rels": f'<Relationships xmlns="{package}"><Relationship Id="rId1" '
        f'Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets><sheet name="a" '
        'sheetId="1" r:id="rId1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}"><Relationship Id="rId1" '
        f'Type="{office}/worksheet" Target="worksheets/sheet1.xml"/><Relationship Id="rId2" '
        f'Type="{office}/sharedStrings" Target="sharedStrings.xml"/></Relationships>',
        "xl/sharedStrings.xml": f'<sst xmlns="{main}">'
        + "".join(f"<si><t>{e}</t></si>" for e in EN[:4]) + "</sst>",
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData>{cells}</sheetData>'
        "</worksheet>",
    }  # fmt: skip

    def mutant(rng: Random) -> Mutant:
        file = io.BytesIO()
        victim = rng.choice([*parts, "xl/worksheets/sheet1.xml", ""])
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in parts.items():
                content = text.encode()
                if name == victim and rng.random() < 0.1:
                    cell = f'<c r="{rng.choice(("A", "XFD"))}1048576"><v>1</v></c>'
                    row = f'<row r="1048576">{cell}</row>'
                    content = text.replace("</sheetData>", f"{row}</sheetData>").encode()
                elif name == victim and rng.random() < 0.05:
                    content = text.replace(cells, cells * rng.choice((100, 10_000))).encode()
                elif name == victim:
                    content = damage(content, rng)
                archive.writestr(name, content)
        content = file.getvalue() if victim else damage(file.getvalue(), rng)
        return opened(content, folder / "a.xlsx", rng, MAX_MEGABYTES)

    return mutant


TABLES = {
    "table": Kind(10_000, text_mutants),
    "questions": Kind(10_000, question_mutants),
    "arrow": Kind(10_000, partial(arrow_mutants, is_parquet=False)),
    "parquet": Kind(10_000, partial(arrow_mutants, is_parquet=True)),
    "xlsx": Kind(10_000, sheet_mutants),
}
