from stratamq.api.v1 import common_pb2 as _common_pb2
from stratamq.api.v1 import dispatcher_pb2 as _dispatcher_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FetchMessagesRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "offset", "max_messages", "max_bytes", "log_min_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOG_MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    offset: int
    max_messages: int
    max_bytes: int
    log_min_offset: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., offset: _Optional[int] = ..., max_messages: _Optional[int] = ..., max_bytes: _Optional[int] = ..., log_min_offset: _Optional[int] = ...) -> None: ...

class FetchMessagesResponse(_message.Message):
    __slots__ = ("status", "next_offset", "min_offset", "max_offset", "frames", "lengths", "tags_codes")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    TAGS_CODES_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.GetMessageStatus
    next_offset: int
    min_offset: int
    max_offset: int
    frames: bytes
    lengths: _containers.RepeatedScalarFieldContainer[int]
    tags_codes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, status: _Optional[_Union[_common_pb2.GetMessageStatus, str]] = ..., next_offset: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., frames: _Optional[bytes] = ..., lengths: _Optional[_Iterable[int]] = ..., tags_codes: _Optional[_Iterable[int]] = ...) -> None: ...

class ListTierQueuesRequest(_message.Message):
    __slots__ = ("topic", "after_revision", "position", "max_entries")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    AFTER_REVISION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    MAX_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    after_revision: int
    position: int
    max_entries: int
    def __init__(self, topic: _Optional[str] = ..., after_revision: _Optional[int] = ..., position: _Optional[int] = ..., max_entries: _Optional[int] = ...) -> None: ...

class TierQueueInfo(_message.Message):
    __slots__ = ("topic", "queue_id", "min_offset", "max_offset", "first_store_timestamp_ms", "last_store_timestamp_ms", "size", "segment_count", "missing_messages")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FIRST_STORE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_STORE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    MISSING_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    first_store_timestamp_ms: int
    last_store_timestamp_ms: int
    size: int
    segment_count: int
    missing_messages: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., first_store_timestamp_ms: _Optional[int] = ..., last_store_timestamp_ms: _Optional[int] = ..., size: _Optional[int] = ..., segment_count: _Optional[int] = ..., missing_messages: _Optional[int] = ...) -> None: ...

class ListTierQueuesResponse(_message.Message):
    __slots__ = ("queues", "next_position", "revision")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    NEXT_POSITION_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[TierQueueInfo]
    next_position: int
    revision: int
    def __init__(self, queues: _Optional[_Iterable[_Union[TierQueueInfo, _Mapping]]] = ..., next_position: _Optional[int] = ..., revision: _Optional[int] = ...) -> None: ...

class GetTierOffsetByTimeRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "timestamp_ms", "boundary")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    BOUNDARY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    timestamp_ms: int
    boundary: _dispatcher_pb2.TimeBoundary
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., boundary: _Optional[_Union[_dispatcher_pb2.TimeBoundary, str]] = ...) -> None: ...

class GetTierOffsetByTimeResponse(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...

class QueryTierKeyRequest(_message.Message):
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

class QueryTierKeyResponse(_message.Message):
    __slots__ = ("frames", "lengths", "truncated", "queues_behind")
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    QUEUES_BEHIND_FIELD_NUMBER: _ClassVar[int]
    frames: bytes
    lengths: _containers.RepeatedScalarFieldContainer[int]
    truncated: bool
    queues_behind: int
    def __init__(self, frames: _Optional[bytes] = ..., lengths: _Optional[_Iterable[int]] = ..., truncated: bool = ..., queues_behind: _Optional[int] = ...) -> None: ...

class TierRequests(_message.Message):
    __slots__ = ("kind", "count", "bytes", "errors", "cost_usd")
    KIND_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    COST_USD_FIELD_NUMBER: _ClassVar[int]
    kind: str
    count: int
    bytes: int
    errors: int
    cost_usd: float
    def __init__(self, kind: _Optional[str] = ..., count: _Optional[int] = ..., bytes: _Optional[int] = ..., errors: _Optional[int] = ..., cost_usd: _Optional[float] = ...) -> None: ...

class GetTierStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetTierStatusResponse(_message.Message):
    __slots__ = ("storage", "cluster", "broker", "not_writing_reason", "committed_offset", "read_offset", "log_confirmed_offset", "lag_ms", "waiting_messages", "waiting_bytes", "committed_messages", "committed_bytes", "queue_count", "requests", "cache_bytes", "cache_hits", "cache_misses", "failing_queues", "last_failure", "index_items", "index_waiting_items", "index_files", "index_queues_behind", "index_failure", "lost_messages", "lost_queues", "lost_example", "put_backs")
    STORAGE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    NOT_WRITING_REASON_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    READ_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_CONFIRMED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAG_MS_FIELD_NUMBER: _ClassVar[int]
    WAITING_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    WAITING_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_BYTES_FIELD_NUMBER: _ClassVar[int]
    QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    CACHE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CACHE_HITS_FIELD_NUMBER: _ClassVar[int]
    CACHE_MISSES_FIELD_NUMBER: _ClassVar[int]
    FAILING_QUEUES_FIELD_NUMBER: _ClassVar[int]
    LAST_FAILURE_FIELD_NUMBER: _ClassVar[int]
    INDEX_ITEMS_FIELD_NUMBER: _ClassVar[int]
    INDEX_WAITING_ITEMS_FIELD_NUMBER: _ClassVar[int]
    INDEX_FILES_FIELD_NUMBER: _ClassVar[int]
    INDEX_QUEUES_BEHIND_FIELD_NUMBER: _ClassVar[int]
    INDEX_FAILURE_FIELD_NUMBER: _ClassVar[int]
    LOST_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    LOST_QUEUES_FIELD_NUMBER: _ClassVar[int]
    LOST_EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    PUT_BACKS_FIELD_NUMBER: _ClassVar[int]
    storage: str
    cluster: str
    broker: str
    not_writing_reason: str
    committed_offset: int
    read_offset: int
    log_confirmed_offset: int
    lag_ms: int
    waiting_messages: int
    waiting_bytes: int
    committed_messages: int
    committed_bytes: int
    queue_count: int
    requests: _containers.RepeatedCompositeFieldContainer[TierRequests]
    cache_bytes: int
    cache_hits: int
    cache_misses: int
    failing_queues: int
    last_failure: str
    index_items: int
    index_waiting_items: int
    index_files: int
    index_queues_behind: int
    index_failure: str
    lost_messages: int
    lost_queues: int
    lost_example: str
    put_backs: int
    def __init__(self, storage: _Optional[str] = ..., cluster: _Optional[str] = ..., broker: _Optional[str] = ..., not_writing_reason: _Optional[str] = ..., committed_offset: _Optional[int] = ..., read_offset: _Optional[int] = ..., log_confirmed_offset: _Optional[int] = ..., lag_ms: _Optional[int] = ..., waiting_messages: _Optional[int] = ..., waiting_bytes: _Optional[int] = ..., committed_messages: _Optional[int] = ..., committed_bytes: _Optional[int] = ..., queue_count: _Optional[int] = ..., requests: _Optional[_Iterable[_Union[TierRequests, _Mapping]]] = ..., cache_bytes: _Optional[int] = ..., cache_hits: _Optional[int] = ..., cache_misses: _Optional[int] = ..., failing_queues: _Optional[int] = ..., last_failure: _Optional[str] = ..., index_items: _Optional[int] = ..., index_waiting_items: _Optional[int] = ..., index_files: _Optional[int] = ..., index_queues_behind: _Optional[int] = ..., index_failure: _Optional[str] = ..., lost_messages: _Optional[int] = ..., lost_queues: _Optional[int] = ..., lost_example: _Optional[str] = ..., put_backs: _Optional[int] = ...) -> None: ...
