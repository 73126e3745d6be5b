"""Functions for `Sandbox` in tests: harmless ones, and each way to fail."""

import os
import sys
import time


def echo(contents, *arguments):
    return [*arguments, os.getpid(), "torch" in sys.modules], contents


def fill_memory(_, megabytes):
    return len(bytearray(megabytes * 2**20)), ()


def spin(_):
    while True:
        pass


def sleep(_):
    time.sleep(1000)


def abort(_):
    os.abort()


def panic(_):
    raise BaseException("a panic\nof two lines")


def refuse(_):
    raise ValueError("no\nreason")


def write(_, path):
    with open(path, "w") as file:
        file.write("x")
    return None, ()


def variables(_):
    return [*os.environ], ()
