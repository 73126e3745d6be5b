"""The former place of `polyhead.tasks.losses`, for plug-ins; it goes with version 0.3."""

from polyhead.tasks.losses import *  # noqa: F403
