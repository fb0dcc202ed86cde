"""Work of several steps, written downward: a generator yields what it waits for.

    yield Flush(end)       until everything below log offset `end` is durable. UnavailableError when
                           that takes longer than the flush time-out, or when writing has ended
    yield Blocking(task)   `task()` runs on the worker; its result is sent back, its exception is
                           raised at the yield

Between two yields a procedure has the engine's thread for itself. A procedure that is under way
when the log closes is dropped where it waits. `write.procedures` runs them.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Flush:
    end: int


@dataclass(frozen=True, slots=True)
class Blocking:
    task: Callable[[], Any]


Step = Flush | Blocking
Procedure = Generator[Step, Any, T]
