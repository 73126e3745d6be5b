"""`python -m polyhead` is the same as `polyhead`."""

import sys

from polyhead.cli.main import main

sys.exit(main())
