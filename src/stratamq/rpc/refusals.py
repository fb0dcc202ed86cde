"""Which refusals hold up an append stream that is in order: both of its ends go by this."""

from stratamq.errors import BusyError, NotWritableError, StrataError, UnavailableError

NO_MASTER = ("role", "held", "term", "lease", "flush_failed")
"""Reasons of a broker that takes no messages, and whose cluster may have a master that does, or
will: one whose lease is over, or whose flush failed, is replaced."""


def holds_up(error: StrataError | None) -> bool:
    """Whether nothing that was sent behind a batch that is refused so is stored, until a batch
    resumes the stream: the same batch may be taken later, or by another log. A producer that did
    not know this of its log would wait for it in vain."""
    if isinstance(error, NotWritableError):
        return error.reason in NO_MASTER
    if not isinstance(error, BusyError | UnavailableError):
        return False
    return not error.fields.get("beyond_window")
