"""Files with which a RocketMQ broker that takes over the directory continues where this room was.

None of them says more than what the log has flushed.
"""

import logging
from collections.abc import Callable

from stratamq.files.metadata import MetadataFile
from stratamq.files.port import Clock, Files, Worker
from stratamq.follow.fold import FoldPlace
from stratamq.follow.own_appends import OwnAppends
from stratamq.formats.store_paths import DELAY_OFFSETS_PATH
from stratamq_delivery.shared_groups import SharedGroups
from stratamq_delivery.subscription_groups import SubscriptionGroups

log = logging.getLogger(__name__)


class DelayOffsets:
    """RocketMQ's `config/delayOffset.json`: up to where each level is delivered. A RocketMQ broker
    that takes over the directory delivers from there on. Only a master's room writes it, and only
    for the levels that hold nothing of another program."""

    def __init__(self, positions: Callable[[], dict[int, int]], files: Files) -> None:
        """`positions`: by level, or nothing while the file is not this room's to write."""
        self._file = MetadataFile(files, DELAY_OFFSETS_PATH)
        self._positions = positions
        self._written: dict[str, int] = {}

    def load(self) -> None:
        document = self._file.load() or {}
        table = document.get("offsetTable")
        self._written = dict(table) if isinstance(table, dict) else {}

    @property
    def table(self) -> dict[int, int]:
        """By level, from 1 on: what the file says. RocketMQ's own for levels that hold messages of
        its own."""
        found = {level: offset for level, offset in self._written.items() if level.isdigit()}
        return {int(level): offset for level, offset in found.items() if isinstance(offset, int)}

    def news(self) -> Callable[[], None] | None:
        """What a worker is to write, when the log has flushed what the fold has seen. None: the
        file says it."""
        positions = {str(level): offset for level, offset in self._positions().items()}
        if positions.items() <= self._written.items():
            return None
        table = self._written = {**self._written, **positions}
        return lambda: self._file.store({"offsetTable": table})


INTERVAL_MS = 10_000
"""RocketMQ's `flushDelayOffsetInterval`."""
Task = Callable[[], None]


class RocketMQFiles:
    """Writes them on `worker`."""

    def __init__(
        self,
        positions: Callable[[], dict[int, int]],
        groups: SharedGroups,
        attempts: int,
        appends: OwnAppends,
        followed: FoldPlace,
        files: Files,
        worker: Worker,
        clock: Clock,
        interval_ms: int = INTERVAL_MS,
    ) -> None:
        """`positions`: see `DelayOffsets`; `attempts`: of groups without settings of their own."""
        self.delay_offsets = DelayOffsets(positions, files)
        self._groups = SubscriptionGroups(groups, appends, files, clock, attempts)
        self._followed = followed
        self._worker = worker
        self._clock = clock
        self._interval_ns = interval_ms * 1_000_000
        self._next_ns = 0
        self._waiting: tuple[int, list[Task]] | None = None
        """Where the state was, and what is written once the log has flushed up to there."""
        self._failed: list[Task] = []
        """What the disk refused: the next look adds it."""
        self._reported = False

    def load(self) -> None:
        self.delay_offsets.load()
        self._groups.load()

    def tick(self, decided: Task = lambda: None) -> None:
        """To be called several times a second. `decided` is called when something was."""
        now_ns = self._clock.monotonic_ns()
        if self._waiting is None and now_ns >= self._next_ns:
            self._next_ns = now_ns + self._interval_ns
            self._look()
        self._write(lambda: None)
        if self._groups.read_on():
            decided()

    def close(self, done: Task) -> None:
        self._look()
        self._write(done)

    def _look(self) -> None:
        news = (self.delay_offsets.news(), self._groups.news())
        tasks = [*self._failed, *(task for task in news if task is not None)]
        self._failed = []
        if tasks:
            waiting = self._waiting[1] if self._waiting is not None else []
            self._waiting = self._followed.applied, [*waiting, *tasks]

    def _write(self, done: Task) -> None:
        if self._waiting is None or self._waiting[0] > self._followed.flushed:
            done()
            return
        (_, tasks), self._waiting = self._waiting, None

        def write() -> None:
            for task in tasks:
                task()

        def written(_: None, error: BaseException | None) -> None:
            if isinstance(error, OSError):
                self._failed = tasks
                if not self._reported:
                    log.error("files for RocketMQ cannot be written", extra={"reason": str(error)})
            elif error is not None:
                raise error
            self._reported = bool(self._failed)
            done()

        self._worker.submit(write, written)
