"""RocketMQ's `config/delayOffset.json`: up to where each level is delivered.

A RocketMQ broker that takes over the directory delivers from there on. The file never says more
than what the log has flushed. Only a master's room writes it, and only for the levels that
hold nothing of another program.
"""

from collections.abc import Callable

from stratamq.files.metadata import MetadataFile
from stratamq.files.port import Clock, Files, Worker
from stratamq.follow.fold import FoldPlace
from stratamq.formats.store_paths import DELAY_OFFSETS_PATH

INTERVAL_MS = 10_000
"""RocketMQ's `flushDelayOffsetInterval`."""


class DelayOffsets:
    """Writes the file on `worker`."""

    def __init__(
        self,
        positions: Callable[[], dict[int, int]],
        followed: FoldPlace,
        files: Files,
        worker: Worker,
        clock: Clock,
        interval_ms: int = INTERVAL_MS,
    ) -> None:
        """`positions`: by level, or nothing while the file is not this room's to write."""
        self._file = MetadataFile(files, DELAY_OFFSETS_PATH)
        self._positions = positions
        self._followed = followed
        self._worker = worker
        self._clock = clock
        self._interval_ns = interval_ms * 1_000_000
        self._next_ns = 0
        self._written: dict[str, int] = {}
        self._waiting: tuple[int, dict[str, int]] | None = None
        """Where the state was, and what is written once the log has flushed up to there."""

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

    def tick(self) -> None:
        """To be called several times a second."""
        now_ns = self._clock.monotonic_ns()
        if self._waiting is None and now_ns >= self._next_ns:
            self._next_ns = now_ns + self._interval_ns
            self._look()
        self._write(lambda: None)

    def close(self, done: Callable[[], None]) -> None:
        self._look()
        self._write(done)

    def _look(self) -> None:
        positions = {str(level): offset for level, offset in self._positions().items()}
        if not positions.items() <= self._written.items():
            self._waiting = self._followed.applied, {**self._written, **positions}

    def _write(self, done: Callable[[], None]) -> None:
        if self._waiting is None or self._waiting[0] > self._followed.flushed:
            done()
            return
        (_, table), self._waiting = self._waiting, None
        self._written = table

        def written(_: None, error: BaseException | None) -> None:
            if error is not None:
                raise error
            done()

        self._worker.submit(lambda: self._file.store({"offsetTable": table}), written)
