"""What each family is trained for. A configuration names a family; this table names its task."""

from polyhead.training.tasks.base import Prepared, Task
from polyhead.training.tasks.image_classification import Images
from polyhead.training.tasks.language_modeling import Language
from polyhead.training.tasks.masked_lm import MASKED
from polyhead.training.tasks.replaced_token import REPLACED
from polyhead.training.tasks.text_classification import Classify
from polyhead.training.tasks.translation import Translation

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
