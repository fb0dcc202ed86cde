"""The W3C's Trace Context as a text: `traceparent`.

    00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
       the trace, 32 hex digits         the span         01: recorded, 00: not

https://www.w3.org/TR/trace-context/, version 00; a text of another version counts as none.
"""

import re

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
