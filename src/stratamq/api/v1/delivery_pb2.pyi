from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetDeliveryStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetDeliveryStatusResponse(_message.Message):
    __slots__ = ("applied_offset", "durable_offset", "log_confirmed_offset", "serving", "stopped_reason", "active", "delayed_messages", "levels")
    APPLIED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DURABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_CONFIRMED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SERVING_FIELD_NUMBER: _ClassVar[int]
    STOPPED_REASON_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    DELAYED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    applied_offset: int
    durable_offset: int
    log_confirmed_offset: int
    serving: bool
    stopped_reason: str
    active: bool
    delayed_messages: int
    levels: _containers.RepeatedCompositeFieldContainer[DelayLevel]
    def __init__(self, applied_offset: _Optional[int] = ..., durable_offset: _Optional[int] = ..., log_confirmed_offset: _Optional[int] = ..., serving: bool = ..., stopped_reason: _Optional[str] = ..., active: bool = ..., delayed_messages: _Optional[int] = ..., levels: _Optional[_Iterable[_Union[DelayLevel, _Mapping]]] = ...) -> None: ...

class DelayLevel(_message.Message):
    __slots__ = ("level", "messages", "position", "next_due_ms")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    NEXT_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    level: int
    messages: int
    position: int
    next_due_ms: int
    def __init__(self, level: _Optional[int] = ..., messages: _Optional[int] = ..., position: _Optional[int] = ..., next_due_ms: _Optional[int] = ...) -> None: ...
