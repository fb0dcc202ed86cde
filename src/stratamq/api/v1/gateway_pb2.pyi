from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
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
