"""Checks arguments at once, by the annotations of the method that takes them: a new parameter needs
no code for its check.

Two values are changed: an iterator is read once, into a tuple, and a time above `LONGEST_S`, such
as `math.inf`, becomes `LONGEST_S`. True and False are not numbers. `operations.wire_message` checks
the ranges of fields on the wire; `intake` checks what is stored.
"""

import inspect
import logging
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, wraps
from numbers import Integral, Real
from typing import Any, TypeVar, cast

from stratamq.client.outgoing import checked_text
from stratamq.errors import InvalidRequestError, StrataError
from stratamq.formats.numbers import INT64_MAX, INT64_MIN

C = TypeVar("C")
F = TypeVar("F", bound=Callable[..., Any])
Check = Callable[[Any], Any]
"""Gives the value; ValueError, with what is expected, for another one."""
_BY_INTAKE = "properties"
"""Checked with each message, in words for what is wrong of which."""
LONGEST_S = 365 * 86_400.0
"""A year counts as no limit: neither gRPC nor the operating system takes every number."""
_NOT_BELOW_0 = frozenset(("retry_timeout_s", "refresh_s", "commit_interval_s"))
log = logging.getLogger(__name__)


def checked(cls: type[C]) -> type[C]:
    """A class whose public methods refuse what is not of their annotations, with
    InvalidRequestError: asyncio ones when they are awaited."""
    for name, method in list(vars(cls).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(cls, name, checked_call(method))
    return cls


def checked_call(method: F) -> F:
    """The same for a function."""
    given = None

    def look(arguments: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        nonlocal given
        given = given or _checks(method)  # at the first call: annotations may be of later modules
        by_place, by_name = given
        for name, value in named.items():
            if name in by_name:
                named[name] = _checked(name, value, by_name[name])
        found = [
            _checked(name, value, check)
            for (name, check), value in zip(by_place, arguments, strict=False)
        ]
        return [*found, *arguments[len(found) :]]

    if inspect.iscoroutinefunction(method):

        @wraps(method)
        async def call_async(*arguments: Any, **named: Any) -> Any:
            return await method(*look(arguments, named), **named)

        return cast("F", call_async)

    @wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        return method(*look(arguments, named), **named)

    return cast("F", call)


def _checks(method: Callable[..., Any]) -> tuple[list[tuple[str, Check]], dict[str, Check]]:
    """By place, and by name."""
    hints = typing.get_type_hints(method, include_extras=True)
    by_place, by_name = [], {}
    for name, parameter in inspect.signature(method).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD and name in hints:
            by_name.update(_checks_of_fields(hints[name]))
        check = _check_of(Any if name == _BY_INTAKE else hints.get(name, Any))
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            by_place.append((name, check))
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            by_name[name] = check
    return by_place, by_name


def check_fields(made: Any) -> None:
    """In the `__post_init__` of a dataclass: its fields hold what their annotations say."""
    for name, check in _fields_of(type(made)).items():
        object.__setattr__(made, name, _checked(name, getattr(made, name), check))


@cache
def _fields_of(kind: type) -> dict[str, Check]:
    hints = typing.get_type_hints(kind)
    return {one.name: _check_of(hints[one.name]) for one in fields(kind)}


def _checks_of_fields(hint: Any) -> dict[str, Check]:
    """For `**fields: Annotated[Any, C]`, which are fields of the dataclass C."""
    kinds = [one for one in typing.get_args(hint)[1:] if is_dataclass(one)]
    found = {name: check for kind in kinds for name, check in _fields_of(kind).items()}
    return {name: check for name, check in found.items() if name != _BY_INTAKE}


def _checked(name: str, value: Any, check: Check) -> Any:
    try:
        found = check(value)
        if name in _NOT_BELOW_0 and found is not None and found < 0:
            raise ValueError("0 or more")
    except ValueError as error:
        raise InvalidRequestError(f"{name} is {value!r:.200}: {error} is expected") from error
    return LONGEST_S if name.endswith("_s") and found is not None and found > LONGEST_S else found


def checked_time(name: str, value: Any) -> float:
    """A number of seconds, at most `LONGEST_S`."""
    return cast("float", _checked(name, value, _PLAIN[float]))


def is_whole(value: Any) -> bool:
    """A whole number, NumPy's included."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _check_of(hint: Any) -> Check:
    if hint is Any or isinstance(hint, TypeVar):
        return lambda value: value
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        kinds = [one for one in inner if one is not type(None)]
        return _one_of([_check_of(one) for one in kinds], or_none=len(kinds) < len(inner))
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin is not None:
        if origin is Callable:
            return _is(callable, "what can be called")
        if issubclass(origin, Mapping):
            return _mapping(*map(_check_of, inner))
        if origin is tuple and Ellipsis not in inner:
            return _tuple([_check_of(one) for one in inner])
        if issubclass(origin, Iterable) and inner and origin is not type:
            return _several(_check_of(inner[0]), of_texts=inner[0] is str)
        hint = origin
    if getattr(hint, "_is_protocol", False):
        methods = [one for one, what in vars(hint).items() if one[0] != "_" and callable(what)]
        return _is(lambda value: all(hasattr(value, one) for one in methods), hint.__name__)
    return _is(lambda value: isinstance(value, hint), hint.__name__)


def _is(holds: Callable[[Any], bool], expected: str) -> Check:
    def check(value: Any) -> Any:
        if not holds(value):
            raise ValueError(expected)
        return value

    return check


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a text")
    if not value.isascii():
        checked_text(value)
    return value


_PLAIN: dict[Any, Check] = {
    str: _text,
    bool: _is(lambda value: value is True or value is False, "True or False"),
    int: _is(
        lambda value: (
            (type(value) is int or is_whole(value))  # the first is ten times as fast
            and INT64_MIN <= value <= INT64_MAX
        ),
        "a whole number of 64 bits",
    ),
    float: _is(
        lambda value: (
            isinstance(value, Real) and not isinstance(value, bool) and float(value) == value
        ),
        "a number",
    ),
}


def _one_of(checks: list[Check], *, or_none: bool) -> Check:
    def check(value: Any) -> Any:
        if value is None and or_none:
            return None
        if len(checks) == 1:
            return checks[0](value)
        expected = []
        for one in checks:
            try:
                return one(value)
            except ValueError as error:
                expected.append(str(error))
        raise ValueError(" or ".join(dict.fromkeys(expected)))

    return check


def _mapping(of_key: Check, of_value: Check) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise ValueError("a mapping")
        for key, one in value.items():
            of_key(key), of_value(one)
        return value

    return check


def _tuple(checks: list[Check]) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, (tuple, list)) or len(value) != len(checks):
            raise ValueError(f"a tuple of {len(checks)}")
        for one, of in zip(value, checks, strict=True):
            of(one)
        return value

    return check


def _several(of_one: Check, *, of_texts: bool) -> Check:
    def check(value: Any) -> Any:
        if of_texts and isinstance(value, str):
            return _text(value)
        known = type(value) in (tuple, list)
        if not (known or isinstance(value, Iterable)) or isinstance(value, (str, bytes, Mapping)):
            raise ValueError("a list")
        kept = value if known or hasattr(value, "__len__") else tuple(value)
        for one in kept:
            of_one(one)
        return kept

    return check


class Callback:
    """A function of the caller's: whatever it raises, nothing of the client stops.

    Its first failure is logged with its traceback, SystemExit and KeyboardInterrupt too: a
    stream is shared, and what it has sent is still to be answered."""

    def __init__(self, name: str, function: Callable[[Any], object]) -> None:
        self._name = name
        self._function = function
        self._failed = False

    def __call__(self, argument: Any) -> None:
        try:
            self._function(argument)
        except BaseException:
            if not self._failed:
                self._failed = True
                log.exception(
                    "%s failed; it is called again, and further failures are not logged", self._name
                )


class Interruption:
    """Called with each failure, and with None once it works again: tells `told` of changes."""

    def __init__(self, told: Callable[[StrataError | None], object] | None) -> None:
        self._told = told
        self._interrupted = False

    def __call__(self, error: StrataError | None) -> None:
        if self._interrupted != (error is not None):
            self._interrupted = error is not None
            if self._told is not None:
                self._told(error)
