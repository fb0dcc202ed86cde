"""Questions under way: each goes through the query lane in turns, a few milliseconds at a time.

A question that was overtaken by a cut or by a rebuilt file may have read a mixture of old and new,
so it is asked again; while files are being exchanged new ones wait.
"""

from collections.abc import Callable

from stratamq.errors import CorruptionError, UnavailableError
from stratamq.files.port import Clock, Worker
from stratamq_index.query import QueryAnswer, QueryLane, Search

TURN_NS = 10_000_000
"""The query lane turns to the next question after so long."""
MAX_ATTEMPTS = 10

Done = Callable[[QueryAnswer | None, BaseException | None], None]


class PendingQuery:
    """One question. `cancel` when the caller has gone."""

    def __init__(self, plan: Callable[[], Search], done: Done) -> None:
        self.plan = plan
        self.done = done
        self.attempts = 0
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Searches:
    """Belongs to the engine; `done` is called where the engine runs."""

    def __init__(self, worker: Worker, clock: Clock) -> None:
        self.epoch = 0
        """Grows whenever an answer in the making may have become wrong."""
        self._worker = worker
        self._clock = clock
        self._held: list[PendingQuery] | None = None

    def ask(self, plan: Callable[[], Search], lane: QueryLane, done: Done) -> PendingQuery:
        """`plan` looks at what is in memory; it is called again when the question is."""
        query = PendingQuery(plan, done)
        self._begin(query, lane)
        return query

    def overtake(self) -> None:
        """What was read so far may be wrong."""
        self.epoch += 1

    def hold(self) -> None:
        """Begin no question until `release`: files are being exchanged."""
        self.epoch += 1
        self._held = []

    def release(self, lane: QueryLane) -> None:
        self.epoch += 1
        held, self._held = self._held or [], None
        for query in held:
            self._begin(query, lane)

    def _begin(self, query: PendingQuery, lane: QueryLane) -> None:
        if query.cancelled:
            return
        if self._held is not None:
            self._held.append(query)
            return
        query.attempts += 1
        if query.attempts > MAX_ATTEMPTS:
            query.done(None, UnavailableError("the index changes faster than it can be searched"))
            return
        search = query.plan()
        self._turn(query, search, iter(search.steps(lane)), self.epoch, lane)

    def _turn(
        self, query: PendingQuery, search: Search, steps, epoch: int, lane: QueryLane
    ) -> None:
        clock = self._clock

        def task() -> bool:
            until = clock.monotonic_ns() + TURN_NS
            return all(clock.monotonic_ns() < until for _ in steps)

        def done(finished: bool | None, error: BaseException | None) -> None:
            if query.cancelled:
                return
            if epoch != self.epoch:
                self._begin(query, lane)
            elif isinstance(error, OSError):
                query.done(None, CorruptionError(f"the index cannot be read: {error}"))
            elif error is not None:
                query.done(None, error)
            elif finished:
                query.done(search.answer, None)
            else:
                self._turn(query, search, steps, epoch, lane)

        self._worker.submit(task, done)
