"""Training of the tasks of `polyhead.tasks`: equal steps, with the methods of each."""

from dataclasses import replace
from typing import Any

from polyhead.data.images.dataset import read_image_corpus
from polyhead.data.labelled_text import load_labelled
from polyhead.data.line_encoder import StoreForm
from polyhead.data.plain_text import load_plain
from polyhead.data.stored_text import CorpusReader, TextCorpus, open_store, read_corpus
from polyhead.data.token_store import TokenSequences
from polyhead.metrics.named_metrics import registered_metric
from polyhead.models.registry import TASKS, find_task
from polyhead.plugin_registry import resolve
from polyhead.tasks.base import Measured, Task, TrainingCorpus, Used
from polyhead.tasks.image_classification import shape_of
from polyhead.tokenizers.storage import TokenizerPair
from polyhead.training.config import RunConfig
from polyhead.training.processes import Processes
from polyhead.training.run_dir import RunDir
from polyhead.training.run_log import READING, RunLog
from polyhead.training.tasks.base import TaskSetup, TrainingTask, load_or_train_tokenizers

WHERE = "the validation data"


def training_of(name: str) -> TrainingTask:
    """Return the training of a task by its name."""
    task, place = find_task(name), TASKS[name]
    if isinstance(place, str):
        return TaskTraining(task, place)
    training: TrainingTask = resolve(task.training)()
    return training


class TaskTraining:
    """The interface of the trainer for a task, given with its place."""

    def __init__(self, task: Task[Any, Any, Any], place: str) -> None:
        self.task, self.place = task, place

    def read_data(self, config: RunConfig) -> tuple[Any, dict[str, str]]:
        data, seed, task = config.data, config.train.seed, self.task
        if task.option == "images":
            return read_image_corpus(data, shape_of(config.model), seed, READING.get())
        if task.option == "text":
            reader = CorpusReader(
                lambda spool: load_plain(data, spool, data.hold_out), n_columns=1, is_scattered=True
            )
        else:
            reader = CorpusReader(lambda spool: load_labelled(data, seed, spool, task.form))
        return read_corpus(data, config.task, seed, reader)

    def setup(self, config: RunConfig, run_dir: RunDir, corpus: Any, log: RunLog) -> TaskSetup:
        task, train, valid = self.task, corpus.train, corpus.valid
        max_length, tokenizers = config.data.max_length, None
        stores: dict[str, TokenSequences] = {}
        if task.option != "images":
            tokenizers, stores = self.encoded(config, run_dir, corpus, log)
        data = TrainingCorpus(config, corpus, tokenizers, stores)
        facts = task.facts(data)
        for notice in facts.notices:
            log.notice(notice)
        config = facts.config
        used = Used(None, tokenizers, max_length, WHERE, config.model, facts.about, config.data)
        inputs = task.example(used, valid)

        def measure(model: Any, processes: Processes) -> Measured:
            now, labels = replace(used, model=model), valid.labels
            return task.measure(now, inputs, labels, "validate", processes.map, lambda _: None)

        def validate(model: Any, _step: int, processes: Processes) -> dict[str, float]:
            measured = measure(model, processes)
            if (outputs := measured.outputs) is None:
                return measured.validation
            given = config.train.judge_by, outputs.lines, outputs.references
            return measured.validation | registered_metric(*given)

        vocabulary = "" if tokenizers is None else f"; vocabulary {len(tokenizers.source):,}"
        return TaskSetup(
            config,
            tokenizers,
            task.batches(data),
            task.loss(config, facts.about),
            validate,
            f"{len(train):,} training examples{facts.of_what}, {len(valid):,} for validation"
            f"{vocabulary}",
            facts.about,
            (lambda *given: measure(*given).outputs) if task.outputs else None,
        )

    def encoded(
        self, config: RunConfig, run_dir: RunDir, corpus: TextCorpus, log: RunLog
    ) -> tuple[TokenizerPair, dict[str, TokenSequences]]:
        """Return the tokenizers, and the ids of the training text by the names of stores."""
        task, train, max_length = self.task, corpus.train, config.data.max_length
        tokenizers = load_or_train_tokenizers(run_dir.tokenizer, train.texts, (), config.text, log)
        log.stage("encoding the text")
        form = StoreForm(task.store or task.name, max_length, task=self.place)
        if task.option == "data":
            problem: Any = corpus.problem
            sampling, stride = bool(tokenizers.config.sampling), config.data.stride
            form = form._replace(
                with_texts=sampling, classes=corpus.classes, problem=problem, stride=stride
            )
        stores, counts = open_store(train, run_dir.tokenizer, form, log)
        if n_long := counts["n_too_long"]:
            log.notice(
                f"{n_long:,} of {len(train):,} training {task.examples} are longer than "
                f"{max_length} tokens and were {task.when_long}"
            )
        return tokenizers, stores
