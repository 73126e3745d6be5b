"""The checkpoints of a run: which to resume from, which to roll back to, which to delete."""

import math
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from polyhead.atomic_file import os_errors_as_polyhead_errors, remove
from polyhead.checkpoint import train_state
from polyhead.checkpoint.atomic_dir import (
    atomic_dir,
    checkpoint_path,
    link,
    list_checkpoints,
    newest_checkpoint,
    remove_old_checkpoints,
    verify,
)
from polyhead.checkpoint.model_card import model_card
from polyhead.checkpoint.model_dir import SavedModel, write_model
from polyhead.checkpoint.tensors import save_tensors
from polyhead.errors import CheckpointError, Diverged
from polyhead.training.loop import Progress
from polyhead.training.optim import ScheduleConfig
from polyhead.training.processes import Processes
from polyhead.training.run_dir import RunDir
from polyhead.training.run_log import RunLog
from polyhead.training.sharding import collect_weights, local_part


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

    def check_finished(self, *, done: bool) -> None:
        """Refuse to resume a run of polyhead 0.1, whose random numbers cannot be continued."""
        if not done:
            raise CheckpointError(
                f"{self.run_dir.path} was started by polyhead 0.1, which seeds dropout otherwise. "
                "Finish it there, use --fresh, or start another run with --init and its weights.",
                "old_run",
            )

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
            self.log.sync()
            validations, sample = self.log.validations(), self.run_dir.sample(progress.step)
            draft = stack.enter_context(atomic_dir(checkpoint))
            with os_errors_as_polyhead_errors(checkpoint):
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
