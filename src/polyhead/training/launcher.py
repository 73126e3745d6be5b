"""Starting several processes of one training run on this machine, as torchrun does."""

import logging
import os
import sys
import uuid
from collections.abc import Sequence

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from polyhead.training.processes import VARIABLES


def is_started_by_torchrun() -> bool:
    """Return True in a process that torchrun, or `launch`, has started."""
    return os.environ.keys() >= VARIABLES


def launch(words: Sequence[str], n_processes: int) -> int:
    """Run `polyhead WORDS` in several processes; return the exit code.

    Each has one thread, unless OMP_NUM_THREADS is set. If one fails, the others are ended.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=n_processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
    )
    try:
        elastic_launch(config, sys.executable)("-m", "polyhead", *words)
    except ChildFailedError as error:
        code = error.get_first_failure()[1].exitcode
        return code if code > 0 else 128 - code
    except SignalException as error:
        return 128 + int(error.sigval)
    return 0
