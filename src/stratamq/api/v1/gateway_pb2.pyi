from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class GetGatewayStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetGatewayStatusResponse(_message.Message):
    __slots__ = ("remoting_address", "advertised_address", "connections", "consumer_groups", "producer_groups", "grpc_address", "grpc_clients", "grpc_advertised_address")
    REMOTING_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ADVERTISED_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUPS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_GROUPS_FIELD_NUMBER: _ClassVar[int]
    GRPC_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    GRPC_CLIENTS_FIELD_NUMBER: _ClassVar[int]
    GRPC_ADVERTISED_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    remoting_address: str
    advertised_address: str
    connections: int
    consumer_groups: int
    producer_groups: int
    grpc_address: str
    grpc_clients: int
    grpc_advertised_address: str
    def __init__(self, remoting_address: _Optional[str] = ..., advertised_address: _Optional[str] = ..., connections: _Optional[int] = ..., consumer_groups: _Optional[int] = ..., producer_groups: _Optional[int] = ..., grpc_address: _Optional[str] = ..., grpc_clients: _Optional[int] = ..., grpc_advertised_address: _Optional[str] = ...) -> None: ...

class AskClientsRequest(_message.Message):
    __slots__ = ("group", "client_id", "code", "fields", "body", "body_with_lists", "tells_all")
    class FieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    BODY_WITH_LISTS_FIELD_NUMBER: _ClassVar[int]
    TELLS_ALL_FIELD_NUMBER: _ClassVar[int]
    group: str
    client_id: str
    code: int
    fields: _containers.ScalarMap[str, str]
    body: bytes
    body_with_lists: bytes
    tells_all: bool
    def __init__(self, group: _Optional[str] = ..., client_id: _Optional[str] = ..., code: _Optional[int] = ..., fields: _Optional[_Mapping[str, str]] = ..., body: _Optional[bytes] = ..., body_with_lists: _Optional[bytes] = ..., tells_all: bool = ...) -> None: ...

class AskClientsResponse(_message.Message):
    __slots__ = ("code", "fields", "body", "remark")
    class FieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    REMARK_FIELD_NUMBER: _ClassVar[int]
    code: int
    fields: _containers.ScalarMap[str, str]
    body: bytes
    remark: str
    def __init__(self, code: _Optional[int] = ..., fields: _Optional[_Mapping[str, str]] = ..., body: _Optional[bytes] = ..., remark: _Optional[str] = ...) -> None: ...
