"""What the dispatcher remembers over a stop: how far its files are right, and which there are.

    stratamq/dispatcher.json             generation, position, store time, complete, clean, and the
                                         number of the list that it stands on
    stratamq/dispatcher-queues.journal   pieces [[topic, id, first, last], …] (the names of a
                                         queue's first and last file, without the first: the queue
                                         has none), commits {"file_bytes", "number"}
    stratamq/dispatcher-stale.json       up to which index queues are being zeroed; mostly none

The first changes every second, the second when a file is made or removed (what changed is
appended), the third when a cut is carried out. Without the first nothing is known of the queue
files and all are compared with the log; the same when one of the others is unusable, or when the
list is older than what the first stands on, or another release's. With `complete` false that goes
on from the position.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

from stratamq.files.journal import PIECE_ENTRIES, Journal
from stratamq.files.metadata import LoadOutcome, MetadataFile, remove_metadata
from stratamq.files.port import Files
from stratamq.formats.queue_paths import QueueGeometry
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.store_paths import (
    DISPATCHER_QUEUES_PATH,
    DISPATCHER_STALE_PATH,
    DISPATCHER_STATE_PATH,
    OLD_DISPATCHER_QUEUES_PATH,
)

QueueKey = tuple[str, int]
Ranges = dict[tuple[str, int], tuple[int, int]]
"""By topic and queue id: first unit of the first file, unit behind the last file."""


Stale = dict[tuple[str, int], int]
"""By topic and queue id: the index up to which there may be something to zero."""


@dataclass(frozen=True, slots=True)
class DispatchState:
    """`complete` false: a pass over the whole log has begun, not finished. The files hold all
    of the log below the position, and behind that anything.

    `clean`: nothing was written since, so that behind the position there is nothing in the files.
    `minimum`: the log's, as last heard: queues may have been begun again behind it, and a log that
    dies before it unlinks what it deleted comes back with a lower one.
    """

    generation: int = 0
    position: int = 0
    store_timestamp_ms: int = 0
    complete: bool = False
    clean: bool = False
    minimum: int = 0
    list_number: int = 0
    """The number of the list of files that was durable before this: an older list is not
    trusted."""


@dataclass(frozen=True, slots=True)
class RecordedQueues:
    file_bytes: int
    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a start finds. Each is None when missing or unusable; `report` has the reason."""

    state: DispatchState | None
    queues: RecordedQueues | None
    stale: Stale | None
    never_ours: bool
    """There is no watermark of ours, not even a damaged one."""
    report: list[str]


class StateFile:
    """The three files. `load` before anything runs, `store…` on the writer's lane only."""

    def __init__(self, files: Files) -> None:
        self._state = MetadataFile(files, DISPATCHER_STATE_PATH)
        self._files = files
        self._queues = Journal(files, DISPATCHER_QUEUES_PATH)
        self._list_number = 0
        self._stale = MetadataFile(files, DISPATCHER_STALE_PATH)

    def load(self) -> Remembered:
        """Never raises for what the files hold."""
        document = self._state.load()
        state = _state_of(document)
        if state is not None and self._state.found.outcome is not LoadOutcome.OK:
            state = replace(state, clean=False)  # an older one: files may have changed since
        of_older_release = document is not None and "list_number" not in document
        queues, faults = self._load_queues(of_older_release)
        if queues is not None and state is not None and self._list_number < state.list_number:
            queues = None  # files have been made and removed since
            faults.append(f"{DISPATCHER_QUEUES_PATH}: older than {DISPATCHER_STATE_PATH}")
        stale = _stale_of(self._stale.load())
        if self._stale.found.outcome not in (LoadOutcome.OK, LoadOutcome.MISSING):
            stale = None
        if state is not None:
            state = replace(state, list_number=0)  # set when it is stored
        if stale is None or queues is None:
            state = None  # what was being zeroed, or removed, is not known any more
        found = (self._state.found, self._stale.found)
        return Remembered(
            state,
            queues,
            stale,
            never_ours=self._state.found.outcome is LoadOutcome.MISSING,
            report=[*faults, *(fault for one in found for fault in one.faults)],
        )

    def store(self, state: DispatchState) -> None:
        self._state.store(asdict(replace(state, list_number=self._list_number)))

    def store_ranges(
        self, geometry: QueueGeometry, ranges: Ranges, changed: Collection[QueueKey] | None
    ) -> None:
        """The list of files; `changed` None: all of it may differ from what is stored."""
        self._list_number += 1
        commit = {"file_bytes": geometry.file_bytes, "number": self._list_number}
        if changed is None or self._queues.must_rewrite:
            self._queues.rewrite_all(_pieces(geometry, ranges, ranges), commit)
            remove_metadata(self._files, OLD_DISPATCHER_QUEUES_PATH)
        else:
            self._queues.append(_pieces(geometry, ranges, changed), commit)

    def _load_queues(self, of_older_release: bool) -> tuple[RecordedQueues | None, list[str]]:
        """The list that goes with the state that was found."""
        queues, faults = self._load_journal()
        if not of_older_release:
            return queues, faults
        # What such a release has made since is not in the journal: the next list is a whole one.
        self._queues = Journal(self._files, DISPATCHER_QUEUES_PATH)
        old = MetadataFile(self._files, OLD_DISPATCHER_QUEUES_PATH)
        queues = _queues_of(old.load())
        return queues if old.found.outcome is LoadOutcome.OK else None, list(old.found.faults)

    def _load_journal(self) -> tuple[RecordedQueues | None, list[str]]:
        ranges: dict[QueueKey, tuple[int, int]] = {}

        def take(piece: Any) -> None:
            for topic, queue_id, *names in piece:
                if names:
                    first, last = names
                    ranges[topic, queue_id] = int(first), int(last)
                else:
                    ranges.pop((topic, queue_id), None)

        try:
            committed = self._queues.load(take)
            faults = list(self._queues.faults)
            if self._queues.found_previous:
                return None, faults  # files may have been made and removed since
            if committed is not None:
                self._list_number = int(committed["number"])
                return _recorded(committed["file_bytes"], ranges), faults
        except (KeyError, TypeError, ValueError) as error:
            self._queues = Journal(self._files, DISPATCHER_QUEUES_PATH)
            return None, [f"{DISPATCHER_QUEUES_PATH}: {error!r}"]
        return None, faults

    def store_stale(self, stale: Stale) -> None:
        queues: dict[str, dict[str, int]] = {}
        for (topic, queue_id), upto in sorted(stale.items()):
            queues.setdefault(topic, {})[str(queue_id)] = upto
        self._stale.store({"queues": queues})


def _state_of(data: dict[str, object] | None) -> DispatchState | None:
    if data is None:
        return None
    numbers = [data.get(name) for name in ("generation", "position", "store_timestamp_ms")]
    flags = [data.get(name) for name in ("complete", "clean")]
    minimum, list_number = data.get("minimum", 0), data.get("list_number", 0)
    if not all(type(number) is int for number in (*numbers, minimum, list_number)):
        return None
    if not all(type(flag) is bool for flag in flags):
        return None
    return DispatchState(*numbers, *flags, minimum, list_number)  # type: ignore[arg-type]


def _pieces(
    geometry: QueueGeometry, ranges: Ranges, keys: Iterable[QueueKey]
) -> Iterator[list[tuple[str | int, ...]]]:
    left = iter(keys)
    while some := list(islice(left, PIECE_ENTRIES)):
        piece: list[tuple[str | int, ...]] = []
        for topic, queue_id in some:
            known = ranges.get((topic, queue_id))
            if known is None:
                piece.append((topic, queue_id))
            else:
                first, last = known[0], known[1] - geometry.units_per_file
                names = first * QUEUE_UNIT_BYTES, last * QUEUE_UNIT_BYTES
                piece.append((topic, queue_id, *names))
        yield piece


def _recorded(file_bytes: object, names: dict[QueueKey, tuple[int, int]]) -> RecordedQueues | None:
    if type(file_bytes) is not int or file_bytes <= 0 or file_bytes % QUEUE_UNIT_BYTES:
        return None
    units = QUEUE_UNIT_BYTES
    return RecordedQueues(
        file_bytes,
        {
            key: (first // units, (last + file_bytes) // units)
            for key, (first, last) in names.items()
        },
    )


def _queues_of(data: dict[str, object] | None) -> RecordedQueues | None:
    """The list as it was written before it was a journal; None for anything else."""
    try:
        file_bytes = data["file_bytes"]  # type: ignore[index]
        if type(file_bytes) is not int or file_bytes <= 0 or file_bytes % QUEUE_UNIT_BYTES:
            return None
        ranges: Ranges = {}
        for topic, by_id in data["queues"].items():  # type: ignore[index,union-attr]
            for queue_id, (first, last) in by_id.items():
                behind = last + file_bytes
                ranges[topic, int(queue_id)] = (
                    first // QUEUE_UNIT_BYTES,
                    behind // QUEUE_UNIT_BYTES,
                )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return RecordedQueues(file_bytes, ranges)


def _stale_of(data: dict[str, object] | None) -> Stale | None:
    """Empty when there is none; None for anything that is not what `store_stale` writes."""
    if data is None:
        return {}
    try:
        return {
            (topic, int(queue_id)): int(upto)
            for topic, by_id in data["queues"].items()  # type: ignore[attr-defined]
            for queue_id, upto in by_id.items()
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
