"""Values and messages whose fields have the same names."""

from dataclasses import Field, fields
from functools import cache
from typing import Any, ClassVar, Protocol, TypeVar

from google.protobuf.message import Message


class _Value(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


V = TypeVar("V", bound=_Value)
M = TypeVar("M", bound=Message)


def value_of(kind: type[V], message: Message, **others: Any) -> V:
    """`others`: fields that the message has under another name, or as another type. An optional one
    that it leaves out is None."""
    plain, rest = _shared(kind, type(message))
    same = {name: getattr(message, name) for name in plain if name not in others}
    same |= {name: _read(message, name) for name in rest if name not in others}
    return kind(**same, **others)


def message_of(kind: type[M], value: Any, **others: Any) -> M:
    """`others`: fields that the value has under another name, and those of enums and messages."""
    same = {name: getattr(value, name) for name in _plain(kind) if name not in others}
    return kind(**same, **others)


def _read(message: Message, name: str) -> Any:
    """An optional or a repeated field."""
    if not message.DESCRIPTOR.fields_by_name[name].has_presence:
        return tuple(getattr(message, name))
    return getattr(message, name) if message.HasField(name) else None


@cache
def _shared(kind: type[_Value], message: type[Message]) -> tuple[list[str], list[str]]:
    """What both have: numbers, truths and texts that are always there; the rest."""
    known = message.DESCRIPTOR.fields_by_name
    names = [one.name for one in fields(kind) if one.name in known]
    plain = [one for one in names if one in _plain(message) and not known[one].has_presence]
    return plain, [one for one in names if one not in plain]


@cache
def _plain(kind: type[Message]) -> list[str]:
    plain = [
        one for one in kind.DESCRIPTOR.fields if isinstance(one.default_value, int | float | str)
    ]
    return [one.name for one in plain if one.enum_type is None]
