"""What waits for the model: tasks, the lanes that they share, and who waits for them."""

import asyncio
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

Wanted = Callable[[], bool]
Run = Callable[[list[Any], Wanted], Sequence[Any]]


@runtime_checkable
class Flowing(Protocol):
    """Work that others may join, and that everybody leaves when he is done."""

    def __len__(self) -> int: ...

    @property
    def open(self) -> bool:
        """Whether others may still enter."""
        ...

    def enter(self, tickets: Sequence[Any], contents: Sequence[Any]) -> None:
        """Begin with these at the next step."""
        ...

    def step(self) -> Sequence[tuple[Any, Any]]:
        """Go on with everybody; those who are done, and their results."""
        ...

    def leave(self, tickets: Collection[Any]) -> None:
        """Nobody waits for these any more."""
        ...


@dataclass(frozen=True)
class BatchKey:
    """What may be done together: equal names share batches. `run` takes contents and `wanted`.

    With `flow`, a batch is never closed; `run` is then for one that fails in company.
    """

    name: Hashable
    run: Run = field(compare=False)
    max_rows: int = field(default=64, compare=False)
    max_tokens: int = field(default=4096, compare=False)
    flow: Callable[[], Flowing] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Task:
    """A piece of work; `size` is its length in tokens."""

    lane: BatchKey
    content: Any
    size: int = 1


@dataclass(eq=False)
class BatchJob:
    """A task that waits, and who waits for it."""

    task: Task
    result: "asyncio.Future[Any]"
    arrived: float
    turn: float  # when it would have arrived, had its request been patient
    wanted: bool = True


@dataclass(eq=False)
class RunningBatch:
    """A lane that flows, and who is in it."""

    lane: BatchKey
    flow: Flowing
    jobs: list[BatchJob] = field(default_factory=list)
