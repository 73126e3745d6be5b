"""What each family is trained for. A configuration names a family; this table names its task."""

from polyhead.api.tasks.classify import Classify
from polyhead.api.tasks.contract import Prepared, Task
from polyhead.api.tasks.images import Images
from polyhead.api.tasks.language import Language
from polyhead.api.tasks.masked import MASKED
from polyhead.api.tasks.replaced import REPLACED
from polyhead.api.tasks.translation import Translation

TASKS: dict[str, Task] = {
    "transformer": Translation(),
    "ladder": Translation(),
    "seq2seq": Translation(),
    "bahdanau": Translation(),
    "luong": Translation(),
    "deep_att": Translation(),
    "gnmt": Translation(),
    "convs2s": Translation(),
    "bytenet": Translation(),
    "moe": Translation(),
    "gpt": Language(),
    "reformer": Language(),
    "bert": MASKED,
    "electra": REPLACED,
    "classifier": Classify(),
    "vit": Images(),
}

__all__ = ["TASKS", "Prepared", "Task"]
