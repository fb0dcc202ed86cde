from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class GetElectionRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetElectionResponse(_message.Message):
    __slots__ = ("member", "store", "store_problem", "leader", "term", "unchanged_ms", "ttl_ms", "paused", "switchover", "last_action", "agents", "problems")
    class AgentsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    STORE_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_MS_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    SWITCHOVER_FIELD_NUMBER: _ClassVar[int]
    LAST_ACTION_FIELD_NUMBER: _ClassVar[int]
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    member: str
    store: str
    store_problem: str
    leader: str
    term: int
    unchanged_ms: int
    ttl_ms: int
    paused: bool
    switchover: str
    last_action: str
    agents: _containers.ScalarMap[str, str]
    problems: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, member: _Optional[str] = ..., store: _Optional[str] = ..., store_problem: _Optional[str] = ..., leader: _Optional[str] = ..., term: _Optional[int] = ..., unchanged_ms: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., paused: bool = ..., switchover: _Optional[str] = ..., last_action: _Optional[str] = ..., agents: _Optional[_Mapping[str, str]] = ..., problems: _Optional[_Iterable[str]] = ...) -> None: ...

class SwitchoverRequest(_message.Message):
    __slots__ = ("member",)
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    member: str
    def __init__(self, member: _Optional[str] = ...) -> None: ...

class SwitchoverResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetPausedRequest(_message.Message):
    __slots__ = ("paused",)
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    paused: bool
    def __init__(self, paused: bool = ...) -> None: ...

class SetPausedResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WakeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WakeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
