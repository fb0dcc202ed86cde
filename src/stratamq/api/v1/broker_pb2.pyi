from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DescribeBrokerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ServicePlace(_message.Message):
    __slots__ = ("service", "address")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    service: str
    address: str
    def __init__(self, service: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class DescribeBrokerResponse(_message.Message):
    __slots__ = ("broker_name", "broker_id", "services", "answered_by")
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_BY_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    broker_id: int
    services: _containers.RepeatedCompositeFieldContainer[ServicePlace]
    answered_by: str
    def __init__(self, broker_name: _Optional[str] = ..., broker_id: _Optional[int] = ..., services: _Optional[_Iterable[_Union[ServicePlace, _Mapping]]] = ..., answered_by: _Optional[str] = ...) -> None: ...

class DelegatedCaller(_message.Message):
    __slots__ = ("user", "token_sha256", "address", "port", "encrypted")
    USER_FIELD_NUMBER: _ClassVar[int]
    TOKEN_SHA256_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    ENCRYPTED_FIELD_NUMBER: _ClassVar[int]
    user: str
    token_sha256: str
    address: bytes
    port: int
    encrypted: bool
    def __init__(self, user: _Optional[str] = ..., token_sha256: _Optional[str] = ..., address: _Optional[bytes] = ..., port: _Optional[int] = ..., encrypted: bool = ...) -> None: ...
