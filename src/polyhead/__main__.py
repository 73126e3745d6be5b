"""Entry point of `python -m polyhead`."""

import sys

from polyhead.cli.main import main

sys.exit(main())
