from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PlannedDeletion(_message.Message):
    __slots__ = ("start_offset", "end_offset", "reason", "sentence")
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    start_offset: int
    end_offset: int
    reason: str
    sentence: str
    def __init__(self, start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., reason: _Optional[str] = ..., sentence: _Optional[str] = ...) -> None: ...

class HeldSegment(_message.Message):
    __slots__ = ("start_offset", "end_offset", "by", "sentence")
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    start_offset: int
    end_offset: int
    by: str
    sentence: str
    def __init__(self, start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., by: _Optional[str] = ..., sentence: _Optional[str] = ...) -> None: ...

class KeptSegment(_message.Message):
    __slots__ = ("start_offset", "end_offset", "sentence")
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    start_offset: int
    end_offset: int
    sentence: str
    def __init__(self, start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., sentence: _Optional[str] = ...) -> None: ...

class Look(_message.Message):
    __slots__ = ("at_ms", "disk_used_ratio", "segments", "deletions", "held", "alarm", "deleted", "minimum_offset", "kept")
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    DISK_USED_RATIO_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    DELETIONS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    ALARM_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    at_ms: int
    disk_used_ratio: float
    segments: int
    deletions: _containers.RepeatedCompositeFieldContainer[PlannedDeletion]
    held: _containers.RepeatedCompositeFieldContainer[HeldSegment]
    alarm: str
    deleted: _containers.RepeatedScalarFieldContainer[str]
    minimum_offset: int
    kept: KeptSegment
    def __init__(self, at_ms: _Optional[int] = ..., disk_used_ratio: _Optional[float] = ..., segments: _Optional[int] = ..., deletions: _Optional[_Iterable[_Union[PlannedDeletion, _Mapping]]] = ..., held: _Optional[_Iterable[_Union[HeldSegment, _Mapping]]] = ..., alarm: _Optional[str] = ..., deleted: _Optional[_Iterable[str]] = ..., minimum_offset: _Optional[int] = ..., kept: _Optional[_Union[KeptSegment, _Mapping]] = ...) -> None: ...

class GetJanitorStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetJanitorStatusResponse(_message.Message):
    __slots__ = ("last", "deleted_segments", "freed_bytes", "failure", "policy", "disabled")
    LAST_FIELD_NUMBER: _ClassVar[int]
    DELETED_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    FREED_BYTES_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    DISABLED_FIELD_NUMBER: _ClassVar[int]
    last: Look
    deleted_segments: int
    freed_bytes: int
    failure: str
    policy: str
    disabled: str
    def __init__(self, last: _Optional[_Union[Look, _Mapping]] = ..., deleted_segments: _Optional[int] = ..., freed_bytes: _Optional[int] = ..., failure: _Optional[str] = ..., policy: _Optional[str] = ..., disabled: _Optional[str] = ...) -> None: ...

class LogShare(_message.Message):
    __slots__ = ("segments", "size_bytes")
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    segments: int
    size_bytes: int
    def __init__(self, segments: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class Retention(_message.Message):
    __slots__ = ("disabled", "policy", "at_once", "expired")
    DISABLED_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    AT_ONCE_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    disabled: str
    policy: str
    at_once: LogShare
    expired: LogShare
    def __init__(self, disabled: _Optional[str] = ..., policy: _Optional[str] = ..., at_once: _Optional[_Union[LogShare, _Mapping]] = ..., expired: _Optional[_Union[LogShare, _Mapping]] = ...) -> None: ...

class SegmentFate(_message.Message):
    __slots__ = ("start_offset", "end_offset", "newest_ms", "expires_ms", "deleted_by_ms", "obstacle")
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEWEST_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    DELETED_BY_MS_FIELD_NUMBER: _ClassVar[int]
    OBSTACLE_FIELD_NUMBER: _ClassVar[int]
    start_offset: int
    end_offset: int
    newest_ms: int
    expires_ms: int
    deleted_by_ms: int
    obstacle: str
    def __init__(self, start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., newest_ms: _Optional[int] = ..., expires_ms: _Optional[int] = ..., deleted_by_ms: _Optional[int] = ..., obstacle: _Optional[str] = ...) -> None: ...

class GetRetentionRequest(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...

class GetRetentionResponse(_message.Message):
    __slots__ = ("retention", "fate")
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    FATE_FIELD_NUMBER: _ClassVar[int]
    retention: Retention
    fate: SegmentFate
    def __init__(self, retention: _Optional[_Union[Retention, _Mapping]] = ..., fate: _Optional[_Union[SegmentFate, _Mapping]] = ...) -> None: ...

class SetRetentionRequest(_message.Message):
    __slots__ = ("enabled",)
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    def __init__(self, enabled: bool = ...) -> None: ...

class SetRetentionResponse(_message.Message):
    __slots__ = ("retention",)
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    retention: Retention
    def __init__(self, retention: _Optional[_Union[Retention, _Mapping]] = ...) -> None: ...

class PlanCleaningRequest(_message.Message):
    __slots__ = ("manual", "trust_clock")
    MANUAL_FIELD_NUMBER: _ClassVar[int]
    TRUST_CLOCK_FIELD_NUMBER: _ClassVar[int]
    manual: bool
    trust_clock: bool
    def __init__(self, manual: bool = ..., trust_clock: bool = ...) -> None: ...

class PlanCleaningResponse(_message.Message):
    __slots__ = ("look",)
    LOOK_FIELD_NUMBER: _ClassVar[int]
    look: Look
    def __init__(self, look: _Optional[_Union[Look, _Mapping]] = ...) -> None: ...

class RunCleaningRequest(_message.Message):
    __slots__ = ("trust_clock",)
    TRUST_CLOCK_FIELD_NUMBER: _ClassVar[int]
    trust_clock: bool
    def __init__(self, trust_clock: bool = ...) -> None: ...

class RunCleaningResponse(_message.Message):
    __slots__ = ("look",)
    LOOK_FIELD_NUMBER: _ClassVar[int]
    look: Look
    def __init__(self, look: _Optional[_Union[Look, _Mapping]] = ...) -> None: ...

class SegmentInfo(_message.Message):
    __slots__ = ("start_offset", "end_offset", "newest_timestamp_ms", "deletion_ms")
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEWEST_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    DELETION_MS_FIELD_NUMBER: _ClassVar[int]
    start_offset: int
    end_offset: int
    newest_timestamp_ms: int
    deletion_ms: int
    def __init__(self, start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., newest_timestamp_ms: _Optional[int] = ..., deletion_ms: _Optional[int] = ...) -> None: ...

class ListSegmentsRequest(_message.Message):
    __slots__ = ("position", "max_entries")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    MAX_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    position: int
    max_entries: int
    def __init__(self, position: _Optional[int] = ..., max_entries: _Optional[int] = ...) -> None: ...

class ListSegmentsResponse(_message.Message):
    __slots__ = ("segments", "next_position", "at_ms", "disk_total_bytes", "disk_used_bytes", "disabled", "tiered_offset", "plan", "retention")
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_POSITION_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    DISK_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISABLED_FIELD_NUMBER: _ClassVar[int]
    TIERED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedCompositeFieldContainer[SegmentInfo]
    next_position: int
    at_ms: int
    disk_total_bytes: int
    disk_used_bytes: int
    disabled: str
    tiered_offset: int
    plan: Look
    retention: Retention
    def __init__(self, segments: _Optional[_Iterable[_Union[SegmentInfo, _Mapping]]] = ..., next_position: _Optional[int] = ..., at_ms: _Optional[int] = ..., disk_total_bytes: _Optional[int] = ..., disk_used_bytes: _Optional[int] = ..., disabled: _Optional[str] = ..., tiered_offset: _Optional[int] = ..., plan: _Optional[_Union[Look, _Mapping]] = ..., retention: _Optional[_Union[Retention, _Mapping]] = ...) -> None: ...
