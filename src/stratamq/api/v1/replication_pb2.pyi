from stratamq.api.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CompareHistoryRequest(_message.Message):
    __slots__ = ("broker_name", "generations", "end_offset")
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    GENERATIONS_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    generations: _containers.RepeatedCompositeFieldContainer[_common_pb2.Generation]
    end_offset: int
    def __init__(self, broker_name: _Optional[str] = ..., generations: _Optional[_Iterable[_Union[_common_pb2.Generation, _Mapping]]] = ..., end_offset: _Optional[int] = ...) -> None: ...

class CompareHistoryResponse(_message.Message):
    __slots__ = ("cut_to", "generations", "minimum_offset", "end_offset")
    CUT_TO_FIELD_NUMBER: _ClassVar[int]
    GENERATIONS_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    cut_to: int
    generations: _containers.RepeatedCompositeFieldContainer[_common_pb2.Generation]
    minimum_offset: int
    end_offset: int
    def __init__(self, cut_to: _Optional[int] = ..., generations: _Optional[_Iterable[_Union[_common_pb2.Generation, _Mapping]]] = ..., minimum_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class GetReplicationStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SlaveProgress(_message.Message):
    __slots__ = ("address", "acknowledged_offset", "lag_bytes", "lag_ms", "bytes_per_second", "connected")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAG_MS_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    address: str
    acknowledged_offset: int
    lag_bytes: int
    lag_ms: int
    bytes_per_second: float
    connected: bool
    def __init__(self, address: _Optional[str] = ..., acknowledged_offset: _Optional[int] = ..., lag_bytes: _Optional[int] = ..., lag_ms: _Optional[int] = ..., bytes_per_second: _Optional[float] = ..., connected: bool = ...) -> None: ...

class GetReplicationStatusResponse(_message.Message):
    __slots__ = ("slaves",)
    SLAVES_FIELD_NUMBER: _ClassVar[int]
    slaves: _containers.RepeatedCompositeFieldContainer[SlaveProgress]
    def __init__(self, slaves: _Optional[_Iterable[_Union[SlaveProgress, _Mapping]]] = ...) -> None: ...
