from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PutMessageStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PUT_MESSAGE_STATUS_UNSPECIFIED: _ClassVar[PutMessageStatus]
    PUT_MESSAGE_STATUS_PUT_OK: _ClassVar[PutMessageStatus]
    PUT_MESSAGE_STATUS_FLUSH_DISK_TIMEOUT: _ClassVar[PutMessageStatus]
    PUT_MESSAGE_STATUS_FLUSH_SLAVE_TIMEOUT: _ClassVar[PutMessageStatus]
    PUT_MESSAGE_STATUS_SLAVE_NOT_AVAILABLE: _ClassVar[PutMessageStatus]
    PUT_MESSAGE_STATUS_SERVICE_NOT_AVAILABLE: _ClassVar[PutMessageStatus]
    PUT_MESSAGE_STATUS_CREATE_MAPEDFILE_FAILED: _ClassVar[PutMessageStatus]
    PUT_MESSAGE_STATUS_MESSAGE_ILLEGAL: _ClassVar[PutMessageStatus]
    PUT_MESSAGE_STATUS_PROPERTIES_SIZE_EXCEEDED: _ClassVar[PutMessageStatus]
    PUT_MESSAGE_STATUS_OS_PAGECACHE_BUSY: _ClassVar[PutMessageStatus]
    PUT_MESSAGE_STATUS_UNKNOWN_ERROR: _ClassVar[PutMessageStatus]

class GetMessageStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GET_MESSAGE_STATUS_UNSPECIFIED: _ClassVar[GetMessageStatus]
    GET_MESSAGE_STATUS_FOUND: _ClassVar[GetMessageStatus]
    GET_MESSAGE_STATUS_NO_MATCHED_MESSAGE: _ClassVar[GetMessageStatus]
    GET_MESSAGE_STATUS_MESSAGE_WAS_REMOVING: _ClassVar[GetMessageStatus]
    GET_MESSAGE_STATUS_OFFSET_FOUND_NULL: _ClassVar[GetMessageStatus]
    GET_MESSAGE_STATUS_OFFSET_OVERFLOW_BADLY: _ClassVar[GetMessageStatus]
    GET_MESSAGE_STATUS_OFFSET_OVERFLOW_ONE: _ClassVar[GetMessageStatus]
    GET_MESSAGE_STATUS_OFFSET_TOO_SMALL: _ClassVar[GetMessageStatus]
    GET_MESSAGE_STATUS_NO_MATCHED_LOGIC_QUEUE: _ClassVar[GetMessageStatus]
    GET_MESSAGE_STATUS_NO_MESSAGE_IN_QUEUE: _ClassVar[GetMessageStatus]

class BrokerRole(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BROKER_ROLE_UNSPECIFIED: _ClassVar[BrokerRole]
    BROKER_ROLE_ASYNC_MASTER: _ClassVar[BrokerRole]
    BROKER_ROLE_SYNC_MASTER: _ClassVar[BrokerRole]
    BROKER_ROLE_SLAVE: _ClassVar[BrokerRole]

class TopicMessageType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOPIC_MESSAGE_TYPE_UNSPECIFIED: _ClassVar[TopicMessageType]
    TOPIC_MESSAGE_TYPE_NORMAL: _ClassVar[TopicMessageType]
    TOPIC_MESSAGE_TYPE_FIFO: _ClassVar[TopicMessageType]
    TOPIC_MESSAGE_TYPE_DELAY: _ClassVar[TopicMessageType]
    TOPIC_MESSAGE_TYPE_TRANSACTION: _ClassVar[TopicMessageType]
    TOPIC_MESSAGE_TYPE_MIXED: _ClassVar[TopicMessageType]
    TOPIC_MESSAGE_TYPE_PRIORITY: _ClassVar[TopicMessageType]
PUT_MESSAGE_STATUS_UNSPECIFIED: PutMessageStatus
PUT_MESSAGE_STATUS_PUT_OK: PutMessageStatus
PUT_MESSAGE_STATUS_FLUSH_DISK_TIMEOUT: PutMessageStatus
PUT_MESSAGE_STATUS_FLUSH_SLAVE_TIMEOUT: PutMessageStatus
PUT_MESSAGE_STATUS_SLAVE_NOT_AVAILABLE: PutMessageStatus
PUT_MESSAGE_STATUS_SERVICE_NOT_AVAILABLE: PutMessageStatus
PUT_MESSAGE_STATUS_CREATE_MAPEDFILE_FAILED: PutMessageStatus
PUT_MESSAGE_STATUS_MESSAGE_ILLEGAL: PutMessageStatus
PUT_MESSAGE_STATUS_PROPERTIES_SIZE_EXCEEDED: PutMessageStatus
PUT_MESSAGE_STATUS_OS_PAGECACHE_BUSY: PutMessageStatus
PUT_MESSAGE_STATUS_UNKNOWN_ERROR: PutMessageStatus
GET_MESSAGE_STATUS_UNSPECIFIED: GetMessageStatus
GET_MESSAGE_STATUS_FOUND: GetMessageStatus
GET_MESSAGE_STATUS_NO_MATCHED_MESSAGE: GetMessageStatus
GET_MESSAGE_STATUS_MESSAGE_WAS_REMOVING: GetMessageStatus
GET_MESSAGE_STATUS_OFFSET_FOUND_NULL: GetMessageStatus
GET_MESSAGE_STATUS_OFFSET_OVERFLOW_BADLY: GetMessageStatus
GET_MESSAGE_STATUS_OFFSET_OVERFLOW_ONE: GetMessageStatus
GET_MESSAGE_STATUS_OFFSET_TOO_SMALL: GetMessageStatus
GET_MESSAGE_STATUS_NO_MATCHED_LOGIC_QUEUE: GetMessageStatus
GET_MESSAGE_STATUS_NO_MESSAGE_IN_QUEUE: GetMessageStatus
BROKER_ROLE_UNSPECIFIED: BrokerRole
BROKER_ROLE_ASYNC_MASTER: BrokerRole
BROKER_ROLE_SYNC_MASTER: BrokerRole
BROKER_ROLE_SLAVE: BrokerRole
TOPIC_MESSAGE_TYPE_UNSPECIFIED: TopicMessageType
TOPIC_MESSAGE_TYPE_NORMAL: TopicMessageType
TOPIC_MESSAGE_TYPE_FIFO: TopicMessageType
TOPIC_MESSAGE_TYPE_DELAY: TopicMessageType
TOPIC_MESSAGE_TYPE_TRANSACTION: TopicMessageType
TOPIC_MESSAGE_TYPE_MIXED: TopicMessageType
TOPIC_MESSAGE_TYPE_PRIORITY: TopicMessageType

class Generation(_message.Message):
    __slots__ = ("generation", "start_offset")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    generation: int
    start_offset: int
    def __init__(self, generation: _Optional[int] = ..., start_offset: _Optional[int] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("slot", "name", "address", "removed", "since")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    slot: int
    name: str
    address: str
    removed: bool
    since: int
    def __init__(self, slot: _Optional[int] = ..., name: _Optional[str] = ..., address: _Optional[str] = ..., removed: bool = ..., since: _Optional[int] = ...) -> None: ...

class Members(_message.Message):
    __slots__ = ("version", "required_acknowledgements", "members")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_ACKNOWLEDGEMENTS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    version: int
    required_acknowledgements: int
    members: _containers.RepeatedCompositeFieldContainer[Member]
    def __init__(self, version: _Optional[int] = ..., required_acknowledgements: _Optional[int] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ...) -> None: ...

class QueueOffset(_message.Message):
    __slots__ = ("topic", "queue_id", "next_queue_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    next_queue_offset: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., next_queue_offset: _Optional[int] = ...) -> None: ...

class TopicConfig(_message.Message):
    __slots__ = ("topic", "read_queue_count", "write_queue_count", "permission", "ordered", "system_flags", "message_type")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    READ_QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_FLAGS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_TYPE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    read_queue_count: int
    write_queue_count: int
    permission: int
    ordered: bool
    system_flags: int
    message_type: TopicMessageType
    def __init__(self, topic: _Optional[str] = ..., read_queue_count: _Optional[int] = ..., write_queue_count: _Optional[int] = ..., permission: _Optional[int] = ..., ordered: bool = ..., system_flags: _Optional[int] = ..., message_type: _Optional[_Union[TopicMessageType, str]] = ...) -> None: ...

class ChangeMark(_message.Message):
    __slots__ = ("incarnation", "since", "upto", "position")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UPTO_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    since: int
    upto: int
    position: int
    def __init__(self, incarnation: _Optional[int] = ..., since: _Optional[int] = ..., upto: _Optional[int] = ..., position: _Optional[int] = ...) -> None: ...

class StoredFrame(_message.Message):
    __slots__ = ("physical_offset", "frame")
    PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    physical_offset: int
    frame: bytes
    def __init__(self, physical_offset: _Optional[int] = ..., frame: _Optional[bytes] = ...) -> None: ...
