"""What each family is trained for. A configuration names a family; this table names its task."""

from polyhead.api.tasks.contract import Prepared, Task
from polyhead.api.tasks.language import Language
from polyhead.api.tasks.translation import Translation

TASKS: dict[str, Task] = {
    "transformer": Translation(),
    "ladder": Translation(),
    "gpt": Language(),
}

__all__ = ["TASKS", "Prepared", "Task"]
