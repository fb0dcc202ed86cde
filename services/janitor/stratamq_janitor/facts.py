"""The policy's input, read from the log's files and asked of the services."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

from stratamq.client.values import FollowerServiceState, GroupQueue, Unit
from stratamq.errors import StrataError
from stratamq.files.port import EntryKind, Files
from stratamq.formats.file_names import offset_name, parse_offset_name
from stratamq.formats.frame_scan import SEGMENT_HEAD_BYTES, first_store_time
from stratamq.formats.log_state import LogState
from stratamq.formats.store_paths import COMMIT_LOG, DELIVERY_STATE_PATH
from stratamq.store.confirmed import read_checkpoint
from stratamq_janitor.policy import SegmentFacts


class Services(Protocol):
    """What is asked of the broker's other services; `stratamq.client.Client` is one."""

    def log_state(self) -> LogState: ...

    def groups(self) -> list[GroupQueue]: ...

    def units(self, topic: str, queue_id: int, offset: int, count: int = 32) -> list[Unit]: ...


class Operators(Protocol):
    """What operators may ask for, too; `stratamq.client.AdminClient` has it."""

    def delivery_state(self) -> FollowerServiceState: ...

    def delete_below(
        self, offset: int, *, max_segments: int, urgent: bool
    ) -> tuple[int, tuple[str, ...]]: ...


def segment_facts(
    files: Files, state: LogState, now_ms: int, *, by_file_time: bool
) -> list[SegmentFacts]:
    """Every segment of the log, oldest first. `by_file_time`: RocketMQ's way, by the time of the
    last change of each file, instead of the store times in the log.

    A store time in the future is the work of a clock that was put forward and back: store times
    never go back, so that everything stored since has it. The file's time counts there.
    """
    size = state.segment_bytes
    first = state.minimum_offset - state.minimum_offset % size
    starts = list(range(first, max(state.appended_offset, first + 1), size))
    if by_file_time:
        newest = [_changed_ms(files, start) for start in starts]
    else:
        # Store times never go back: what the next segment begins with is not older.
        newest = [_first_store_time(files, start) for start in starts[1:]] + [None]
        newest = [
            _changed_ms(files, start) if stored is not None and stored > now_ms else stored
            for start, stored in zip(starts, newest, strict=True)
        ]
    return [
        SegmentFacts(start, start + size, newest_ms)
        for start, newest_ms in zip(starts, newest, strict=True)
    ]


def leaving_bytes(files: Files, state: LogState) -> int:
    """Bytes of segments that are out of the log and still on the disk, until followers let go."""
    return sum(
        entry.size
        for entry in files.list(COMMIT_LOG)
        if (start := parse_offset_name(entry.name)) is not None
        and start + state.segment_bytes <= state.minimum_offset
    )


def newest_message_ms(files: Files) -> int | None:
    """Store time of the newest message that is on the disk, by the log's checkpoint; None
    when it has none."""
    checkpoint = read_checkpoint(files)
    return None if checkpoint is None else checkpoint.physic_msg_timestamp_ms or None


def _first_store_time(files: Files, start: int) -> int | None:
    """Store time of a segment's first frame; None when there is none (yet)."""
    path = f"{COMMIT_LOG}/{offset_name(start)}"
    entry = files.entry(path)
    if entry is None or entry.kind is not EntryKind.FILE:
        return None
    with closing(files.open(path)) as file:
        return first_store_time(file.read(0, SEGMENT_HEAD_BYTES), start)


def _changed_ms(files: Files, start: int) -> int | None:
    entry = files.entry(f"{COMMIT_LOG}/{offset_name(start)}")
    return None if entry is None else entry.mtime_ns // 1_000_000


@dataclass(frozen=True, slots=True)
class Reach:
    """How far something has come in the log, and who is furthest back."""

    offset: int
    who: str = ""


def replicated_up_to(state: LogState) -> Reach:
    """What every slave in the log's status has; 0 without one."""
    if not state.replicas:
        return Reach(0, "the log has no slave in its status")
    last = min(state.replicas, key=lambda one: one.acknowledged_offset)
    away = "" if last.connected else ", which is not connected"
    return Reach(last.acknowledged_offset, f"slave {last.address}{away}")


def tiered_up_to(state: LogState) -> Reach:
    """What the tier has made durable; 0 without one."""
    tier = next((one for one in state.followers if one.name == "tier"), None)
    return Reach(0, "there is no tier") if tier is None else Reach(tier.durable_offset)


def waiting_from(files: Files, operators: Operators) -> Reach | None:
    """From where on messages wait for their delivery; None: no delivery service was ever here. One
    that does not answer may have messages anywhere: then `who` says why it is not known."""
    if files.entry(DELIVERY_STATE_PATH) is None:
        return None
    try:
        state = operators.delivery_state()
    except StrataError as error:
        return Reach(0, f"the delivery service does not answer: {error}")
    if not state.serving:
        return Reach(0, "the delivery service does not serve yet")
    return Reach(state.needed_offset)


def consumed_up_to(services: Services, groups: Iterable[str], end: int) -> Reach:
    """The log offset below which the named groups have consumed every queue they read.

    A group that has never committed an offset holds everything back; a queue of which it has
    committed nothing, in a topic of which it has, is held from its first message.
    """
    named = set(groups)
    offsets = [one for one in services.groups() if one.group in named]
    if silent := sorted(named - {one.group for one in offsets}):
        return Reach(0, f"group {silent[0]} has never committed an offset")
    reach = Reach(end)
    for one in offsets:
        units: Sequence[Unit] = services.units(one.topic, one.queue_id, max(one.offset, 0), 1)
        if units and (one.offset < 0 or units[0].queue_offset == one.offset):
            place = units[0].physical_offset
            if place < reach.offset:
                at = f"at offset {one.offset}" if one.offset >= 0 else "with nothing committed"
                where = f"topic {one.topic} queue {one.queue_id}, {at}"
                reach = Reach(place, f"group {one.group} in {where}")
    return reach
