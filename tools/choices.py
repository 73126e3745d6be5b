"""What the set-up decides: which torch, which variables pip may see, what a failure of pip means.

Functions of their arguments only, so that every machine can be tried on one machine.
"""

import re

TORCH = "2.13.0"
TORCH_INDEX = "https://download.pytorch.org/whl/"
NEEDED_GIGABYTES = 3  # free on the disk

MISLEADING = {  # they send pip elsewhere or make it install something else
    *("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONOPTIMIZE", "__PYVENV_LAUNCHER__"),
    *("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON", "PIP_SRC", "PIP_DRY_RUN", "PIP_LOG"),
    *("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT", "PIP_NO_BINARY", "PIP_PRE", "PIP_REQUIRE_HASHES"),
    *("PIP_IGNORE_INSTALLED", "PIP_IGNORE_REQUIRES_PYTHON", "PIP_PLATFORM", "PIP_QUIET"),
    *("PIP_PYTHON_VERSION", "PIP_REPORT", "VIRTUAL_ENV"),
}
SETTINGS = {
    "PIP_USER": "0",  # said and not only removed: a configuration file may say otherwise
    "PIP_REQUIRE_VIRTUALENV": "0",
    "PIP_NO_INPUT": "1",  # a question nobody sees would wait for ever
    "PIP_PROGRESS_BAR": "off",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PYTHONNOUSERSITE": "1",
}

UNREACHABLE = (
    "the package index cannot be reached; connect to the network, "
    "or set PIP_INDEX_URL or PIP_FIND_LINKS to a mirror"
)
NOT_THERE = "the package index has no"
EXPLANATIONS = (  # what pip's words hold, what to tell; the first that is found wins
    (
        "DO NOT MATCH THE HASHES",
        "a package is not the file that requirements.lock names; use an index that tells the truth",
    ),
    (
        "No space left on device",
        "the disk is full (pip unpacks in $TMPDIR first); make room and repeat",
    ),
    (
        "Read-only file system|Permission denied",
        "a folder cannot be written; make it writable, or copy the project elsewhere",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "the certificate of the package index is not trusted here; set PIP_CERT to your CA file",
    ),
    (
        "NewConnectionError|NameResolutionError|name resolution|Name or service not known|"
        "nodename nor servname|Network is unreachable|No route to host|Max retries exceeded|"
        "ConnectTimeout|ReadTimeout|timed out|ProxyError|Connection (refused|reset|aborted)",
        UNREACHABLE,
    ),
)


class SetupError(Exception):
    """What stops the set-up, in one line that says what to do."""


def clean_environment(variables: dict) -> dict:
    """The variables for our own pip: without those that mislead it."""
    kept = {name: value for name, value in variables.items() if name not in MISLEADING}
    kept.update(SETTINGS)
    return kept


def explain(words: str) -> str:
    """Why pip failed, in one line, from what it said."""
    for pattern, meaning in EXPLANATIONS:
        if re.search(pattern, words):
            return meaning
    missing = re.search("No matching distribution found for ([^ \n]+)", words)
    if missing:
        return f"{NOT_THERE} {missing[1]} for this Python"
    errors = re.findall("^ *(?:ERROR|error): *([^\n]+)", words, re.MULTILINE)
    return errors[-1] if errors else last_line(words)


def last_line(words: str) -> str:
    """Where a traceback says what it is about."""
    return words.strip().rpartition("\n")[2] or "no message"


def choose_build(system: str, gpus: list, asked: str) -> str:
    """The build of torch for a machine: the one asked for, else without CUDA unless there is a GPU.

    `plain` is the wheel without a suffix: the only one for macOS, the one with CUDA for Linux.
    """
    if asked and not re.fullmatch("cpu|xpu|plain|cu[0-9]+|rocm[0-9.]+", asked):
        raise SetupError(f"TORCH={asked} is no build of torch; give cpu, plain, cu130 or the like")
    if system == "Darwin" and asked not in ("", "plain"):
        raise SetupError(f"TORCH={asked} does not exist for macOS; leave TORCH out")
    return asked or ("plain" if gpus or system == "Darwin" else "cpu")


def needs_cuda(system: str, build: str) -> bool:
    """Whether a build brings packages for a GPU along, and is large."""
    return system != "Darwin" and build != "cpu"


def torch_size(system: str, build: str) -> tuple:
    """What a build means: how much to fetch, in words, and the gigabytes of disk to have free."""
    if needs_cuda(system, build):
        return "with CUDA, about 2.7 GB", 12
    return "about 200 MB", NEEDED_GIGABYTES


def torch_attempts(system: str, build: str) -> list:
    """What to ask pip for, in turn: the configured indexes first, as a mirror may hold the wheel.

    The suffix is named, so that pip can never take the wheel with CUDA for the one without.
    """
    alone = [] if needs_cuda(system, build) else ["--no-deps"]  # the lock holds what it depends on
    if build == "plain":
        return [[f"torch=={TORCH}", *alone]]
    wanted = [f"torch=={TORCH}+{build}", *alone]
    return [wanted, [*wanted, "--extra-index-url", TORCH_INDEX + build]]


def explain_torch(build: str, where: str, meanings: list) -> str:
    """Why there is no torch, from what each of the attempts meant."""
    if not meanings[0].startswith(NOT_THERE):
        return meanings[0]
    its_own = ""
    if len(meanings) > 1:
        cause = "has none" if meanings[1].startswith(NOT_THERE) else "cannot be used from here"
        its_own = f" and {TORCH_INDEX}{build} {cause}"
    return (
        f"the indexes that pip uses have no torch {TORCH} ({build}) for {where}{its_own}; "
        "take another Python (make setup PYTHON=/path/to/python3), "
        "or put the wheel into a folder that PIP_FIND_LINKS names"
    )


def wrong_torch(system: str, build: str, version: str, packages: list) -> str:
    """What is wrong with an installed torch: another build, or CUDA where none belongs."""
    suffix = "" if build == "plain" else f"+{build}"
    if not version.startswith(TORCH) or not version.endswith(suffix):
        return f"torch {version} was installed instead of {TORCH}{suffix}"
    cuda = [name for name in packages if re.match("nvidia[-_]|cuda[-_]|triton$", name.lower())]
    if cuda and not needs_cuda(system, build):
        return f"packages for a GPU were installed: {', '.join(cuda)}"
    return ""
