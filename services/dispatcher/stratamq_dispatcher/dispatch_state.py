"""What the dispatcher remembers over a stop: how far its files are right, and which there are.

    stratamq/dispatcher.json           generation, position, store time, complete, clean
    stratamq/dispatcher-queues.json    size of a queue file; first and last file of every queue
    stratamq/dispatcher-stale.json     up to which index queues are being zeroed; mostly none

The first changes every second, the second when a file is made or removed, the third when a cut is
carried out. Without the first nothing is known of the queue files and all are compared with the
log; the same when one of the others is unusable. With `complete` false that goes on from the
position.
"""

from dataclasses import asdict, dataclass, replace

from stratamq.files.metadata import MetadataFile, Outcome
from stratamq.files.port import OWN_DIRECTORY, Files
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq_dispatcher.queue_files import Geometry

STATE_PATH = f"{OWN_DIRECTORY}/dispatcher.json"
QUEUES_PATH = f"{OWN_DIRECTORY}/dispatcher-queues.json"
STALE_PATH = f"{OWN_DIRECTORY}/dispatcher-stale.json"

Ranges = dict[tuple[str, int], tuple[int, int]]
"""By topic and queue id: first unit of the first file, unit behind the last file."""


Stale = dict[tuple[str, int], int]
"""By topic and queue id: the index up to which there may be something to zero."""


@dataclass(frozen=True, slots=True)
class DispatchState:
    """`complete` false: a pass over the whole log has begun, not finished. The files hold all
    of the log below the position, and behind that anything.

    `clean`: nothing was written since, so that behind the position there is nothing in the files.
    `minimum`: the log's, as last heard: queues may have been begun anew behind it, and a log that
    dies before it unlinks what it deleted comes back with a lower one.
    """

    generation: int = 0
    position: int = 0
    store_timestamp_ms: int = 0
    complete: bool = False
    clean: bool = False
    minimum: int = 0


@dataclass(frozen=True, slots=True)
class RecordedQueues:
    file_bytes: int
    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a start finds. Each is None when missing or unusable; `report` says why."""

    state: DispatchState | None
    queues: RecordedQueues | None
    stale: Stale | None
    never_ours: bool
    """There is no watermark of ours, not even a damaged one."""
    report: list[str]


class StateFile:
    """The three files. `load` before anything runs, `store…` on the writer's lane only."""

    def __init__(self, files: Files) -> None:
        self._state = MetadataFile(files, STATE_PATH)
        self._queues = MetadataFile(files, QUEUES_PATH)
        self._stale = MetadataFile(files, STALE_PATH)

    def load(self) -> Remembered:
        """Never raises for what the files hold."""
        state = _state_of(self._state.load())
        if state is not None and self._state.found.outcome is not Outcome.OK:
            state = replace(state, clean=False)  # an older one: files may have changed since
        queues = _queues_of(self._queues.load())
        if self._queues.found.outcome is not Outcome.OK:
            queues = None  # files may have been made and removed since
        stale = _stale_of(self._stale.load())
        if self._stale.found.outcome not in (Outcome.OK, Outcome.MISSING):
            stale = None
        if stale is None or queues is None:
            state = None  # what was being zeroed, or removed, is not known any more
        found = (self._state.found, self._queues.found, self._stale.found)
        return Remembered(
            state,
            queues,
            stale,
            never_ours=self._state.found.outcome is Outcome.MISSING,
            report=[fault for one in found for fault in one.faults],
        )

    def store(self, state: DispatchState) -> None:
        self._state.store(asdict(state))

    def store_ranges(self, geometry: Geometry, ranges: Ranges) -> None:
        queues: dict[str, dict[str, list[int]]] = {}
        for (topic, queue_id), (first, behind) in sorted(ranges.items()):
            last = behind - geometry.units_per_file
            names = [first * QUEUE_UNIT_BYTES, last * QUEUE_UNIT_BYTES]
            queues.setdefault(topic, {})[str(queue_id)] = names
        self._queues.store({"file_bytes": geometry.file_bytes, "queues": queues})

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
    minimum = data.get("minimum", 0)
    if not all(type(number) is int for number in (*numbers, minimum)):
        return None
    if not all(type(flag) is bool for flag in flags):
        return None
    return DispatchState(*numbers, *flags, minimum)  # type: ignore[arg-type]


def _queues_of(data: dict[str, object] | None) -> RecordedQueues | None:
    """None for anything that is not exactly what `store_ranges` writes."""
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
