from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EtcdKeyValue(_message.Message):
    __slots__ = ("key", "create_revision", "mod_revision", "version", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    CREATE_REVISION_FIELD_NUMBER: _ClassVar[int]
    MOD_REVISION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    create_revision: int
    mod_revision: int
    version: int
    value: bytes
    def __init__(self, key: _Optional[bytes] = ..., create_revision: _Optional[int] = ..., mod_revision: _Optional[int] = ..., version: _Optional[int] = ..., value: _Optional[bytes] = ...) -> None: ...

class EtcdRangeRequest(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    def __init__(self, key: _Optional[bytes] = ...) -> None: ...

class EtcdRangeResponse(_message.Message):
    __slots__ = ("kvs",)
    KVS_FIELD_NUMBER: _ClassVar[int]
    kvs: _containers.RepeatedCompositeFieldContainer[EtcdKeyValue]
    def __init__(self, kvs: _Optional[_Iterable[_Union[EtcdKeyValue, _Mapping]]] = ...) -> None: ...

class EtcdPutRequest(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ...) -> None: ...

class EtcdCompare(_message.Message):
    __slots__ = ("result", "target", "key", "mod_revision")
    RESULT_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    MOD_REVISION_FIELD_NUMBER: _ClassVar[int]
    result: int
    target: int
    key: bytes
    mod_revision: int
    def __init__(self, result: _Optional[int] = ..., target: _Optional[int] = ..., key: _Optional[bytes] = ..., mod_revision: _Optional[int] = ...) -> None: ...

class EtcdRequest(_message.Message):
    __slots__ = ("request_put",)
    REQUEST_PUT_FIELD_NUMBER: _ClassVar[int]
    request_put: EtcdPutRequest
    def __init__(self, request_put: _Optional[_Union[EtcdPutRequest, _Mapping]] = ...) -> None: ...

class EtcdTxnRequest(_message.Message):
    __slots__ = ("compare", "success")
    COMPARE_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    compare: _containers.RepeatedCompositeFieldContainer[EtcdCompare]
    success: _containers.RepeatedCompositeFieldContainer[EtcdRequest]
    def __init__(self, compare: _Optional[_Iterable[_Union[EtcdCompare, _Mapping]]] = ..., success: _Optional[_Iterable[_Union[EtcdRequest, _Mapping]]] = ...) -> None: ...

class EtcdResponseHeader(_message.Message):
    __slots__ = ("cluster_id", "member_id", "revision")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    cluster_id: int
    member_id: int
    revision: int
    def __init__(self, cluster_id: _Optional[int] = ..., member_id: _Optional[int] = ..., revision: _Optional[int] = ...) -> None: ...

class EtcdTxnResponse(_message.Message):
    __slots__ = ("header", "succeeded")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    header: EtcdResponseHeader
    succeeded: bool
    def __init__(self, header: _Optional[_Union[EtcdResponseHeader, _Mapping]] = ..., succeeded: bool = ...) -> None: ...
