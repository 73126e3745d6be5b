"""The checkpoints of a run: which to resume from, which to roll back to, which to delete."""

import math
from contextlib import suppress
from pathlib import Path

from polyhead.atomic_file import remove
from polyhead.checkpoint import train_state
from polyhead.checkpoint.atomic_dir import (
    checkpoint_path,
    link,
    list_checkpoints,
    newest_checkpoint,
    remove_old_checkpoints,
    verify,
)
from polyhead.errors import CheckpointError, Diverged
from polyhead.training.loop import Progress
from polyhead.training.optim import ScheduleConfig
from polyhead.training.run_dir import RunDir
from polyhead.training.run_log import RunLog


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
            raise Diverged(
                f"training diverged{again} ({reason}). Lower "
                f"train.schedule.{rate}, lengthen its warm-up, or check the data with "
                "`polyhead data check`.",
                "diverged",
            )
        return good

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
