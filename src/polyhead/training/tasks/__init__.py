"""What each family is trained for. A configuration names a family; this table names its task."""

from polyhead.training.tasks.base import Task, TaskSetup
from polyhead.training.tasks.image_classification import ImageClassificationTask
from polyhead.training.tasks.language_modeling import LanguageModelingTask
from polyhead.training.tasks.masked_lm import MASKED
from polyhead.training.tasks.replaced_token import REPLACED
from polyhead.training.tasks.text_classification import TextClassificationTask
from polyhead.training.tasks.translation import TranslationTask

TASKS: dict[str, Task] = {
    "transformer": TranslationTask(),
    "ladder": TranslationTask(),
    "seq2seq": TranslationTask(),
    "bahdanau": TranslationTask(),
    "luong": TranslationTask(),
    "deep_att": TranslationTask(),
    "gnmt": TranslationTask(),
    "convs2s": TranslationTask(),
    "bytenet": TranslationTask(),
    "moe": TranslationTask(),
    "gpt": LanguageModelingTask(),
    "reformer": LanguageModelingTask(),
    "bert": MASKED,
    "electra": REPLACED,
    "classifier": TextClassificationTask(),
    "vit": ImageClassificationTask(),
}

__all__ = ["TASKS", "Task", "TaskSetup"]
