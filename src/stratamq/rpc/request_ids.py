"""The ID of a request, which is its trace ID: metadata `traceparent`.

A caller within a request passes its ID on: a service that serves a call, a command of `stratamq`, a
client with `Tracing`, code within `one_request`. Outside a request a client sends no ID (metadata
cost a tenth of a small call), and the service gives the call an ID as soon as a log line, an error
or a further call needs one. A stream has one ID for its lifetime. A malformed ID is ignored, so
that no text of a peer reaches a log.

`traceparent` is the W3C's Trace Context as a text:

    00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
       the trace, 32 hex digits         the span         01: recorded, 00: not

https://www.w3.org/TR/trace-context/, version 00; a text of another version counts as none.
"""

import os
import re
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Protocol

_FORM = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_RECORDED = 1
TRACE_ID = slice(3, 35)


def valid(traceparent: object) -> str:
    """Return the text unchanged, or "" if it is malformed."""
    well_formed = isinstance(traceparent, str) and _FORM.fullmatch(traceparent)
    return str(traceparent) if well_formed else ""


def traceparent_of(trace_id: int, span_id: int, recorded: bool) -> str:
    return f"00-{trace_id:032x}-{span_id:016x}-{recorded:02x}"


def fields_of(traceparent: str) -> tuple[int, int, bool]:
    """(trace, span, whether it is recorded) of a valid text."""
    _, trace_id, span_id, flags = traceparent.split("-")
    return int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & _RECORDED)


def is_recorded(traceparent: str) -> bool:
    """Whether the trace is recorded; the text must be valid."""
    return bool(int(traceparent[-2:], 16) & _RECORDED)


KEY = "traceparent"
ERROR_KEY = "stratamq-request-id"
"""A key in the trailing metadata of a call that failed."""

_ID = re.compile(r"[0-9a-f]{32}")

Attributes = Mapping[str, str | int | bool]


class Span(Protocol):
    """A recorded part of a request."""

    @property
    def traceparent(self) -> str: ...

    def part(self, name: str, attributes: Attributes) -> AbstractContextManager[object]:
        """A span within this one, as long as the block."""

    def past_part(self, name: str, begin_ns: int, end_ns: int) -> None:
        """A span within this one, which is over. Times of the monotonic clock."""


class Request:
    """One request as one process sees it: a call, a stream, a command."""

    __slots__ = ("_call", "_traceparent", "span")

    def __init__(self, call: Any = None, traceparent: str = "") -> None:
        """`call`: the context of the call that came in (grpc.aio). Without it, and without a
        `traceparent`, the request begins here."""
        self._call = call
        self._traceparent = traceparent
        self.span: Span | None = None
        """None: nothing is recorded here."""

    @property
    def traceparent(self) -> str:
        """What is passed on."""
        if self.span is not None:
            return self.span.traceparent
        if not self._traceparent:
            self._traceparent = self._received() or _made()
        return self._traceparent

    @property
    def id(self) -> str:
        """32 hex digits."""
        return self.traceparent[TRACE_ID]

    def recorded_by_caller(self) -> bool:
        return is_recorded(self.traceparent)

    def _received(self) -> str:
        call, self._call = self._call, None
        for name, value in (call.invocation_metadata() or ()) if call is not None else ():
            if name == KEY:
                return valid(value)
        return ""


_current: ContextVar[Request | None] = ContextVar("request", default=None)
current = _current.get
"""The request that this task or thread works for; None: for none."""


def traceparent() -> str:
    """Return what a call carries of the current request; "" where there is none."""
    request = current()
    return "" if request is None else request.traceparent


def begin(call: Any) -> Request:
    """A call came in: what follows in this task works for it."""
    request = Request(call)
    _current.set(request)
    return request


@contextmanager
def within(request: Request) -> Generator[Request, None, None]:
    token = _current.set(request)
    try:
        yield request
    finally:
        _current.reset(token)


@contextmanager
def one_request() -> Generator[Request, None, None]:
    """Calls within have one id, `.id`, for all services' logs: that of the request that is current
    already, or a new one.

        with one_request() as request:
            client.send("orders", b"…")
        print(request.id)

    Of the thread or task that enters it, and of readers and producers that it makes. A client with
    `tracing` gives its calls the ids of their traces instead."""
    found = current()
    if found is not None:
        yield found
    else:
        with within(Request()) as request:
            yield request


def part(name: str, **attributes: str | int | bool) -> AbstractContextManager[object]:
    """A part of the current request as a span, where one is recorded."""
    request = current()
    if request is None or request.span is None:
        return _NOT_RECORDED
    return request.span.part(name, attributes)


_NOT_RECORDED = nullcontext()


def valid_id(request_id: object) -> str:
    """Return the ID unchanged, or "" if it is malformed."""
    well_formed = isinstance(request_id, str) and _ID.fullmatch(request_id)
    return str(request_id) if well_formed else ""


def _made() -> str:
    return f"00-{os.urandom(16).hex()}-{os.urandom(8).hex()}-00"


class CallableWithRequestId:
    """A callable of grpc, or of grpc.aio, whose every call shows the caller's metadata, and the
    current request."""

    __slots__ = ("_call", "_metadata")

    def __init__(self, call: Any, metadata: tuple[tuple[str, str], ...] = ()) -> None:
        self._call = call
        self._metadata = metadata

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        request = current()
        if request is not None:
            options["metadata"] = (*self._metadata, (KEY, request.traceparent))
        elif self._metadata:
            options["metadata"] = self._metadata
        return self._call(*arguments, **options)

    def future(self, *arguments: Any, **options: Any) -> Any:
        request = current()
        if request is not None:
            options["metadata"] = (*self._metadata, (KEY, request.traceparent))
        elif self._metadata:
            options["metadata"] = self._metadata
        return self._call.future(*arguments, **options)
