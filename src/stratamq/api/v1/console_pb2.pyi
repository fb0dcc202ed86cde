from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class GetConsoleStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetConsoleStatusResponse(_message.Message):
    __slots__ = ("url", "sessions")
    URL_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    url: str
    sessions: int
    def __init__(self, url: _Optional[str] = ..., sessions: _Optional[int] = ...) -> None: ...
