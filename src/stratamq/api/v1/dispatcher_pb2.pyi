from stratamq.api.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TimeBoundary(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TIME_BOUNDARY_UNSPECIFIED: _ClassVar[TimeBoundary]
    TIME_BOUNDARY_LOWER: _ClassVar[TimeBoundary]
    TIME_BOUNDARY_UPPER: _ClassVar[TimeBoundary]
    TIME_BOUNDARY_NEAREST: _ClassVar[TimeBoundary]
TIME_BOUNDARY_UNSPECIFIED: TimeBoundary
TIME_BOUNDARY_LOWER: TimeBoundary
TIME_BOUNDARY_UPPER: TimeBoundary
TIME_BOUNDARY_NEAREST: TimeBoundary

class PullRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "offset", "max_messages", "max_bytes", "tags", "tags_codes", "wait_ms", "group", "client_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    TAGS_CODES_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    offset: int
    max_messages: int
    max_bytes: int
    tags: _containers.RepeatedScalarFieldContainer[str]
    tags_codes: _containers.RepeatedScalarFieldContainer[int]
    wait_ms: int
    group: str
    client_id: str
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., offset: _Optional[int] = ..., max_messages: _Optional[int] = ..., max_bytes: _Optional[int] = ..., tags: _Optional[_Iterable[str]] = ..., tags_codes: _Optional[_Iterable[int]] = ..., wait_ms: _Optional[int] = ..., group: _Optional[str] = ..., client_id: _Optional[str] = ...) -> None: ...

class PullResponse(_message.Message):
    __slots__ = ("status", "next_offset", "min_offset", "max_offset", "count", "frames")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.GetMessageStatus
    next_offset: int
    min_offset: int
    max_offset: int
    count: int
    frames: bytes
    def __init__(self, status: _Optional[_Union[_common_pb2.GetMessageStatus, str]] = ..., next_offset: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., count: _Optional[int] = ..., frames: _Optional[bytes] = ...) -> None: ...

class PullQueue(_message.Message):
    __slots__ = ("topic", "queue_id", "offset", "end_offset", "generation")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    offset: int
    end_offset: int
    generation: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class PullStreamRequest(_message.Message):
    __slots__ = ("queues", "tags", "tags_codes", "max_bytes", "group", "client_id")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    TAGS_CODES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[PullQueue]
    tags: _containers.RepeatedScalarFieldContainer[str]
    tags_codes: _containers.RepeatedScalarFieldContainer[int]
    max_bytes: int
    group: str
    client_id: str
    def __init__(self, queues: _Optional[_Iterable[_Union[PullQueue, _Mapping]]] = ..., tags: _Optional[_Iterable[str]] = ..., tags_codes: _Optional[_Iterable[int]] = ..., max_bytes: _Optional[int] = ..., group: _Optional[str] = ..., client_id: _Optional[str] = ...) -> None: ...

class PullStreamResponse(_message.Message):
    __slots__ = ("status", "next_offset", "min_offset", "max_offset", "count", "stream_index", "frames", "generation")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    STREAM_INDEX_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.GetMessageStatus
    next_offset: int
    min_offset: int
    max_offset: int
    count: int
    stream_index: int
    frames: bytes
    generation: int
    def __init__(self, status: _Optional[_Union[_common_pb2.GetMessageStatus, str]] = ..., next_offset: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., count: _Optional[int] = ..., stream_index: _Optional[int] = ..., frames: _Optional[bytes] = ..., generation: _Optional[int] = ...) -> None: ...

class ListQueuesRequest(_message.Message):
    __slots__ = ("topic", "applied_offset", "position", "max_entries")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    APPLIED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    MAX_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    applied_offset: int
    position: int
    max_entries: int
    def __init__(self, topic: _Optional[str] = ..., applied_offset: _Optional[int] = ..., position: _Optional[int] = ..., max_entries: _Optional[int] = ...) -> None: ...

class QueueInfo(_message.Message):
    __slots__ = ("topic", "queue_id", "min_offset", "max_offset", "newest_store_timestamp_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEWEST_STORE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    newest_store_timestamp_ms: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., newest_store_timestamp_ms: _Optional[int] = ...) -> None: ...

class ListQueuesResponse(_message.Message):
    __slots__ = ("queues", "next_position")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    NEXT_POSITION_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[QueueInfo]
    next_position: int
    def __init__(self, queues: _Optional[_Iterable[_Union[QueueInfo, _Mapping]]] = ..., next_position: _Optional[int] = ...) -> None: ...

class GetOffsetByTimeRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "timestamp_ms", "boundary")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    BOUNDARY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    timestamp_ms: int
    boundary: TimeBoundary
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., boundary: _Optional[_Union[TimeBoundary, str]] = ...) -> None: ...

class GetOffsetByTimeResponse(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...

class ListUnitsRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "offset", "count")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    offset: int
    count: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., offset: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class QueueUnit(_message.Message):
    __slots__ = ("queue_offset", "physical_offset", "size", "tags_code")
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    TAGS_CODE_FIELD_NUMBER: _ClassVar[int]
    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int
    def __init__(self, queue_offset: _Optional[int] = ..., physical_offset: _Optional[int] = ..., size: _Optional[int] = ..., tags_code: _Optional[int] = ...) -> None: ...

class ListUnitsResponse(_message.Message):
    __slots__ = ("units", "min_offset", "max_offset")
    UNITS_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    units: _containers.RepeatedCompositeFieldContainer[QueueUnit]
    min_offset: int
    max_offset: int
    def __init__(self, units: _Optional[_Iterable[_Union[QueueUnit, _Mapping]]] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ...) -> None: ...

class GroupOffset(_message.Message):
    __slots__ = ("topic", "queue_id", "offset", "generation")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    offset: int
    generation: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., offset: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class CommitOffsetsRequest(_message.Message):
    __slots__ = ("group", "offsets", "client_id", "shared")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    group: str
    offsets: _containers.RepeatedCompositeFieldContainer[GroupOffset]
    client_id: str
    shared: bool
    def __init__(self, group: _Optional[str] = ..., offsets: _Optional[_Iterable[_Union[GroupOffset, _Mapping]]] = ..., client_id: _Optional[str] = ..., shared: bool = ...) -> None: ...

class CommitOffsetsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetCommittedOffsetsRequest(_message.Message):
    __slots__ = ("group", "topic", "position", "max_entries", "incarnation")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    MAX_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    position: int
    max_entries: int
    incarnation: int
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., position: _Optional[int] = ..., max_entries: _Optional[int] = ..., incarnation: _Optional[int] = ...) -> None: ...

class GetCommittedOffsetsResponse(_message.Message):
    __slots__ = ("offsets", "next_position", "incarnation")
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    NEXT_POSITION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.RepeatedCompositeFieldContainer[GroupOffset]
    next_position: int
    incarnation: int
    def __init__(self, offsets: _Optional[_Iterable[_Union[GroupOffset, _Mapping]]] = ..., next_position: _Optional[int] = ..., incarnation: _Optional[int] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ("position", "max_entries", "incarnation", "group", "with_lag_ms", "topic", "queue_id", "offset")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    MAX_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    WITH_LAG_MS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    position: int
    max_entries: int
    incarnation: int
    group: str
    with_lag_ms: bool
    topic: str
    queue_id: int
    offset: int
    def __init__(self, position: _Optional[int] = ..., max_entries: _Optional[int] = ..., incarnation: _Optional[int] = ..., group: _Optional[str] = ..., with_lag_ms: bool = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class GroupInfo(_message.Message):
    __slots__ = ("group", "topic", "queue_id", "offset", "max_offset", "lag", "last_commit_timestamp_ms", "last_client", "lag_ms", "shared")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    LAST_COMMIT_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_CLIENT_FIELD_NUMBER: _ClassVar[int]
    LAG_MS_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    queue_id: int
    offset: int
    max_offset: int
    lag: int
    last_commit_timestamp_ms: int
    last_client: str
    lag_ms: int
    shared: bool
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., lag: _Optional[int] = ..., last_commit_timestamp_ms: _Optional[int] = ..., last_client: _Optional[str] = ..., lag_ms: _Optional[int] = ..., shared: bool = ...) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("groups", "next_position", "incarnation", "read_groups", "unread_groups")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    NEXT_POSITION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    READ_GROUPS_FIELD_NUMBER: _ClassVar[int]
    UNREAD_GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupInfo]
    next_position: int
    incarnation: int
    read_groups: int
    unread_groups: int
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupInfo, _Mapping]]] = ..., next_position: _Optional[int] = ..., incarnation: _Optional[int] = ..., read_groups: _Optional[int] = ..., unread_groups: _Optional[int] = ...) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("group", "topic")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class DeleteGroupResponse(_message.Message):
    __slots__ = ("queue_count",)
    QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    queue_count: int
    def __init__(self, queue_count: _Optional[int] = ...) -> None: ...

class ListGroupMembersRequest(_message.Message):
    __slots__ = ("group", "position", "max_entries")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    MAX_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    group: str
    position: int
    max_entries: int
    def __init__(self, group: _Optional[str] = ..., position: _Optional[int] = ..., max_entries: _Optional[int] = ...) -> None: ...

class MemberTopic(_message.Message):
    __slots__ = ("topic", "queue_ids")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_IDS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., queue_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class GroupMember(_message.Message):
    __slots__ = ("client_id", "address", "topics", "since_ms", "last_seen_ms", "last_commit_ms", "streaming")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_COMMIT_MS_FIELD_NUMBER: _ClassVar[int]
    STREAMING_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    address: str
    topics: _containers.RepeatedCompositeFieldContainer[MemberTopic]
    since_ms: int
    last_seen_ms: int
    last_commit_ms: int
    streaming: bool
    def __init__(self, client_id: _Optional[str] = ..., address: _Optional[str] = ..., topics: _Optional[_Iterable[_Union[MemberTopic, _Mapping]]] = ..., since_ms: _Optional[int] = ..., last_seen_ms: _Optional[int] = ..., last_commit_ms: _Optional[int] = ..., streaming: bool = ...) -> None: ...

class ListGroupMembersResponse(_message.Message):
    __slots__ = ("members", "next_position", "unlisted_streams")
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_POSITION_FIELD_NUMBER: _ClassVar[int]
    UNLISTED_STREAMS_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedCompositeFieldContainer[GroupMember]
    next_position: int
    unlisted_streams: int
    def __init__(self, members: _Optional[_Iterable[_Union[GroupMember, _Mapping]]] = ..., next_position: _Optional[int] = ..., unlisted_streams: _Optional[int] = ...) -> None: ...

class GetDispatchStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetDispatchStatusResponse(_message.Message):
    __slots__ = ("applied_offset", "durable_offset", "log_confirmed_offset", "queue_count", "serving", "recovery_report", "stopped_reason")
    APPLIED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DURABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_CONFIRMED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    SERVING_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_REPORT_FIELD_NUMBER: _ClassVar[int]
    STOPPED_REASON_FIELD_NUMBER: _ClassVar[int]
    applied_offset: int
    durable_offset: int
    log_confirmed_offset: int
    queue_count: int
    serving: bool
    recovery_report: _containers.RepeatedScalarFieldContainer[str]
    stopped_reason: str
    def __init__(self, applied_offset: _Optional[int] = ..., durable_offset: _Optional[int] = ..., log_confirmed_offset: _Optional[int] = ..., queue_count: _Optional[int] = ..., serving: bool = ..., recovery_report: _Optional[_Iterable[str]] = ..., stopped_reason: _Optional[str] = ...) -> None: ...

class ListTopicSizesRequest(_message.Message):
    __slots__ = ("max_topics",)
    MAX_TOPICS_FIELD_NUMBER: _ClassVar[int]
    max_topics: int
    def __init__(self, max_topics: _Optional[int] = ...) -> None: ...

class TopicSize(_message.Message):
    __slots__ = ("topic", "size", "message_count", "queue_count")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    size: int
    message_count: int
    queue_count: int
    def __init__(self, topic: _Optional[str] = ..., size: _Optional[int] = ..., message_count: _Optional[int] = ..., queue_count: _Optional[int] = ...) -> None: ...

class ListTopicSizesResponse(_message.Message):
    __slots__ = ("topics", "others", "topic_count", "at_ms", "sampled_messages", "file_count", "unit_count")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_COUNT_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    SAMPLED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    FILE_COUNT_FIELD_NUMBER: _ClassVar[int]
    UNIT_COUNT_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicSize]
    others: TopicSize
    topic_count: int
    at_ms: int
    sampled_messages: int
    file_count: int
    unit_count: int
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicSize, _Mapping]]] = ..., others: _Optional[_Union[TopicSize, _Mapping]] = ..., topic_count: _Optional[int] = ..., at_ms: _Optional[int] = ..., sampled_messages: _Optional[int] = ..., file_count: _Optional[int] = ..., unit_count: _Optional[int] = ...) -> None: ...

class ExportConsumerOffsetsRequest(_message.Message):
    __slots__ = ("mark",)
    MARK_FIELD_NUMBER: _ClassVar[int]
    mark: _common_pb2.ChangeMark
    def __init__(self, mark: _Optional[_Union[_common_pb2.ChangeMark, _Mapping]] = ...) -> None: ...

class ExportConsumerOffsetsResponse(_message.Message):
    __slots__ = ("consumer_offset_json", "mark")
    CONSUMER_OFFSET_JSON_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    consumer_offset_json: bytes
    mark: _common_pb2.ChangeMark
    def __init__(self, consumer_offset_json: _Optional[bytes] = ..., mark: _Optional[_Union[_common_pb2.ChangeMark, _Mapping]] = ...) -> None: ...

class ImportConsumerOffsetsRequest(_message.Message):
    __slots__ = ("consumer_offset_json",)
    CONSUMER_OFFSET_JSON_FIELD_NUMBER: _ClassVar[int]
    consumer_offset_json: bytes
    def __init__(self, consumer_offset_json: _Optional[bytes] = ...) -> None: ...

class ImportConsumerOffsetsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
