#!/bin/sh
# Run a script of this folder with the best Python there is: `with-python.sh tools/doctor.py`.
# A name on PATH may be a stub that does not start (pyenv, Xcode), so each one is tried. Python 3.7
# is enough here: the script itself says, in one line, when the version is too old for Polyhead.
# -E -s: the caller's PYTHONPATH, PYTHONHOME and user packages are none of our business.

case $(uname -s) in
    Linux | Darwin) ;;
    *) echo "setup: make needs Linux or macOS, this is $(uname -s); on Windows: python tools/setup.py" >&2; exit 3 ;;
esac

starts() { "$1" -E -s -c 'import sys; sys.exit(sys.version_info < (3, 7))' >/dev/null 2>&1; }

if [ -n "${PYTHON:-}" ]; then
    starts "$PYTHON" && exec "$PYTHON" -E -s "$@"
    echo "setup: PYTHON=$PYTHON does not start or is too old; give the path of Python 3.11 or newer" >&2
    exit 3
fi
for python in python3.13 python3.12 python3.11 python3; do
    starts "$python" && exec "$python" -E -s "$@"
done
echo "setup: found no Python 3.11 or newer; install one (Debian: apt install python3 python3-venv; macOS: brew install python)" >&2
exit 3
