"""The directory of a run: its layout, its lock, and the checks before a run is resumed.

    config.toml     the whole configuration, with all defaults
    data.json       a fingerprint of the training data
    held-out.jsonl  the first held-out texts, each with its translation or label, for reports
    tokenizer/      trained once, then kept
    checkpoints/    step-00001000/ …, each a complete model with its training state
    best, last      links to two of them; files with their names where there are no links
    metrics.jsonl, train.log, tensorboard/, tracking.json, samples/
    inputs/         data that was given in memory

Other files in the directory are ignored.
"""

import json
import math
import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from polyhead.atomic_file import (
    TEMPORARY,
    lock,
    os_errors_as_polyhead_errors,
    remove,
    rename,
    write_text,
)
from polyhead.checkpoint import train_state
from polyhead.checkpoint.atomic_dir import (
    CHECKPOINTS,
    DRAFT,
    HELD_OUT,
    atomic_dir,
    checkpoint_path,
    link,
    list_checkpoints,
    newest_checkpoint,
    remove_drafts,
    remove_old_checkpoints,
    verify,
)
from polyhead.checkpoint.languages import set_languages, set_run_languages
from polyhead.checkpoint.model_card import model_card
from polyhead.checkpoint.model_dir import SavedModel, read_family_config, write_model
from polyhead.checkpoint.model_files import resolve, saved_languages
from polyhead.checkpoint.tensors import save_tensors
from polyhead.config import differences, from_dict
from polyhead.data.bilingual_dictionary import FILE as DICTIONARY
from polyhead.data.config import FORMER, LISTS, DataConfig
from polyhead.data.images.image_arrays import LABELS
from polyhead.data.languages import configured_languages
from polyhead.data.line_spool import Examples
from polyhead.data.stored_text import ORDER
from polyhead.errors import CheckpointError, ConfigError, DataError, Diverged, PolyheadError
from polyhead.models.registry import FAMILIES
from polyhead.training.config import RunConfig, build
from polyhead.training.loop import Progress
from polyhead.training.optim import ScheduleConfig
from polyhead.training.processes import Processes
from polyhead.training.run_log import RunLog, read_metrics
from polyhead.training.sharding import collect_weights, local_part

CONFIG, DATA, TOKENIZER, SAMPLES = "config.toml", "data.json", "tokenizer", "samples"
LOCK, INPUTS, N_HELD_OUT = ".lock", "inputs", 1000
INPUT = re.compile(rf"(?:.*[/\\])?{INPUTS}[/\\](\w+)(?:-[0-9a-f]{{16}}\.\w+)?$")
INPUT_FILE = re.compile(rf"\w+-[0-9a-f]{{16}}\.\w+({LABELS})?|{re.escape(TEMPORARY)}.*")
OWN_FILES = (
    CONFIG, DATA, HELD_OUT, TOKENIZER, CHECKPOINTS, "best", "last", "metrics.jsonl", "train.log",
    "tensorboard", "tracking.json", SAMPLES, DICTIONARY,
)  # fmt: skip
TABLES = {"data", "text", "model", "train", "decode"}
FIXED = ("data.", "text.", "model.", "train.seed:", "train.init:")  # cannot change within a run
WITHOUT_EFFECT = {  # may always change: the weights stay equal
    "train": ("workers", "keep", "timeout"),
    "data": ("source_language", "target_language", "store"),
}


class RunDir:
    """The directory of one run, with the directories of its checkpoints and tokenizers.

    fresh: start over. accept_changes: resume with another configuration.
    """

    def __init__(self, path: Path, *, fresh: bool = False, accept_changes: bool = False) -> None:
        self.fresh, self.accept_changes = fresh, accept_changes
        self.path, self.checkpoints, self.tokenizer = path, path / CHECKPOINTS, path / TOKENIZER
        self.inputs = path / INPUTS

    @contextmanager
    def exclusive_lock(self) -> Iterator[None]:
        """Create the directory and lock it for this process."""
        self.check_is_run_dir()
        created = [path for path in (self.path, *self.path.parents) if not path.exists()]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / LOCK).open("a+")
        except OSError as error:
            raise PolyheadError(f"cannot write to {self.path}: {error.strerror}", "io") from None
        with file:
            if not lock(file):
                file.seek(0)
                raise PolyheadError(
                    f"{self.path} is in use by another training process "
                    f"({file.read(20).strip()}). Wait for it, or choose another --run directory.",
                    "run_in_use",
                )
            try:
                self._inode = self.path.stat().st_ino
                with os_errors_as_polyhead_errors(self.path / LOCK):
                    file.truncate(0)
                    file.write(f"{os.getpid()}\n")
                    file.flush()
                yield
            except (OSError, PolyheadError):
                self.check_in_place()
                raise
            finally:
                self.remove_unused_inputs()
                with suppress(OSError):  # another process may have created a file
                    if [path.name for path in self.path.iterdir()] == [LOCK]:  # never started
                        (self.path / LOCK).unlink()
                        for path in created:
                            path.rmdir()

    def remove_unused_inputs(self) -> None:
        """Remove data given in memory that the configuration does not name."""
        named = ""
        with suppress(OSError, UnicodeDecodeError):
            named = (self.path / CONFIG).read_text(encoding="utf-8")
        with suppress(OSError):
            for file in list(self.inputs.iterdir()):
                is_ours = INPUT_FILE.fullmatch(file.name)
                if is_ours and file.name.removesuffix(LABELS) not in named:
                    file.unlink()
            self.inputs.rmdir()  # unless it has files

    def check_in_place(self) -> None:
        """Raise PolyheadError if the locked directory was moved or deleted."""
        with suppress(OSError):
            if self.path.stat().st_ino == self._inode:
                return
        raise PolyheadError(
            f"{self.path} was moved or deleted during training. To resume from its last "
            "checkpoint, move it back and run the same command again.",
            "run_moved",
        )

    def check_is_run_dir(self) -> None:
        """Reject a non-empty directory without the configuration of a run."""
        if not self.path.is_dir():
            return
        with suppress(OSError, ValueError, RecursionError):
            text = (self.path / CONFIG).read_text(encoding="utf-8")
            if tomllib.loads(text).keys() >= TABLES:
                return
        for path in sorted(self.path.iterdir()):
            if path.name not in (*OWN_FILES, LOCK, INPUTS) and not DRAFT.fullmatch(path.name):
                raise ConfigError(
                    f"{self.path} is not a run directory (contains {path.name}). Choose another "
                    "--run directory.",
                    "not_a_run_dir",
                )

    def check_config(self, config: RunConfig) -> list[str]:
        """Check that a run would be resumed as it was started; return the accepted changes."""
        own = self.path.resolve()  # `start` would remove data or a model inside it
        paths = {f"data.{name}": getattr(config.data, name) for name in LISTS}
        paths["train.init"] = () if config.train.init is None else (config.train.init,)
        for name, values in paths.items():
            for value in values:
                path = Path(value).resolve()
                if path == own or any(path.is_relative_to(own / part) for part in OWN_FILES):
                    raise ConfigError(
                        f"{name} = {value!r} is inside {self.path}, the directory of this run. "
                        "Choose another --run directory.",
                        "self_reference",
                    )
        if self.fresh or not (self.path / CONFIG).exists():
            return []
        changes = self.changes(config)
        for change in changes:
            if change.startswith(FIXED):
                raise ConfigError(
                    f"{self.path} was created with a different configuration, and {change} cannot "
                    "change within a run. Use --fresh to start over, or another --run directory.",
                    "config_changed",
                )
        if changes and not self.accept_changes:
            raise ConfigError(
                f"{self.path} was created with a different configuration ({'; '.join(changes)}). "
                "Use the original configuration to resume, --accept-changes to resume with the new "
                "one, --fresh to start over, or another --run directory.",
                "config_changed",
            )
        return changes

    def changes(self, config: RunConfig) -> list[str]:
        """Return the differences between the saved configuration and this one."""
        path = self.path / CONFIG
        try:
            before = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{path} cannot be read: {error}", "unreadable_config") from None
        data = config.data
        holds_out = (data.source or data.pairs) and not (data.valid_source or data.valid_pairs)
        if holds_out and isinstance(before.get("data"), dict):
            before["data"] = FORMER | before["data"]
        # Options that a file of an earlier version lacks had their present default.
        with suppress(ConfigError):  # values that are invalid now are reported as differences
            before = tomllib.loads(build(before).toml())
        after = tomllib.loads(config.toml())
        for values in (before, after):
            values.pop("description", None)
            for table, names in WITHOUT_EFFECT.items():
                for name in names:
                    values.get(table, {}).pop(name, None)
            values.setdefault("data", {})
            for name in LISTS if isinstance(values["data"], dict) else ():
                if isinstance(paths := values["data"].get(name), list):  # also of data in memory,
                    equal = [INPUT.sub(rf"{INPUTS}/\1", str(path)) for path in paths]
                    values["data"][name] = equal  # of which the fingerprints are compared
        return differences(before, after)

    def start(self, config: RunConfig) -> None:
        """Remove half-written files, or all if `fresh`, and save the configuration.

        The checkpoints are moved aside first, in one rename, and the old configuration stays until
        the new one replaces it: a process that is killed leaves no old model in a new run.
        """
        if self.fresh:
            with os_errors_as_polyhead_errors(self.path):
                for name in (CHECKPOINTS, *OWN_FILES):
                    path = self.path / name
                    if path.is_dir() and not path.is_symlink():
                        rename(path, self.path / f"{TEMPORARY}{os.getpid()}-{name}")
                    elif name != CONFIG:
                        path.unlink(missing_ok=True)
        remove_drafts(self.path)
        remove_drafts(self.path / SAMPLES)
        write_text(self.path / CONFIG, config.toml())

    def record_data(self, fingerprints: dict[str, str], valid: Any) -> None:
        """Save the fingerprints of the data, and the first held-out texts, unless they are."""
        if not (self.path / DATA).exists():
            write_text(self.path / DATA, json.dumps(fingerprints, indent=1) + "\n")
        columns = valid.columns if isinstance(valid, Examples) else ()  # of images none are kept
        rows = zip(*(column[:N_HELD_OUT] for column in columns), strict=True)
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        if lines and not (self.path / HELD_OUT).exists():
            write_text(self.path / HELD_OUT, "".join(lines))

    def check_data(self, fingerprints: dict[str, str]) -> None:
        """Check that the data is unchanged since the run was started."""
        path = self.path / DATA
        if self.fresh or not path.exists():
            return
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            before = None
        if not isinstance(before, dict):
            raise DataError(
                f"{path} is damaged, so that the data of this run cannot be checked. Start over "
                "with --fresh.",
                "damaged_fingerprints",
            )
        before = {ORDER: fingerprints.get(ORDER)} | before  # which earlier versions did not save
        for name, value in fingerprints.items():
            if before.get(name) != value:
                restore = "Use the former version" if name == ORDER else "Restore the files"
                raise DataError(
                    f"{self.path}: the {name} data changed since the run was started. {restore}, "
                    "or start over with --fresh.",
                    "data_changed",
                )


class RunCheckpoints:
    """The checkpoints of a run, of which the newest `keep` are kept, and the best."""

    def __init__(self, run_dir: RunDir, log: RunLog, keep: int) -> None:
        self.run_dir, self.log, self.keep = run_dir, log, keep

    def newest(self) -> Path | None:
        """Return the newest valid checkpoint, if there is one; log the damaged ones."""
        newest, damaged = newest_checkpoint(self.run_dir.checkpoints)
        for problem in damaged:
            self.log.notice(problem)
        if newest is None and damaged:
            self.log.notice("no usable checkpoint found; starting from scratch")
        return newest

    def before_divergence(self, progress: Progress, schedule: ScheduleConfig, reason: str) -> Path:
        """Return the checkpoint to roll back to; Diverged if there is none, or the second time."""
        good = None  # the newest valid checkpoint that was not saved between skipped steps, or else
        for _, path in reversed(list_checkpoints(self.run_dir.checkpoints)):  # the oldest
            with suppress(CheckpointError):
                verify(path)
                good = path
                if not train_state.read_progress(path)["progress"].get("skipped_in_a_row"):
                    break
        if progress.rolled_back or good is None:
            again = " again after one roll-back" if progress.rolled_back else ""
            rate = "factor" if schedule.kind == "noam" else "rate"
            self.log.record("diverged", progress.step, {})
            raise Diverged(
                f"training diverged{again} ({reason}). Lower "
                f"train.schedule.{rate}, lengthen its warm-up, or check the data with "
                "`polyhead data check`.",
                "diverged",
            )
        return good

    def save(
        self,
        saved: SavedModel,
        optimizer: Optimizer,
        state: dict[str, Any],
        progress: Progress,
        processes: Processes,
    ) -> Path:
        """Let the first process write a checkpoint, and every one its part of sharded moments.

        Returns the path of the checkpoint.
        """
        checkpoint = checkpoint_path(self.run_dir.checkpoints, progress.step)
        sharded = processes.in_step
        weights = collect_weights(saved.model, processes) if sharded else None

        def begin() -> str:
            self.run_dir.check_in_place()
            self.log.sync()  # first: resuming only removes lines after the checkpoint's step
            records = read_metrics(self.run_dir.path)
            validations = [entry for entry in records if entry.pop("kind") == "valid"]
            outputs = sorted((self.run_dir.path / SAMPLES).glob("step-*.txt"))
            known = [file for file in outputs if file.stem <= f"step-{progress.step:08d}"]
            draft = stack.enter_context(atomic_dir(checkpoint))
            with os_errors_as_polyhead_errors(checkpoint):
                sample = known[-1].read_text(encoding="utf-8") if known else ""
                write_model(draft, saved, model_card(saved, validations, sample), weights)
                if sharded:
                    train_state.write_numbers(draft, state)
                else:
                    train_state.write_state(draft, saved.model, optimizer, state)
            return draft.name

        def write_part() -> None:
            moments = train_state.moments_of(saved.model, optimizer)
            part = train_state.part_name(processes.rank, processes.world)
            path = checkpoint.parent / name / part
            with os_errors_as_polyhead_errors(path):
                save_tensors({key: local_part(tensor) for key, tensor in moments.items()}, path)

        def finish() -> None:
            stack.close()  # which renames it
            self.tidy(checkpoint, progress)

        with ExitStack() as stack:
            name = processes.from_first(processes.first(begin))
            if sharded:
                processes.each(write_part)
            processes.first(finish)
        return checkpoint

    def tidy(self, last: Path, progress: Progress) -> None:
        """Let `last` and `best` point to their checkpoints, and remove old ones and drafts."""
        folder = self.run_dir.path
        link(folder / "last", last)
        best = checkpoint_path(last.parent, progress.best_step)
        spare = best if progress.best < math.inf else None
        if spare is not None and best.exists():
            link(folder / "best", best)
        elif (folder / "best").is_symlink() or (folder / "best").is_file():
            remove(folder / "best")
        remove_old_checkpoints(last.parent, last, keep=self.keep, spare=spare)


def languages_of(path: Path) -> tuple[str, str]:
    """Return the languages of a translation model or run, "" where they are unknown."""
    values = read_family_config(resolve(path))
    if FAMILIES[values["family"]].task != "translation":
        raise ConfigError(f"{path}: a {values['family']} model does not translate", "wrong_task")
    languages = saved_languages(values["about"])
    if any(languages):
        return languages
    run = values["about"].get("run") or {}
    return configured_languages(from_dict(DataConfig, run.get("data", {}), "data."))


def relabel(path: Path, languages: tuple[str, str]) -> None:
    """Change the languages of a translation model, or of all checkpoints of a run."""
    languages_of(path)
    directory = resolve(path)
    run_dir = RunDir(directory.parent.parent)
    if directory.parent.name != CHECKPOINTS or not (run_dir.path / CONFIG).is_file():
        set_languages(directory, languages)
        return
    with run_dir.exclusive_lock():
        set_languages(directory, languages)
        set_run_languages(run_dir.checkpoints, languages)
