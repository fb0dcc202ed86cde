from stratamq.api.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetReplicationStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SlaveProgress(_message.Message):
    __slots__ = ("address", "acknowledged_offset", "lag_bytes", "lag_ms", "bytes_per_second", "connected", "name", "problem", "member", "counts")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAG_MS_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    address: str
    acknowledged_offset: int
    lag_bytes: int
    lag_ms: int
    bytes_per_second: float
    connected: bool
    name: str
    problem: str
    member: str
    counts: bool
    def __init__(self, address: _Optional[str] = ..., acknowledged_offset: _Optional[int] = ..., lag_bytes: _Optional[int] = ..., lag_ms: _Optional[int] = ..., bytes_per_second: _Optional[float] = ..., connected: bool = ..., name: _Optional[str] = ..., problem: _Optional[str] = ..., member: _Optional[str] = ..., counts: bool = ...) -> None: ...

class FollowingProgress(_message.Message):
    __slots__ = ("master_address", "connected", "problem", "appended_offset", "received_offset", "bytes_per_second", "heard_ms", "needs_resync", "metadata_problem")
    MASTER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    APPENDED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    HEARD_MS_FIELD_NUMBER: _ClassVar[int]
    NEEDS_RESYNC_FIELD_NUMBER: _ClassVar[int]
    METADATA_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    master_address: str
    connected: bool
    problem: str
    appended_offset: int
    received_offset: int
    bytes_per_second: float
    heard_ms: int
    needs_resync: bool
    metadata_problem: str
    def __init__(self, master_address: _Optional[str] = ..., connected: bool = ..., problem: _Optional[str] = ..., appended_offset: _Optional[int] = ..., received_offset: _Optional[int] = ..., bytes_per_second: _Optional[float] = ..., heard_ms: _Optional[int] = ..., needs_resync: bool = ..., metadata_problem: _Optional[str] = ...) -> None: ...

class GetReplicationStatusResponse(_message.Message):
    __slots__ = ("role", "generation", "minimum_offset", "shippable_offset", "replication_address", "slaves", "following", "term", "configured_role", "role_reason", "held_reason", "peers", "listening_address", "problem", "members", "member", "rejoining", "promised_to")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SHIPPABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SLAVES_FIELD_NUMBER: _ClassVar[int]
    FOLLOWING_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    CONFIGURED_ROLE_FIELD_NUMBER: _ClassVar[int]
    ROLE_REASON_FIELD_NUMBER: _ClassVar[int]
    HELD_REASON_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    LISTENING_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    REJOINING_FIELD_NUMBER: _ClassVar[int]
    PROMISED_TO_FIELD_NUMBER: _ClassVar[int]
    role: _common_pb2.BrokerRole
    generation: int
    minimum_offset: int
    shippable_offset: int
    replication_address: str
    slaves: _containers.RepeatedCompositeFieldContainer[SlaveProgress]
    following: FollowingProgress
    term: int
    configured_role: _common_pb2.BrokerRole
    role_reason: str
    held_reason: str
    peers: _containers.RepeatedCompositeFieldContainer[PeerView]
    listening_address: str
    problem: str
    members: _common_pb2.Members
    member: str
    rejoining: bool
    promised_to: str
    def __init__(self, role: _Optional[_Union[_common_pb2.BrokerRole, str]] = ..., generation: _Optional[int] = ..., minimum_offset: _Optional[int] = ..., shippable_offset: _Optional[int] = ..., replication_address: _Optional[str] = ..., slaves: _Optional[_Iterable[_Union[SlaveProgress, _Mapping]]] = ..., following: _Optional[_Union[FollowingProgress, _Mapping]] = ..., term: _Optional[int] = ..., configured_role: _Optional[_Union[_common_pb2.BrokerRole, str]] = ..., role_reason: _Optional[str] = ..., held_reason: _Optional[str] = ..., peers: _Optional[_Iterable[_Union[PeerView, _Mapping]]] = ..., listening_address: _Optional[str] = ..., problem: _Optional[str] = ..., members: _Optional[_Union[_common_pb2.Members, _Mapping]] = ..., member: _Optional[str] = ..., rejoining: bool = ..., promised_to: _Optional[str] = ...) -> None: ...

class PeerView(_message.Message):
    __slots__ = ("address", "answers", "role", "term", "generation", "end_offset", "problem", "member", "rejoining", "promised_to", "held")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    REJOINING_FIELD_NUMBER: _ClassVar[int]
    PROMISED_TO_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    address: str
    answers: bool
    role: _common_pb2.BrokerRole
    term: int
    generation: int
    end_offset: int
    problem: str
    member: str
    rejoining: bool
    promised_to: str
    held: bool
    def __init__(self, address: _Optional[str] = ..., answers: bool = ..., role: _Optional[_Union[_common_pb2.BrokerRole, str]] = ..., term: _Optional[int] = ..., generation: _Optional[int] = ..., end_offset: _Optional[int] = ..., problem: _Optional[str] = ..., member: _Optional[str] = ..., rejoining: bool = ..., promised_to: _Optional[str] = ..., held: bool = ...) -> None: ...

class PromoteRequest(_message.Message):
    __slots__ = ("role", "force", "succeeds")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDS_FIELD_NUMBER: _ClassVar[int]
    role: _common_pb2.BrokerRole
    force: bool
    succeeds: str
    def __init__(self, role: _Optional[_Union[_common_pb2.BrokerRole, str]] = ..., force: bool = ..., succeeds: _Optional[str] = ...) -> None: ...

class PromoteResponse(_message.Message):
    __slots__ = ("role", "term", "generation", "missing")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    role: _common_pb2.BrokerRole
    term: int
    generation: _common_pb2.Generation
    missing: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, role: _Optional[_Union[_common_pb2.BrokerRole, str]] = ..., term: _Optional[int] = ..., generation: _Optional[_Union[_common_pb2.Generation, _Mapping]] = ..., missing: _Optional[_Iterable[str]] = ...) -> None: ...

class DemoteRequest(_message.Message):
    __slots__ = ("master_replication_address", "force")
    MASTER_REPLICATION_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    master_replication_address: str
    force: bool
    def __init__(self, master_replication_address: _Optional[str] = ..., force: bool = ...) -> None: ...

class DemoteResponse(_message.Message):
    __slots__ = ("master_replication_address", "missing")
    MASTER_REPLICATION_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    master_replication_address: str
    missing: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, master_replication_address: _Optional[str] = ..., missing: _Optional[_Iterable[str]] = ...) -> None: ...

class RemoveMemberRequest(_message.Message):
    __slots__ = ("name", "force")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    force: bool
    def __init__(self, name: _Optional[str] = ..., force: bool = ...) -> None: ...

class RemoveMemberResponse(_message.Message):
    __slots__ = ("members", "costs")
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    COSTS_FIELD_NUMBER: _ClassVar[int]
    members: _common_pb2.Members
    costs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, members: _Optional[_Union[_common_pb2.Members, _Mapping]] = ..., costs: _Optional[_Iterable[str]] = ...) -> None: ...

class AdmitMemberRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class AdmitMemberResponse(_message.Message):
    __slots__ = ("members",)
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    members: _common_pb2.Members
    def __init__(self, members: _Optional[_Union[_common_pb2.Members, _Mapping]] = ...) -> None: ...

class ResyncRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResyncResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
