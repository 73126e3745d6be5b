"""`polyhead` as on a system without fcntl, resource, fork, links and most signals.

    python tests/support/other_system.py train small … then translate …

Windows is simulated as far as a POSIX system can: what it lacks is removed, and what it refuses is
refused (opening a directory, flushing a file opened for reading, replacing a file that is open).
"""

import asyncio
import builtins
import errno
import fcntl
import multiprocessing
import os
import signal
import sys
import types
from enum import IntEnum
from functools import partial

GONE = ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGPROF", "SIGALRM")  # torch needs SIGCHLD here
real_open, real_fsync, real_replace = os.open, os.fsync, os.replace
real_import = builtins.__import__
refused = set()


def refuse(*_, **__):
    raise OSError(errno.EPERM, "a required privilege is not held by the client")


def import_module(name, names=None, *rest, **options):
    if name in ("fcntl", "resource") and (names or {}).get("__name__", "").startswith("polyhead"):
        raise ImportError(name)
    return real_import(name, names, *rest, **options)


def open_file(path, flags, *rest, **options):
    if os.path.isdir(path):
        raise PermissionError(errno.EACCES, "permission denied", path)
    return real_open(path, flags, *rest, **options)


def fsync(descriptor):
    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, "bad file descriptor")
    real_fsync(descriptor)


def replace(source, target, *_):
    if os.path.islink(target) and os.path.isdir(target):
        raise PermissionError(errno.EACCES, "access is denied", str(target))
    if str(target) not in refused:  # as if a reader had it open for a moment
        refused.add(str(target))
        raise PermissionError(errno.EACCES, "used by another process", str(target))
    real_replace(source, target)


def locking(descriptor, _, n_bytes):
    """Lock a byte beyond the end of a file, which is what a lock is taken for here."""
    start = os.lseek(descriptor, 0, os.SEEK_CUR)
    assert start >= 2**30
    assert n_bytes == 1
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def no_handler(*_):
    raise NotImplementedError


def simulate() -> None:
    """Remove and refuse what Windows does not have."""
    sys.modules["msvcrt"] = types.SimpleNamespace(LK_NBLCK=2, locking=locking)
    builtins.__import__ = import_module
    kept = {number.name: int(number) for number in signal.Signals if number.name not in GONE}
    signal.Signals = IntEnum("Signals", kept)
    for name in GONE:
        delattr(signal, name)
    os.symlink, os.open, os.fsync, os.replace = refuse, open_file, fsync, replace
    del os.sysconf, os.mkfifo
    multiprocessing.set_start_method("spawn", force=True)
    asyncio.SelectorEventLoop.add_signal_handler = no_handler
    import polyhead.atomic_file

    polyhead.atomic_file.WINDOWS = True  # before others import it


simulate()  # also in workers, which run this module again

if __name__ == "__main__":
    from polyhead.cli.main import main

    words = iter(sys.argv[1:])
    code = 0
    while not code and (command := list(iter(partial(next, words, "then"), "then"))):
        code = main(command)  # several commands in one process save time
    sys.exit(code)
