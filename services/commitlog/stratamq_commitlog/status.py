"""The log at one moment, for those who ask."""

from collections.abc import Sequence

from stratamq_commitlog.log_state import LogState
from stratamq_commitlog.messages import LogStatus
from stratamq_commitlog.replica.follow_hub import LogOffsets
from stratamq_commitlog.write.segment_set import SegmentSet
from stratamq_commitlog.write.write_gate import WriteGate


def status_of(
    offsets: LogOffsets,
    state: LogState,
    segments: SegmentSet,
    gate: WriteGate,
    writable: tuple[bool, str],
    report: Sequence[str],
    unable: tuple[int, str],
) -> LogStatus:
    """`writable`: whether producers are served, and if not why. `unable`: for how long, in ms, and
    why nothing could be acknowledged (`Ability`)."""
    return LogStatus(
        minimum=offsets.minimum,
        appended=offsets.appended,
        flushed=offsets.flushed,
        confirmed=offsets.confirmed,
        role=state.role,
        generations=state.generations,
        writable=writable[0],
        not_writable_reason=writable[1],
        segment_bytes=segments.segment_bytes,
        segment_count=len(segments.offsets),
        disk_used_ratio=gate.disk_used_ratio,
        disk_full_in_s=gate.disk_full_in_s,
        recovery_report=tuple(report),
        unable_ms=unable[0],
        unable_reason=unable[1],
    )
