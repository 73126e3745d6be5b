"""`polyhead data list`, `make`, `get`, `check` and `cache`."""

import json
import re
import time
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from polyhead.cli.options import (
    Encoding,
    Files,
    Json,
    LabelColumn,
    Labelled,
    Pairs,
    SourceColumn,
    TargetColumn,
    TextColumn,
    as_strings,
)
from polyhead.cli.streams import say
from polyhead.errors import ConfigError, DataError

DAYS = {"d": 1.0, "h": 1 / 24}

Output = Annotated[Path | None, Option(help="Directory to write (default: the cache).")]


def list_corpora() -> None:
    """List the known corpora and where they are installed."""
    from polyhead.data.catalog import KNOWN
    from polyhead.data.locate import installed

    for known in KNOWN.values():
        size = sum(download.n_bytes or download.files[0].n_bytes for download in known.downloads)
        details = [" ".join(known.languages), f"{size / 1e6:.1f} MB" if size else "", known.licence]
        place = installed(known)
        print(f"{known.name}  ({'; '.join(filter(None, details))})")
        print(f"    {known.description}")
        print(f"    installed: {place}" if place else f"    {known.command}")


def make_corpus(
    name: str = Argument(help="Name of a generated corpus: schedules."),
    output: Output = None,
    size: int = Option(12_000, help="Number of training pairs."),
    seed: int = Option(1, help="Random seed."),
) -> None:
    """Generate the embedded Korean-English corpus.

    polyhead data make schedules --output data/schedules
    """
    from polyhead.data.catalog import lookup
    from polyhead.data.locate import home
    from polyhead.data.schedules.generator import write

    if lookup(name).kind != "made":
        raise ConfigError(f"{name} is downloaded with: polyhead data get {name}", "wrong_command")
    print(*write(output or home() / name, n_train=size, seed=seed), sep="\n")


def get_corpus(
    name: str = Argument(help="Name of a corpus from `polyhead data list`."), output: Output = None
) -> None:
    """Download a corpus and verify its checksums; resume if interrupted.

    polyhead data get multi30k
    polyhead data get nsmc --output data/nsmc
    """
    from polyhead.cli.console import download_progress
    from polyhead.data.catalog import lookup
    from polyhead.data.download import fetch
    from polyhead.data.locate import SUMS, recorded_sums

    corpus = lookup(name)
    with download_progress() as progress:
        paths = fetch(corpus, output, progress=progress)
    print(*paths, sep="\n")
    say(f"licence: {corpus.licence}")
    sums = recorded_sums(paths[0].parent)
    for path in paths:
        if path.name in sums:
            say(f"{path.name}: no published checksum; SHA-256 {sums[path.name]} is in {SUMS}")


def check_corpus(
    source: Files = None,
    target: Files = None,
    pairs: Pairs = None,
    data: Labelled = None,
    source_column: SourceColumn = None,
    target_column: TargetColumn = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    test_source: Files = None,
    test_target: Files = None,
    encoding: Encoding = "utf-8",
    json_out: Json = False,
) -> None:
    """Report misaligned and duplicate pairs and overlap with a test set.

    Of tables (--pairs, --data) it also says what is in each column and which would be used. Exits
    with 4 if a problem would spoil training.

    polyhead data check --source a.ko --target a.en --test-source b.ko --test-target b.en
    polyhead data check --pairs corpus.csv
    polyhead data check --data reviews.tsv --text-column 2 --label-column 3
    """
    from polyhead.data.columns import LABEL_ROLES, PAIR_ROLES, choose_columns, describe_columns
    from polyhead.data.doctor.checks import check_files
    from polyhead.data.tables import open_table

    files = as_strings({"source": source, "target": target, "pairs": pairs})
    keys, labels = (source_column, target_column), (text_column, None, label_column)
    of_a_report = (json_out or test_source or test_target) and not any(files.values())
    if (any(keys) and not pairs) or (any(labels) and not data) or (of_a_report and data):
        raise ConfigError(
            "--source-column and --target-column belong to --pairs; --text-column and "
            "--label-column to --data; --json, --test-source and --test-target to pairs. Leave out "
            "what has no effect.",
            "no_effect",
        )
    for path in () if json_out else pairs or ():
        print(describe_columns(path, PAIR_ROLES, keys, encoding))
    for path in data or ():
        print(describe_columns(path, LABEL_ROLES, labels, encoding))
        table = open_table(path, encoding=encoding)
        choose_columns(table, LABEL_ROLES, labels)  # or an error
    if not any(files.values()) and data:
        return
    if not any(files.values()):
        raise ConfigError(
            "no corpus given; expected --source FILE --target FILE, --pairs FILE or --data FILE",
            "no_input",
        )
    tests = as_strings({"source": test_source, "target": test_target})
    report = check_files(files, tests, encoding, keys)
    print(report.to_json() if json_out else report.text())
    raise Exit(DataError.exit_code if report.worst == "error" else 0)


def cache(
    prune: bool = Option(
        False, "--prune", help="Delete stores that were not used for --older-than."
    ),
    older_than: str = Option("30d", help="Time since the last use, in days (30d) or hours (12h)."),
    all_stores: bool = Option(False, "--all", help="With --prune: delete all stores not in use."),
    verify: bool = Option(False, "--verify", help="Check all checksums; delete damaged stores."),
    json_out: Json = False,
) -> None:
    """List the encoded corpora in the cache, check or delete them.

    Large corpora are encoded once and kept for all runs with the same text and tokenizer, or with
    images of the same size. A store that a run uses is never deleted. Exits with 4 if --verify
    finds a damaged one.

    polyhead data cache
    polyhead data cache --verify
    polyhead data cache --prune --older-than 30d
    polyhead data cache --prune --all
    """
    from polyhead.data.corpus_cache import folder, list_stores, remove_damaged
    from polyhead.data.corpus_cache import prune as delete

    match = re.fullmatch(r"(\d{1,6})([dh])", older_than)
    if match is None:
        message = f"--older-than {older_than}: expected a number of days or hours, as 30d or 12h"
        raise ConfigError(message, "invalid_time")
    if all_stores and not prune:
        raise ConfigError("--all: only with --prune", "invalid_options")
    if verify and (problems := remove_damaged()):
        raise DataError("; ".join(problems), "damaged_store")
    days = 0.0 if all_stores else int(match[1]) * DAYS[match[2]]
    entries = delete(86_400 * days) if prune else list_stores()
    if json_out:
        print(json.dumps([entry._asdict() for entry in entries], ensure_ascii=False, indent=1))
        return
    for entry in entries:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.last_use))
        size = f"{entry.n_bytes / 1e6:,.1f} MB"
        state = "in use" if entry.in_use else f"last used {used}"
        print(f"{entry.key}  {size}, {state}")
        print(f"    {entry.contents} of {', '.join(entry.files)}")
    total = f"{sum(entry.n_bytes for entry in entries) / 1e6:,.1f} MB"
    count = f"{len(entries)} store{'s' * (len(entries) != 1)}"
    say(f"{count}, {total} {'deleted from' if prune else 'in'} {folder()}")
