"""Counts the messages by topic that the log holds: by segment, so that deleted ones go.

stratamq/counter.json    {"generation", "position", "counts": {segment: {topic: messages}}}
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from stratamq.errors import UnavailableError
from stratamq.files.metadata import MetadataFile
from stratamq.files.port import Files, Worker
from stratamq.follow.protocol import Event, Opened, Report, Wait
from stratamq.formats.dispatch import dispatch_columns
from stratamq.formats.store_paths import COMMIT_LOG, OWN_DIRECTORY
from stratamq.store.frame_windows import next_frames
from stratamq.store.segment_reader import SegmentReader

FRAMES_PER_STEP = 1024
"""Less than 2 ms of the event loop."""


class CountEngine:
    """Driven by `stratamq.follow.driver`, on one thread; files are written by the worker."""

    name = "counter"

    def __init__(self, files: Files, worker: Worker) -> None:
        self.serving, self.stopped_reason = False, ""
        self._files, self._worker = files, worker
        self._file = MetadataFile(files, f"{OWN_DIRECTORY}/counter.json")
        self._position = self._durable = self._flushed = self._target = 0

    def load(self) -> None:
        """A file that is missing or damaged: count from the log's beginning."""
        state = self._file.load() or {"generation": 0, "position": 0, "counts": {}}
        self._generation, self._position = int(state["generation"]), int(state["position"])
        self._counts = {int(at): Counter(topics) for at, topics in state["counts"].items()}
        self._durable = self._position

    def totals(self) -> Counter[str]:
        """UnavailableError until it has come to where the log was when it connected."""
        if not self.serving:
            raise UnavailableError(self.stopped_reason or f"counted up to {self._position}")
        return sum(self._counts.values(), Counter())

    def resume_point(self) -> tuple[int, int]:
        return self._generation, self._position

    def opened(self, opened: Opened) -> None:
        size = self._segment_bytes = opened.segment_bytes
        self._reader = SegmentReader(self._files, COMMIT_LOG, size)
        if opened.cut_to < self._position:  # what is left of the segment is counted again
            self._counts = {at: n for at, n in self._counts.items() if at + size <= opened.cut_to}
            self._position = max(opened.minimum, opened.cut_to - opened.cut_to % size)
        else:
            self._position = opened.cut_to  # above it: what is between has been deleted
        self._durable = min(self._durable, self._position)
        self._generation, self._target, self.serving = opened.generation, opened.confirmed, False

    def apply(self, event: Event) -> Iterator[Wait | None]:
        size = self._segment_bytes
        while (start := self._position) < event.end:
            segment = start - start % size
            end = min(event.end, segment + size)
            data, lengths = next_frames(self._reader.window, start, end, FRAMES_PER_STEP)
            columns = dispatch_columns(data, start, lengths)
            numbers = np.bincount(columns.topic_index, minlength=len(columns.topics)).tolist()
            found = dict(zip(columns.topics, numbers, strict=True))
            self._counts.setdefault(segment, Counter()).update(found)
            self._position += int(lengths.sum(dtype=np.int64))
            yield None
        self._flushed = event.flushed
        self._counts = {at: n for at, n in self._counts.items() if at + size > event.minimum}
        self._reader.release_below(event.minimum)
        self.serving = self._position >= self._target

    def report(self) -> Report:
        return Report(self._position, self._durable, 0, self._position)

    def close_at(self, end: int, done: Callable[[], None]) -> None:
        self._flushed = end
        self.save(done)

    def stopped(self, error: BaseException) -> None:
        self.serving, self.stopped_reason = False, str(error)

    def save(self, done: Callable[[], None] = lambda: None) -> None:
        """Everything below *flushed* is durable when `done` is called, and nothing above."""
        position = self._position
        counts = {str(at): dict(topics) for at, topics in self._counts.items()}
        state = {"generation": self._generation, "position": position, "counts": counts}

        def saved(_: None, error: BaseException | None) -> None:
            if error is not None:
                raise error
            self._durable = min(position, self._position)
            done()

        if self._durable < position <= self._flushed:
            self._worker.submit(partial(self._file.store, state), saved)
        else:
            self._worker.submit(lambda: None, lambda *_: done())
