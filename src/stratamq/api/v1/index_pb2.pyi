from stratamq.api.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class QueryKeyRequest(_message.Message):
    __slots__ = ("topic", "key", "unique_key_only", "max_messages", "begin_timestamp_ms", "end_timestamp_ms", "oldest_first")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_ONLY_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    END_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIRST_FIELD_NUMBER: _ClassVar[int]
    topic: str
    key: str
    unique_key_only: bool
    max_messages: int
    begin_timestamp_ms: int
    end_timestamp_ms: int
    oldest_first: bool
    def __init__(self, topic: _Optional[str] = ..., key: _Optional[str] = ..., unique_key_only: bool = ..., max_messages: _Optional[int] = ..., begin_timestamp_ms: _Optional[int] = ..., end_timestamp_ms: _Optional[int] = ..., oldest_first: bool = ...) -> None: ...

class QueryKeyResponse(_message.Message):
    __slots__ = ("frames", "applied_offset", "truncated", "missing")
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    APPLIED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    frames: _containers.RepeatedCompositeFieldContainer[_common_pb2.StoredFrame]
    applied_offset: int
    truncated: bool
    missing: str
    def __init__(self, frames: _Optional[_Iterable[_Union[_common_pb2.StoredFrame, _Mapping]]] = ..., applied_offset: _Optional[int] = ..., truncated: bool = ..., missing: _Optional[str] = ...) -> None: ...

class RebuildRequest(_message.Message):
    __slots__ = ("start_offset", "end_offset")
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    start_offset: int
    end_offset: int
    def __init__(self, start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class RebuildResponse(_message.Message):
    __slots__ = ("files_rebuilt", "items")
    FILES_REBUILT_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    files_rebuilt: int
    items: int
    def __init__(self, files_rebuilt: _Optional[int] = ..., items: _Optional[int] = ...) -> None: ...

class IndexFileInfo(_message.Message):
    __slots__ = ("name", "begin_timestamp_ms", "end_timestamp_ms", "begin_physical_offset", "end_physical_offset", "hash_slot_count", "index_count")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    END_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    BEGIN_PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HASH_SLOT_COUNT_FIELD_NUMBER: _ClassVar[int]
    INDEX_COUNT_FIELD_NUMBER: _ClassVar[int]
    name: str
    begin_timestamp_ms: int
    end_timestamp_ms: int
    begin_physical_offset: int
    end_physical_offset: int
    hash_slot_count: int
    index_count: int
    def __init__(self, name: _Optional[str] = ..., begin_timestamp_ms: _Optional[int] = ..., end_timestamp_ms: _Optional[int] = ..., begin_physical_offset: _Optional[int] = ..., end_physical_offset: _Optional[int] = ..., hash_slot_count: _Optional[int] = ..., index_count: _Optional[int] = ...) -> None: ...

class GetIndexStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetIndexStatusResponse(_message.Message):
    __slots__ = ("applied_offset", "durable_offset", "log_confirmed_offset", "files", "serving", "recovery_report", "stopped_reason")
    APPLIED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DURABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_CONFIRMED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    SERVING_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_REPORT_FIELD_NUMBER: _ClassVar[int]
    STOPPED_REASON_FIELD_NUMBER: _ClassVar[int]
    applied_offset: int
    durable_offset: int
    log_confirmed_offset: int
    files: _containers.RepeatedCompositeFieldContainer[IndexFileInfo]
    serving: bool
    recovery_report: _containers.RepeatedScalarFieldContainer[str]
    stopped_reason: str
    def __init__(self, applied_offset: _Optional[int] = ..., durable_offset: _Optional[int] = ..., log_confirmed_offset: _Optional[int] = ..., files: _Optional[_Iterable[_Union[IndexFileInfo, _Mapping]]] = ..., serving: bool = ..., recovery_report: _Optional[_Iterable[str]] = ..., stopped_reason: _Optional[str] = ...) -> None: ...
