from stratamq.api.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TransactionType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRANSACTION_TYPE_UNSPECIFIED: _ClassVar[TransactionType]
    TRANSACTION_TYPE_HALF: _ClassVar[TransactionType]

class FollowHorizon(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FOLLOW_HORIZON_UNSPECIFIED: _ClassVar[FollowHorizon]
    FOLLOW_HORIZON_CONFIRMED: _ClassVar[FollowHorizon]
    FOLLOW_HORIZON_REPLICABLE: _ClassVar[FollowHorizon]
TRANSACTION_TYPE_UNSPECIFIED: TransactionType
TRANSACTION_TYPE_HALF: TransactionType
FOLLOW_HORIZON_UNSPECIFIED: FollowHorizon
FOLLOW_HORIZON_CONFIRMED: FollowHorizon
FOLLOW_HORIZON_REPLICABLE: FollowHorizon

class Message(_message.Message):
    __slots__ = ("topic", "queue_id", "body", "properties", "tag", "keys", "unique_key", "flag", "sys_flag", "born_timestamp_ms", "born_address", "born_port", "delay_level", "transaction", "reconsume_times", "wait_store_ok")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    FLAG_FIELD_NUMBER: _ClassVar[int]
    SYS_FLAG_FIELD_NUMBER: _ClassVar[int]
    BORN_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    BORN_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    BORN_PORT_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    RECONSUME_TIMES_FIELD_NUMBER: _ClassVar[int]
    WAIT_STORE_OK_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    body: bytes
    properties: _containers.ScalarMap[str, str]
    tag: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    unique_key: str
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_address: bytes
    born_port: int
    delay_level: int
    transaction: TransactionType
    reconsume_times: int
    wait_store_ok: bool
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., body: _Optional[bytes] = ..., properties: _Optional[_Mapping[str, str]] = ..., tag: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ..., unique_key: _Optional[str] = ..., flag: _Optional[int] = ..., sys_flag: _Optional[int] = ..., born_timestamp_ms: _Optional[int] = ..., born_address: _Optional[bytes] = ..., born_port: _Optional[int] = ..., delay_level: _Optional[int] = ..., transaction: _Optional[_Union[TransactionType, str]] = ..., reconsume_times: _Optional[int] = ..., wait_store_ok: bool = ...) -> None: ...

class LogPlace(_message.Message):
    __slots__ = ("generation", "offset")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    generation: int
    offset: int
    def __init__(self, generation: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class AppendRequest(_message.Message):
    __slots__ = ("messages", "all_or_nothing", "require_replicas", "producer_id", "first_sequence", "sent_from")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ALL_OR_NOTHING_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SENT_FROM_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    all_or_nothing: bool
    require_replicas: bool
    producer_id: int
    first_sequence: int
    sent_from: LogPlace
    def __init__(self, messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., all_or_nothing: bool = ..., require_replicas: bool = ..., producer_id: _Optional[int] = ..., first_sequence: _Optional[int] = ..., sent_from: _Optional[_Union[LogPlace, _Mapping]] = ...) -> None: ...

class AppendResult(_message.Message):
    __slots__ = ("status", "offset_message_id", "physical_offset", "queue_offset", "topic", "queue_id", "store_timestamp_ms", "error", "size", "error_name", "retry_after_ms", "beyond_window", "error_fields")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    STORE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    ERROR_NAME_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    BEYOND_WINDOW_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELDS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.PutMessageStatus
    offset_message_id: str
    physical_offset: int
    queue_offset: int
    topic: str
    queue_id: int
    store_timestamp_ms: int
    error: str
    size: int
    error_name: str
    retry_after_ms: int
    beyond_window: bool
    error_fields: str
    def __init__(self, status: _Optional[_Union[_common_pb2.PutMessageStatus, str]] = ..., offset_message_id: _Optional[str] = ..., physical_offset: _Optional[int] = ..., queue_offset: _Optional[int] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., store_timestamp_ms: _Optional[int] = ..., error: _Optional[str] = ..., size: _Optional[int] = ..., error_name: _Optional[str] = ..., retry_after_ms: _Optional[int] = ..., beyond_window: bool = ..., error_fields: _Optional[str] = ...) -> None: ...

class AppendResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[AppendResult]
    def __init__(self, results: _Optional[_Iterable[_Union[AppendResult, _Mapping]]] = ...) -> None: ...

class AppendRun(_message.Message):
    __slots__ = ("topic", "queue_id", "count")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    count: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class AppendOpen(_message.Message):
    __slots__ = ("client_name", "require_replicas", "producer_id", "writer", "generation", "in_order")
    CLIENT_NAME_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    IN_ORDER_FIELD_NUMBER: _ClassVar[int]
    client_name: str
    require_replicas: bool
    producer_id: int
    writer: str
    generation: int
    in_order: bool
    def __init__(self, client_name: _Optional[str] = ..., require_replicas: bool = ..., producer_id: _Optional[int] = ..., writer: _Optional[str] = ..., generation: _Optional[int] = ..., in_order: bool = ...) -> None: ...

class AppendOpened(_message.Message):
    __slots__ = ("store_address_bytes", "born_address", "born_port", "property_checksum_bytes", "max_batch_bytes", "max_batch_messages", "max_message_bytes", "role", "generation", "version2_frames", "appended_offset", "window_offset", "store_host", "store_time_ms", "sync_flush")
    STORE_ADDRESS_BYTES_FIELD_NUMBER: _ClassVar[int]
    BORN_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    BORN_PORT_FIELD_NUMBER: _ClassVar[int]
    PROPERTY_CHECKSUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    VERSION2_FRAMES_FIELD_NUMBER: _ClassVar[int]
    APPENDED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    WINDOW_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STORE_HOST_FIELD_NUMBER: _ClassVar[int]
    STORE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    SYNC_FLUSH_FIELD_NUMBER: _ClassVar[int]
    store_address_bytes: int
    born_address: bytes
    born_port: int
    property_checksum_bytes: int
    max_batch_bytes: int
    max_batch_messages: int
    max_message_bytes: int
    role: _common_pb2.BrokerRole
    generation: int
    version2_frames: bool
    appended_offset: int
    window_offset: int
    store_host: bytes
    store_time_ms: int
    sync_flush: bool
    def __init__(self, store_address_bytes: _Optional[int] = ..., born_address: _Optional[bytes] = ..., born_port: _Optional[int] = ..., property_checksum_bytes: _Optional[int] = ..., max_batch_bytes: _Optional[int] = ..., max_batch_messages: _Optional[int] = ..., max_message_bytes: _Optional[int] = ..., role: _Optional[_Union[_common_pb2.BrokerRole, str]] = ..., generation: _Optional[int] = ..., version2_frames: bool = ..., appended_offset: _Optional[int] = ..., window_offset: _Optional[int] = ..., store_host: _Optional[bytes] = ..., store_time_ms: _Optional[int] = ..., sync_flush: bool = ...) -> None: ...

class AppendStreamRequest(_message.Message):
    __slots__ = ("open", "sequence", "runs", "packed_lengths", "frames", "sent_from", "traceparent", "resumes", "partial")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    PACKED_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    SENT_FROM_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    RESUMES_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    open: AppendOpen
    sequence: int
    runs: _containers.RepeatedCompositeFieldContainer[AppendRun]
    packed_lengths: bytes
    frames: bytes
    sent_from: LogPlace
    traceparent: str
    resumes: bool
    partial: bool
    def __init__(self, open: _Optional[_Union[AppendOpen, _Mapping]] = ..., sequence: _Optional[int] = ..., runs: _Optional[_Iterable[_Union[AppendRun, _Mapping]]] = ..., packed_lengths: _Optional[bytes] = ..., frames: _Optional[bytes] = ..., sent_from: _Optional[_Union[LogPlace, _Mapping]] = ..., traceparent: _Optional[str] = ..., resumes: bool = ..., partial: bool = ...) -> None: ...

class AppendStreamResponse(_message.Message):
    __slots__ = ("opened", "results")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    opened: AppendOpened
    results: _containers.RepeatedCompositeFieldContainer[AppendBatchResult]
    def __init__(self, opened: _Optional[_Union[AppendOpened, _Mapping]] = ..., results: _Optional[_Iterable[_Union[AppendBatchResult, _Mapping]]] = ...) -> None: ...

class AppendedPart(_message.Message):
    __slots__ = ("physical_offset", "packed_lengths", "first_queue_offsets", "store_timestamp_ms", "queue_ids")
    PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PACKED_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    FIRST_QUEUE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    STORE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_IDS_FIELD_NUMBER: _ClassVar[int]
    physical_offset: int
    packed_lengths: bytes
    first_queue_offsets: _containers.RepeatedScalarFieldContainer[int]
    store_timestamp_ms: int
    queue_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, physical_offset: _Optional[int] = ..., packed_lengths: _Optional[bytes] = ..., first_queue_offsets: _Optional[_Iterable[int]] = ..., store_timestamp_ms: _Optional[int] = ..., queue_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class AppendRefusal(_message.Message):
    __slots__ = ("first", "count", "status", "error_name", "error", "error_fields", "retry_after_ms", "beyond_window")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_NAME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELDS_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    BEYOND_WINDOW_FIELD_NUMBER: _ClassVar[int]
    first: int
    count: int
    status: _common_pb2.PutMessageStatus
    error_name: str
    error: str
    error_fields: str
    retry_after_ms: int
    beyond_window: bool
    def __init__(self, first: _Optional[int] = ..., count: _Optional[int] = ..., status: _Optional[_Union[_common_pb2.PutMessageStatus, str]] = ..., error_name: _Optional[str] = ..., error: _Optional[str] = ..., error_fields: _Optional[str] = ..., retry_after_ms: _Optional[int] = ..., beyond_window: bool = ...) -> None: ...

class AppendBatchResult(_message.Message):
    __slots__ = ("sequence", "status", "physical_offset", "first_queue_offsets", "store_timestamp_ms", "error_name", "error", "bad_frame", "retry_after_ms", "parts", "beyond_window", "error_fields", "queue_ids", "refusals")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FIRST_QUEUE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    STORE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    ERROR_NAME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    BAD_FRAME_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    BEYOND_WINDOW_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELDS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_IDS_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    status: _common_pb2.PutMessageStatus
    physical_offset: int
    first_queue_offsets: _containers.RepeatedScalarFieldContainer[int]
    store_timestamp_ms: int
    error_name: str
    error: str
    bad_frame: int
    retry_after_ms: int
    parts: _containers.RepeatedCompositeFieldContainer[AppendedPart]
    beyond_window: bool
    error_fields: str
    queue_ids: _containers.RepeatedScalarFieldContainer[int]
    refusals: _containers.RepeatedCompositeFieldContainer[AppendRefusal]
    def __init__(self, sequence: _Optional[int] = ..., status: _Optional[_Union[_common_pb2.PutMessageStatus, str]] = ..., physical_offset: _Optional[int] = ..., first_queue_offsets: _Optional[_Iterable[int]] = ..., store_timestamp_ms: _Optional[int] = ..., error_name: _Optional[str] = ..., error: _Optional[str] = ..., bad_frame: _Optional[int] = ..., retry_after_ms: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[AppendedPart, _Mapping]]] = ..., beyond_window: bool = ..., error_fields: _Optional[str] = ..., queue_ids: _Optional[_Iterable[int]] = ..., refusals: _Optional[_Iterable[_Union[AppendRefusal, _Mapping]]] = ...) -> None: ...

class AppendRawRequest(_message.Message):
    __slots__ = ("frames",)
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    frames: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, frames: _Optional[_Iterable[bytes]] = ...) -> None: ...

class AppendRawResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[AppendResult]
    def __init__(self, results: _Optional[_Iterable[_Union[AppendResult, _Mapping]]] = ...) -> None: ...

class AppendDataRequest(_message.Message):
    __slots__ = ("generation", "offset", "master_confirmed_offset", "data")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MASTER_CONFIRMED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    generation: int
    offset: int
    master_confirmed_offset: int
    data: bytes
    def __init__(self, generation: _Optional[int] = ..., offset: _Optional[int] = ..., master_confirmed_offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class AppendDataResponse(_message.Message):
    __slots__ = ("appended_offset", "flushed_offset")
    APPENDED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    appended_offset: int
    flushed_offset: int
    def __init__(self, appended_offset: _Optional[int] = ..., flushed_offset: _Optional[int] = ...) -> None: ...

class GetFrameRequest(_message.Message):
    __slots__ = ("physical_offset",)
    PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    physical_offset: int
    def __init__(self, physical_offset: _Optional[int] = ...) -> None: ...

class GetFrameResponse(_message.Message):
    __slots__ = ("frame",)
    FRAME_FIELD_NUMBER: _ClassVar[int]
    frame: _common_pb2.StoredFrame
    def __init__(self, frame: _Optional[_Union[_common_pb2.StoredFrame, _Mapping]] = ...) -> None: ...

class ReadRangeRequest(_message.Message):
    __slots__ = ("start_offset", "end_offset", "max_bytes", "verify", "unconfirmed", "heads")
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    VERIFY_FIELD_NUMBER: _ClassVar[int]
    UNCONFIRMED_FIELD_NUMBER: _ClassVar[int]
    HEADS_FIELD_NUMBER: _ClassVar[int]
    start_offset: int
    end_offset: int
    max_bytes: int
    verify: bool
    unconfirmed: bool
    heads: bool
    def __init__(self, start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., max_bytes: _Optional[int] = ..., verify: bool = ..., unconfirmed: bool = ..., heads: bool = ...) -> None: ...

class ReadRangeResponse(_message.Message):
    __slots__ = ("offset", "data", "confirmed_offset", "packed_lengths")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PACKED_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    confirmed_offset: int
    packed_lengths: bytes
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ..., confirmed_offset: _Optional[int] = ..., packed_lengths: _Optional[bytes] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FollowerStatus(_message.Message):
    __slots__ = ("name", "connected", "applied_offset", "durable_offset", "lag_bytes", "durable_store_timestamp_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    APPLIED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DURABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    DURABLE_STORE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    connected: bool
    applied_offset: int
    durable_offset: int
    lag_bytes: int
    durable_store_timestamp_ms: int
    def __init__(self, name: _Optional[str] = ..., connected: bool = ..., applied_offset: _Optional[int] = ..., durable_offset: _Optional[int] = ..., lag_bytes: _Optional[int] = ..., durable_store_timestamp_ms: _Optional[int] = ...) -> None: ...

class DamagedStretch(_message.Message):
    __slots__ = ("start_offset", "end_offset", "reason")
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    start_offset: int
    end_offset: int
    reason: str
    def __init__(self, start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class ScrubStatus(_message.Message):
    __slots__ = ("position_offset", "pass_began_ms", "pass_ended_ms", "passes", "passing", "damage")
    POSITION_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PASS_BEGAN_MS_FIELD_NUMBER: _ClassVar[int]
    PASS_ENDED_MS_FIELD_NUMBER: _ClassVar[int]
    PASSES_FIELD_NUMBER: _ClassVar[int]
    PASSING_FIELD_NUMBER: _ClassVar[int]
    DAMAGE_FIELD_NUMBER: _ClassVar[int]
    position_offset: int
    pass_began_ms: int
    pass_ended_ms: int
    passes: int
    passing: bool
    damage: _containers.RepeatedCompositeFieldContainer[DamagedStretch]
    def __init__(self, position_offset: _Optional[int] = ..., pass_began_ms: _Optional[int] = ..., pass_ended_ms: _Optional[int] = ..., passes: _Optional[int] = ..., passing: bool = ..., damage: _Optional[_Iterable[_Union[DamagedStretch, _Mapping]]] = ...) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("minimum_offset", "appended_offset", "flushed_offset", "confirmed_offset", "role", "generations", "writable", "not_writable_reason", "segment_bytes", "segment_count", "followers", "replicas", "disk_used_ratio", "sync_flush", "recovery_report", "broker_name", "broker_id", "scrub", "configured_role", "role_reason", "term", "master_replication_address", "held_reason", "has_peers", "taking_back", "master_confirmed_offset", "clock_doubt", "identity", "members", "member", "rejoining", "promised_to", "required_replicas", "window_offset", "master_address", "lease_required", "lease_remaining_ms", "disk_full_in_s", "lead_ended_reason", "unable_ms", "unable_reason", "store_time_ms")
    MINIMUM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    APPENDED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    GENERATIONS_FIELD_NUMBER: _ClassVar[int]
    WRITABLE_FIELD_NUMBER: _ClassVar[int]
    NOT_WRITABLE_REASON_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    FOLLOWERS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    DISK_USED_RATIO_FIELD_NUMBER: _ClassVar[int]
    SYNC_FLUSH_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_REPORT_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SCRUB_FIELD_NUMBER: _ClassVar[int]
    CONFIGURED_ROLE_FIELD_NUMBER: _ClassVar[int]
    ROLE_REASON_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    MASTER_REPLICATION_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HELD_REASON_FIELD_NUMBER: _ClassVar[int]
    HAS_PEERS_FIELD_NUMBER: _ClassVar[int]
    TAKING_BACK_FIELD_NUMBER: _ClassVar[int]
    MASTER_CONFIRMED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CLOCK_DOUBT_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    REJOINING_FIELD_NUMBER: _ClassVar[int]
    PROMISED_TO_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MASTER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LEASE_REQUIRED_FIELD_NUMBER: _ClassVar[int]
    LEASE_REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    DISK_FULL_IN_S_FIELD_NUMBER: _ClassVar[int]
    LEAD_ENDED_REASON_FIELD_NUMBER: _ClassVar[int]
    UNABLE_MS_FIELD_NUMBER: _ClassVar[int]
    UNABLE_REASON_FIELD_NUMBER: _ClassVar[int]
    STORE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    minimum_offset: int
    appended_offset: int
    flushed_offset: int
    confirmed_offset: int
    role: _common_pb2.BrokerRole
    generations: _containers.RepeatedCompositeFieldContainer[_common_pb2.Generation]
    writable: bool
    not_writable_reason: str
    segment_bytes: int
    segment_count: int
    followers: _containers.RepeatedCompositeFieldContainer[FollowerStatus]
    replicas: _containers.RepeatedCompositeFieldContainer[ReplicaStatus]
    disk_used_ratio: float
    sync_flush: bool
    recovery_report: _containers.RepeatedScalarFieldContainer[str]
    broker_name: str
    broker_id: int
    scrub: ScrubStatus
    configured_role: _common_pb2.BrokerRole
    role_reason: str
    term: int
    master_replication_address: str
    held_reason: str
    has_peers: bool
    taking_back: bool
    master_confirmed_offset: int
    clock_doubt: str
    identity: int
    members: _common_pb2.Members
    member: str
    rejoining: bool
    promised_to: str
    required_replicas: int
    window_offset: int
    master_address: str
    lease_required: bool
    lease_remaining_ms: int
    disk_full_in_s: int
    lead_ended_reason: str
    unable_ms: int
    unable_reason: str
    store_time_ms: int
    def __init__(self, minimum_offset: _Optional[int] = ..., appended_offset: _Optional[int] = ..., flushed_offset: _Optional[int] = ..., confirmed_offset: _Optional[int] = ..., role: _Optional[_Union[_common_pb2.BrokerRole, str]] = ..., generations: _Optional[_Iterable[_Union[_common_pb2.Generation, _Mapping]]] = ..., writable: bool = ..., not_writable_reason: _Optional[str] = ..., segment_bytes: _Optional[int] = ..., segment_count: _Optional[int] = ..., followers: _Optional[_Iterable[_Union[FollowerStatus, _Mapping]]] = ..., replicas: _Optional[_Iterable[_Union[ReplicaStatus, _Mapping]]] = ..., disk_used_ratio: _Optional[float] = ..., sync_flush: bool = ..., recovery_report: _Optional[_Iterable[str]] = ..., broker_name: _Optional[str] = ..., broker_id: _Optional[int] = ..., scrub: _Optional[_Union[ScrubStatus, _Mapping]] = ..., configured_role: _Optional[_Union[_common_pb2.BrokerRole, str]] = ..., role_reason: _Optional[str] = ..., term: _Optional[int] = ..., master_replication_address: _Optional[str] = ..., held_reason: _Optional[str] = ..., has_peers: bool = ..., taking_back: bool = ..., master_confirmed_offset: _Optional[int] = ..., clock_doubt: _Optional[str] = ..., identity: _Optional[int] = ..., members: _Optional[_Union[_common_pb2.Members, _Mapping]] = ..., member: _Optional[str] = ..., rejoining: bool = ..., promised_to: _Optional[str] = ..., required_replicas: _Optional[int] = ..., window_offset: _Optional[int] = ..., master_address: _Optional[str] = ..., lease_required: bool = ..., lease_remaining_ms: _Optional[int] = ..., disk_full_in_s: _Optional[int] = ..., lead_ended_reason: _Optional[str] = ..., unable_ms: _Optional[int] = ..., unable_reason: _Optional[str] = ..., store_time_ms: _Optional[int] = ...) -> None: ...

class TrustClockRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TrustClockResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetQueueTableRequest(_message.Message):
    __slots__ = ("position", "max_entries")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    MAX_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    position: int
    max_entries: int
    def __init__(self, position: _Optional[int] = ..., max_entries: _Optional[int] = ...) -> None: ...

class GetQueueTableResponse(_message.Message):
    __slots__ = ("appended_offset", "queues", "next_position")
    APPENDED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    NEXT_POSITION_FIELD_NUMBER: _ClassVar[int]
    appended_offset: int
    queues: _containers.RepeatedCompositeFieldContainer[_common_pb2.QueueOffset]
    next_position: int
    def __init__(self, appended_offset: _Optional[int] = ..., queues: _Optional[_Iterable[_Union[_common_pb2.QueueOffset, _Mapping]]] = ..., next_position: _Optional[int] = ...) -> None: ...

class FollowOpen(_message.Message):
    __slots__ = ("name", "horizon", "generation", "position")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    name: str
    horizon: FollowHorizon
    generation: int
    position: int
    def __init__(self, name: _Optional[str] = ..., horizon: _Optional[_Union[FollowHorizon, str]] = ..., generation: _Optional[int] = ..., position: _Optional[int] = ...) -> None: ...

class FollowReport(_message.Message):
    __slots__ = ("applied_offset", "durable_offset", "durable_store_timestamp_ms", "released_offset", "unhurried", "by_queue", "began", "ended", "leaving")
    APPLIED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DURABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DURABLE_STORE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    RELEASED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    UNHURRIED_FIELD_NUMBER: _ClassVar[int]
    BY_QUEUE_FIELD_NUMBER: _ClassVar[int]
    BEGAN_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    applied_offset: int
    durable_offset: int
    durable_store_timestamp_ms: int
    released_offset: int
    unhurried: bool
    by_queue: bool
    began: _containers.RepeatedCompositeFieldContainer[FollowQueue]
    ended: _containers.RepeatedCompositeFieldContainer[FollowQueue]
    leaving: bool
    def __init__(self, applied_offset: _Optional[int] = ..., durable_offset: _Optional[int] = ..., durable_store_timestamp_ms: _Optional[int] = ..., released_offset: _Optional[int] = ..., unhurried: bool = ..., by_queue: bool = ..., began: _Optional[_Iterable[_Union[FollowQueue, _Mapping]]] = ..., ended: _Optional[_Iterable[_Union[FollowQueue, _Mapping]]] = ..., leaving: bool = ...) -> None: ...

class FollowQueue(_message.Message):
    __slots__ = ("topic", "queue_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ...) -> None: ...

class FollowRequest(_message.Message):
    __slots__ = ("open", "report")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    open: FollowOpen
    report: FollowReport
    def __init__(self, open: _Optional[_Union[FollowOpen, _Mapping]] = ..., report: _Optional[_Union[FollowReport, _Mapping]] = ...) -> None: ...

class FollowOpened(_message.Message):
    __slots__ = ("generation", "cut_to", "minimum_offset", "confirmed_offset", "flushed_offset", "segment_bytes", "generation_start_offset", "slave")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CUT_TO_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    GENERATION_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SLAVE_FIELD_NUMBER: _ClassVar[int]
    generation: int
    cut_to: int
    minimum_offset: int
    confirmed_offset: int
    flushed_offset: int
    segment_bytes: int
    generation_start_offset: int
    slave: bool
    def __init__(self, generation: _Optional[int] = ..., cut_to: _Optional[int] = ..., minimum_offset: _Optional[int] = ..., confirmed_offset: _Optional[int] = ..., flushed_offset: _Optional[int] = ..., segment_bytes: _Optional[int] = ..., generation_start_offset: _Optional[int] = ..., slave: bool = ...) -> None: ...

class FollowRun(_message.Message):
    __slots__ = ("topic", "queue_id", "first_queue_offset", "count")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    first_queue_offset: int
    count: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., first_queue_offset: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class FollowEvent(_message.Message):
    __slots__ = ("generation", "start_offset", "end_offset", "confirmed_offset", "flushed_offset", "minimum_offset", "packed_lengths", "runs")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PACKED_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    generation: int
    start_offset: int
    end_offset: int
    confirmed_offset: int
    flushed_offset: int
    minimum_offset: int
    packed_lengths: bytes
    runs: _containers.RepeatedCompositeFieldContainer[FollowRun]
    def __init__(self, generation: _Optional[int] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., confirmed_offset: _Optional[int] = ..., flushed_offset: _Optional[int] = ..., minimum_offset: _Optional[int] = ..., packed_lengths: _Optional[bytes] = ..., runs: _Optional[_Iterable[_Union[FollowRun, _Mapping]]] = ...) -> None: ...

class FollowClosing(_message.Message):
    __slots__ = ("end_offset",)
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    end_offset: int
    def __init__(self, end_offset: _Optional[int] = ...) -> None: ...

class FollowResponse(_message.Message):
    __slots__ = ("opened", "event", "closing")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    CLOSING_FIELD_NUMBER: _ClassVar[int]
    opened: FollowOpened
    event: FollowEvent
    closing: FollowClosing
    def __init__(self, opened: _Optional[_Union[FollowOpened, _Mapping]] = ..., event: _Optional[_Union[FollowEvent, _Mapping]] = ..., closing: _Optional[_Union[FollowClosing, _Mapping]] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ("topic", "position", "max_entries", "contains")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    MAX_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    CONTAINS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    position: int
    max_entries: int
    contains: str
    def __init__(self, topic: _Optional[str] = ..., position: _Optional[int] = ..., max_entries: _Optional[int] = ..., contains: _Optional[str] = ...) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics", "next_position")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    NEXT_POSITION_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[_common_pb2.TopicConfig]
    next_position: int
    def __init__(self, topics: _Optional[_Iterable[_Union[_common_pb2.TopicConfig, _Mapping]]] = ..., next_position: _Optional[int] = ...) -> None: ...

class PutTopicRequest(_message.Message):
    __slots__ = ("topic", "must_be_new", "change")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MUST_BE_NEW_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    topic: _common_pb2.TopicConfig
    must_be_new: bool
    change: TopicChange
    def __init__(self, topic: _Optional[_Union[_common_pb2.TopicConfig, _Mapping]] = ..., must_be_new: bool = ..., change: _Optional[_Union[TopicChange, _Mapping]] = ...) -> None: ...

class TopicChange(_message.Message):
    __slots__ = ("topic", "read_queue_count", "write_queue_count", "permission", "ordered", "minimums", "message_type")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    READ_QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    MINIMUMS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_TYPE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    read_queue_count: int
    write_queue_count: int
    permission: int
    ordered: bool
    minimums: _containers.RepeatedCompositeFieldContainer[QueueMinimum]
    message_type: _common_pb2.TopicMessageType
    def __init__(self, topic: _Optional[str] = ..., read_queue_count: _Optional[int] = ..., write_queue_count: _Optional[int] = ..., permission: _Optional[int] = ..., ordered: bool = ..., minimums: _Optional[_Iterable[_Union[QueueMinimum, _Mapping]]] = ..., message_type: _Optional[_Union[_common_pb2.TopicMessageType, str]] = ...) -> None: ...

class QueueMinimum(_message.Message):
    __slots__ = ("queue_id", "offset")
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    queue_id: int
    offset: int
    def __init__(self, queue_id: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class PutTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: _common_pb2.TopicConfig
    def __init__(self, topic: _Optional[_Union[_common_pb2.TopicConfig, _Mapping]] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetRoleRequest(_message.Message):
    __slots__ = ("role", "term", "master_replication_address", "reason", "goes_on", "candidate")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    MASTER_REPLICATION_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    GOES_ON_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_FIELD_NUMBER: _ClassVar[int]
    role: _common_pb2.BrokerRole
    term: int
    master_replication_address: str
    reason: str
    goes_on: bool
    candidate: str
    def __init__(self, role: _Optional[_Union[_common_pb2.BrokerRole, str]] = ..., term: _Optional[int] = ..., master_replication_address: _Optional[str] = ..., reason: _Optional[str] = ..., goes_on: bool = ..., candidate: _Optional[str] = ...) -> None: ...

class SetRoleResponse(_message.Message):
    __slots__ = ("generation",)
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    generation: _common_pb2.Generation
    def __init__(self, generation: _Optional[_Union[_common_pb2.Generation, _Mapping]] = ...) -> None: ...

class GrantLeaseRequest(_message.Message):
    __slots__ = ("term", "boot", "until_ns", "ended_reason")
    TERM_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    UNTIL_NS_FIELD_NUMBER: _ClassVar[int]
    ENDED_REASON_FIELD_NUMBER: _ClassVar[int]
    term: int
    boot: str
    until_ns: int
    ended_reason: str
    def __init__(self, term: _Optional[int] = ..., boot: _Optional[str] = ..., until_ns: _Optional[int] = ..., ended_reason: _Optional[str] = ...) -> None: ...

class GrantLeaseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HoldWritesRequest(_message.Message):
    __slots__ = ("reason", "has_peers")
    REASON_FIELD_NUMBER: _ClassVar[int]
    HAS_PEERS_FIELD_NUMBER: _ClassVar[int]
    reason: str
    has_peers: bool
    def __init__(self, reason: _Optional[str] = ..., has_peers: bool = ...) -> None: ...

class HoldWritesResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PutMembersRequest(_message.Message):
    __slots__ = ("members", "member")
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    members: _common_pb2.Members
    member: str
    def __init__(self, members: _Optional[_Union[_common_pb2.Members, _Mapping]] = ..., member: _Optional[str] = ...) -> None: ...

class PutMembersResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetJoinedRequest(_message.Message):
    __slots__ = ("joined", "generation")
    JOINED_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    joined: bool
    generation: int
    def __init__(self, joined: bool = ..., generation: _Optional[int] = ...) -> None: ...

class SetJoinedResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CutRequest(_message.Message):
    __slots__ = ("offset", "generations", "empty", "master_address", "master_confirmed_offset")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    GENERATIONS_FIELD_NUMBER: _ClassVar[int]
    EMPTY_FIELD_NUMBER: _ClassVar[int]
    MASTER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MASTER_CONFIRMED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    generations: _containers.RepeatedCompositeFieldContainer[_common_pb2.Generation]
    empty: bool
    master_address: str
    master_confirmed_offset: int
    def __init__(self, offset: _Optional[int] = ..., generations: _Optional[_Iterable[_Union[_common_pb2.Generation, _Mapping]]] = ..., empty: bool = ..., master_address: _Optional[str] = ..., master_confirmed_offset: _Optional[int] = ...) -> None: ...

class CutResponse(_message.Message):
    __slots__ = ("appended_offset", "generation")
    APPENDED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    appended_offset: int
    generation: int
    def __init__(self, appended_offset: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class DeleteBelowRequest(_message.Message):
    __slots__ = ("offset", "max_segments", "urgent")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    URGENT_FIELD_NUMBER: _ClassVar[int]
    offset: int
    max_segments: int
    urgent: bool
    def __init__(self, offset: _Optional[int] = ..., max_segments: _Optional[int] = ..., urgent: bool = ...) -> None: ...

class DeleteBelowResponse(_message.Message):
    __slots__ = ("minimum_offset", "deleted")
    MINIMUM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    minimum_offset: int
    deleted: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, minimum_offset: _Optional[int] = ..., deleted: _Optional[_Iterable[str]] = ...) -> None: ...

class ReplicaStatus(_message.Message):
    __slots__ = ("address", "acknowledged_offset", "connected", "lag_bytes", "lag_ms", "counts", "member")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAG_MS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    address: str
    acknowledged_offset: int
    connected: bool
    lag_bytes: int
    lag_ms: int
    counts: bool
    member: str
    def __init__(self, address: _Optional[str] = ..., acknowledged_offset: _Optional[int] = ..., connected: bool = ..., lag_bytes: _Optional[int] = ..., lag_ms: _Optional[int] = ..., counts: bool = ..., member: _Optional[str] = ...) -> None: ...

class ReportReplicationRequest(_message.Message):
    __slots__ = ("generation", "replicas")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    generation: int
    replicas: _containers.RepeatedCompositeFieldContainer[ReplicaStatus]
    def __init__(self, generation: _Optional[int] = ..., replicas: _Optional[_Iterable[_Union[ReplicaStatus, _Mapping]]] = ...) -> None: ...

class ReportReplicationResponse(_message.Message):
    __slots__ = ("confirmed_offset",)
    CONFIRMED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    confirmed_offset: int
    def __init__(self, confirmed_offset: _Optional[int] = ...) -> None: ...

class ExportMetadataRequest(_message.Message):
    __slots__ = ("mark",)
    MARK_FIELD_NUMBER: _ClassVar[int]
    mark: _common_pb2.ChangeMark
    def __init__(self, mark: _Optional[_Union[_common_pb2.ChangeMark, _Mapping]] = ...) -> None: ...

class ExportMetadataResponse(_message.Message):
    __slots__ = ("topics_json", "mark")
    TOPICS_JSON_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    topics_json: bytes
    mark: _common_pb2.ChangeMark
    def __init__(self, topics_json: _Optional[bytes] = ..., mark: _Optional[_Union[_common_pb2.ChangeMark, _Mapping]] = ...) -> None: ...

class ImportMetadataRequest(_message.Message):
    __slots__ = ("topics_json", "generation", "appended_offset", "queues", "more")
    TOPICS_JSON_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    APPENDED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    topics_json: bytes
    generation: int
    appended_offset: int
    queues: _containers.RepeatedCompositeFieldContainer[_common_pb2.QueueOffset]
    more: bool
    def __init__(self, topics_json: _Optional[bytes] = ..., generation: _Optional[int] = ..., appended_offset: _Optional[int] = ..., queues: _Optional[_Iterable[_Union[_common_pb2.QueueOffset, _Mapping]]] = ..., more: bool = ...) -> None: ...

class ImportMetadataResponse(_message.Message):
    __slots__ = ("learned_queues",)
    LEARNED_QUEUES_FIELD_NUMBER: _ClassVar[int]
    learned_queues: int
    def __init__(self, learned_queues: _Optional[int] = ...) -> None: ...
