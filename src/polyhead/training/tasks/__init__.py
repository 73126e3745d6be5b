"""Training tasks by the task of a model's family."""

from polyhead.training.tasks.base import Task
from polyhead.training.tasks.image_classification import ImageClassificationTask
from polyhead.training.tasks.language_modeling import LanguageModelingTask
from polyhead.training.tasks.masked_lm import MaskedLMTask
from polyhead.training.tasks.text_classification import TextClassificationTask
from polyhead.training.tasks.translation import TranslationTask

TASKS: dict[str, Task] = {
    "translation": TranslationTask(),
    "language_modeling": LanguageModelingTask(),
    "masked_lm": MaskedLMTask(),
    "replaced_token": MaskedLMTask(),
    "text_classification": TextClassificationTask(),
    "image_classification": ImageClassificationTask(),
}
