"""A durable fold over the log: a state that is computed from the log's messages in order, answers
from memory, and survives a crash, a cut of the log and a change of its master.

    the log     minimum ├────────────┬──────────┬──────────┬─────────┤ confirmed
    the state                     durable    flushed    applied

`Fold` is what the driver drives. It owns where the state is in the log (`FoldPlace`), reads the
log's frames, rewinds when the log's answer demands it, and opens the serving gate. The state has
the rest: what a message does to it, and how it is written.

Three rules hold for every state:

1. Its files hold nothing above *flushed*. The log may lose its unflushed tail in a power failure;
   what was computed from it must not outlive it.
2. When the log answers with `cut_to` below what is applied, everything from there on is dropped,
   in memory at once and on disk before anything else is written, and it is not durable any more.
3. It answers no question before it has applied the log up to where it was when it connected.

What a state has on disk is its own. `SnapshotFile`, below, is one JSON file that is replaced as a
whole; the index and the dispatcher write files that grow, as far as `FlushedSteps` lets them.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from stratamq.errors import UnavailableError
from stratamq.files.metadata import JsonObject, MetadataFile
from stratamq.files.port import Clock, Files, Worker
from stratamq.follow.protocol import Event, FollowError, Opened, Report, Wait
from stratamq.formats.delay import DEFAULT_DELAY_LEVELS_MS
from stratamq.formats.store_paths import COMMIT_LOG
from stratamq.store.generations import history
from stratamq.store.log_pieces import LogPiece, read_pieces
from stratamq.store.segment_reader import SegmentReader

log = logging.getLogger(__name__)

MAX_OPEN_SEGMENTS = 16
_SELDOM = 19
STEP_MESSAGES = 1024
"""Frames that are applied at once: less than 2 ms of the event loop."""


@dataclass(slots=True)
class FoldPlace:
    """Where the log and its follower are. The fold changes it; parts of the state read it. Offsets
    in bytes of the log."""

    generation: int = 0
    applied: int = 0
    """All messages below are in the state."""
    durable: int = 0
    """All messages below are in the state's files, synced."""
    durable_ms: int = 0
    """Store time of the newest message of which all is in files that are synced."""
    confirmed: int = 0
    flushed: int = 0
    minimum: int = 0
    """The log holds no message below."""
    segment_bytes: int = 0
    is_slave: bool = False
    opened: bool = False
    """The log has answered since the start."""
    serving: bool = False
    target: int = -1
    """Where the state must be to serve; -1 until the log has answered."""
    stopped_reason: str = ""
    """Why following has failed for good."""
    segments: SegmentReader | None = None
    """The log's bytes, once it has answered."""
    history: Callable[[], Sequence[tuple[int, int]]] = tuple
    """Reads the log's list of generations: number and start of each, in order."""
    generations: Sequence[tuple[int, int]] | None = None
    """What it was, once it has been needed in this generation."""

    def segment_of(self, offset: int) -> int:
        """Where the segment begins that has this offset."""
        return offset - offset % self.segment_bytes

    def generation_of(self, offset: int) -> int:
        """The generation in which the message at this offset was appended."""
        if self.generations is None:
            self.generations = self.history()
        for number, start in reversed(self.generations):
            if start <= offset:
                return number
        return self.generation

    @property
    def begins(self) -> int:
        """Where the log's first generation begins. What is below was stored by another program, and
        may have been delivered by it."""
        if not self.generations:
            self.generations = self.history()
        return self.generations[0][1] if self.generations else self.applied

    @property
    def at_target(self) -> bool:
        return 0 <= self.target <= self.applied

    def go_on_at(self, position: int) -> None:
        """The state is cut to `position`, or begins there."""
        self.applied, self.durable = position, min(self.durable, position)

    def serve_at_target(self) -> None:
        if self.at_target and not self.stopped_reason:
            self.serving = True

    def require_serving(self, service: str) -> None:
        """UnavailableError before the state is where the log was when it connected."""
        if not self.serving:
            reason = self.stopped_reason or f"applied {self.applied} of {max(0, self.target)}"
            raise UnavailableError(f"the {service} does not serve yet: {reason}")


class FoldState(Protocol):
    """What a fold drives, on the event loop. No call may take more than about 2 ms."""

    def cut(self, opened: Opened) -> int:
        """The log goes on at `opened.cut_to`: below what is applied (drop the rest), or above it
        (what is between was deleted). Also called at the first answer. Returns where the state is
        now: `cut_to`, or below it if it wants a part again."""

    def apply(self, event: Event, pieces: Iterator[LogPiece]) -> Iterator[Wait | None]:
        """Apply every piece, move `FoldPlace.applied` to its end, and yield: None, or what must be
        waited for before the next piece is read."""

    def forget_below(self, minimum: int) -> None:
        """The log has deleted its messages below. Also called at each answer of the log."""

    def progressed(self) -> None:
        """The log or the state has come further. Calls `FoldPlace.serve_at_target` unless the
        state lacks something else."""

    def close(self, done: Callable[[], None]) -> None:
        """Make everything durable that may be, then call `done`."""

    def stopped(self) -> None:
        """Following failed for good; `FoldPlace.stopped_reason` says why."""


class Fold:
    """Implements the driver's `FollowerEngine` for a state."""

    def __init__(
        self,
        name: str,
        state: FoldState,
        followed: FoldPlace,
        files: Files,
        *,
        moved: Callable[[], None] = lambda: None,
        step_messages: int = STEP_MESSAGES,
        delay_levels_ms: Sequence[int] = DEFAULT_DELAY_LEVELS_MS,
    ) -> None:
        """`moved` is called when the log or the state has come further."""
        self.name = name
        self._moved = moved
        self._state = state
        self._followed = followed
        self._files = files
        self._step_messages = step_messages
        self._delay_levels_ms = delay_levels_ms
        self._expected = 0
        """Where the next event starts."""

    def resume_point(self) -> tuple[int, int]:
        followed = self._followed
        return (followed.generation, followed.applied) if followed.generation else (0, 0)

    def opened(self, opened: Opened) -> None:
        """When this returns, no answer has anything at or above `cut_to`."""
        followed, cut_to = self._followed, opened.cut_to
        self._open_segments(opened)
        if cut_to != followed.applied or not followed.serving:
            followed.serving, followed.target = False, opened.reached
        position = self._state.cut(opened)
        self._expected = cut_to
        followed.go_on_at(position)
        # A log that dies before it unlinks what it deleted comes back with a lower minimum.
        followed.minimum = max(min(followed.minimum, cut_to), opened.minimum)
        followed.generation, followed.is_slave = opened.generation, opened.is_slave
        followed.confirmed, followed.flushed = opened.confirmed, opened.flushed
        followed.opened = True
        followed.history, followed.generations = partial(history, self._files), None
        self._state.forget_below(followed.minimum)
        self._state.progressed()
        self._moved()

    def apply(self, event: Event) -> Iterator[Wait | None]:
        """What the state raises stops it: it never skips a message."""
        followed = self._followed
        assert followed.segments is not None
        if event.start != self._expected:
            raise FollowError(f"an event starts at {event.start}, expected {self._expected}")
        followed.confirmed = event.confirmed
        followed.flushed = max(followed.flushed, event.flushed)
        if event.minimum > followed.minimum:
            followed.minimum = event.minimum
            followed.segments.release_below(event.minimum)
            self._state.forget_below(event.minimum)
        yield from self._state.apply(event, self._pieces(event))
        self._expected = event.end
        self._state.progressed()
        self._moved()

    def report(self) -> Report:
        followed = self._followed
        return Report(followed.applied, followed.durable, followed.durable_ms, followed.minimum)

    def close_at(self, end: int, done: Callable[[], None]) -> None:
        """The log has flushed everything up to `end`, and stops."""
        self._followed.flushed = max(self._followed.flushed, end)
        self._state.close(done)

    def stopped(self, error: BaseException) -> None:
        """Following failed for good."""
        followed = self._followed
        followed.stopped_reason = followed.stopped_reason or f"{type(error).__name__}: {error}"
        self._state.stopped()

    def _open_segments(self, opened: Opened) -> None:
        followed = self._followed
        if followed.segments is None or followed.segment_bytes != opened.segment_bytes:
            followed.segment_bytes = opened.segment_bytes
            followed.segments = SegmentReader(
                self._files, COMMIT_LOG, opened.segment_bytes, MAX_OPEN_SEGMENTS
            )
        # A log that was cut has put another file in the place of the segment.
        followed.segments.release_from(opened.cut_to)

    def _pieces(self, event: Event) -> Iterator[LogPiece]:
        """From where the state is to the event's end. Raises what `read_pieces` raises."""
        followed, segments = self._followed, self._followed.segments
        assert segments is not None
        read = partial(
            read_pieces,
            segments.window,
            followed.segment_bytes,
            self._step_messages,
            delay_levels_ms=self._delay_levels_ms,
        )
        if followed.applied < event.start:
            yield from read(followed.applied, event.start)
        yield from read(event.start, event.end, event.lengths)


class SmallState(Protocol):
    """A state that is written as one JSON document. Offsets in bytes of the log."""

    def restore(self, document: JsonObject) -> None:
        """Be as `snapshot` was; an empty document: as at the log's beginning."""

    def snapshot(self) -> JsonObject | Callable[[], JsonObject]:
        """The state as it is now. A function makes the document on the worker: of a large state
        only what it copies is copied at once."""

    def apply(self, piece: LogPiece) -> None: ...

    def cut(self, offset: int) -> int:
        """Drop what comes from messages at or above `offset`. Returns up to where the state is
        then: `offset`, or below, from where it is given the log again."""

    def forget_below(self, minimum: int) -> None:
        """The log has deleted its messages below."""


@dataclass(frozen=True, slots=True)
class TakenSnapshot:
    position: int
    document: JsonObject | Callable[[], JsonObject]


class SnapshotFile:
    """Keeps a `SmallState` in a JSON file: the `FoldState` of small services.

    A snapshot is taken once in `interval_ms`, a large one so seldom that at most a twentieth of the
    time is spent on it, and waits until the log has flushed what it was
    computed from. Example: at 500 the log has flushed 300. The snapshot of 500 waits; the state
    goes on to 900; when 500 is flushed the snapshot is stored, not the state of then.

    What the disk refuses is logged, and tried again with a later snapshot.
    """

    def __init__(
        self,
        path: str,
        state: SmallState,
        followed: FoldPlace,
        files: Files,
        worker: Worker,
        clock: Clock,
        interval_ms: int = 1_000,
    ) -> None:
        self._path = path
        self._file = MetadataFile(files, path)
        self._state = state
        self._followed = followed
        self._worker = worker
        self._clock = clock
        self._interval_ns = interval_ms * 1_000_000
        self._next_ns = 0
        self._waiting: TakenSnapshot | None = None
        """Taken, and not flushed by the log yet."""
        self._writing = False
        self._fault = ""
        """Why the last one could not be written."""
        self._cuts = 0
        """A snapshot that was written before a cut does not make durable what was cut."""
        self._closing: list[Callable[[], None]] = []

    def load(self) -> None:
        """A file that is missing or damaged: the state begins at the log's beginning."""
        document: dict[str, Any] = {**(self._file.load() or {})}
        followed = self._followed
        followed.generation = document.pop("generation", 0)
        followed.applied = followed.durable = document.pop("position", 0)
        self._state.restore(document)

    def cut(self, opened: Opened) -> int:
        position = opened.cut_to
        if position < self._followed.applied:
            position = max(opened.minimum, self._state.cut(position))
            self._waiting = None
            self._cuts += 1
        return position

    def apply(self, event: Event, pieces: Iterator[LogPiece]) -> Iterator[Wait | None]:
        for piece in pieces:
            self._state.apply(piece)
            self._followed.applied = piece.end
            yield None

    def forget_below(self, minimum: int) -> None:
        self._state.forget_below(minimum)

    def progressed(self) -> None:
        self._followed.serve_at_target()

    def stopped(self) -> None:
        pass

    def tick(self) -> None:
        """To be called several times a second."""
        followed, now_ns = self._followed, self._clock.monotonic_ns()
        has_changes = followed.opened and followed.applied > followed.durable
        if has_changes and self._waiting is None and now_ns >= self._next_ns:
            self._waiting = TakenSnapshot(followed.applied, self._state.snapshot())
            self._next_ns = now_ns + self._interval_ns
        self._write()

    def close(self, done: Callable[[], None]) -> None:
        followed = self._followed
        if followed.opened and followed.durable < followed.applied <= followed.flushed:
            self._waiting = TakenSnapshot(followed.applied, self._state.snapshot())
        self._closing.append(done)
        self._write()

    def _write(self) -> None:
        followed, snapshot = self._followed, self._waiting
        if self._writing:
            return
        if snapshot is None or snapshot.position > followed.flushed:
            waiting, self._closing = self._closing, []
            for done in waiting:
                done()
            return
        self._writing, self._waiting = True, None
        generation = followed.generation
        place = {"generation": generation, "position": snapshot.position}

        def store() -> int:
            document, start_ns = snapshot.document, self._clock.monotonic_ns()
            self._file.store({**place, **(document() if callable(document) else document)})
            return self._clock.monotonic_ns() - start_ns

        self._worker.submit(store, partial(self._written, snapshot.position, self._cuts))

    def _written(
        self, position: int, cuts: int, spent_ns: int | None, error: BaseException | None
    ) -> None:
        self._writing = False
        seldom_ns = _SELDOM * (spent_ns or 0)
        self._next_ns = max(self._next_ns, self._clock.monotonic_ns() + seldom_ns)
        if error is not None and not isinstance(error, OSError):
            raise error
        self._report(error)
        if error is None and cuts == self._cuts:
            self._followed.durable = position
        self._write()

    def _report(self, error: OSError | None) -> None:
        """A volume without room, for one, ends no service: the older snapshot is still true of its
        place in the log, and the next one is tried in its time."""
        before, self._fault = self._fault, "" if error is None else error.strerror or str(error)
        if self._fault and not before:
            log.error("state cannot be written", extra={"path": self._path, "reason": self._fault})
        elif before and not self._fault:
            log.info("state written again", extra={"path": self._path})
