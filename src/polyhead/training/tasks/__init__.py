"""Training tasks, by the task of a model's family."""

from polyhead.models.registry import FAMILIES
from polyhead.training.tasks.base import Task
from polyhead.training.tasks.image_classification import ImageClassificationTask
from polyhead.training.tasks.language_modeling import LanguageModelingTask
from polyhead.training.tasks.masked_lm import MASKED
from polyhead.training.tasks.replaced_token import REPLACED
from polyhead.training.tasks.text_classification import TextClassificationTask
from polyhead.training.tasks.translation import TranslationTask

TASKS: dict[str, Task] = {
    "translation": TranslationTask(),
    "language_modeling": LanguageModelingTask(),
    "masked_lm": MASKED,
    "replaced_token": REPLACED,
    "text_classification": TextClassificationTask(),
    "image_classification": ImageClassificationTask(),
}


def task_of(family: str) -> Task:
    """Return the training task of a family."""
    return TASKS[FAMILIES[family].task]
