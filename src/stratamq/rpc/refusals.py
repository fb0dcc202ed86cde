"""What a refusal on an append stream means: both of its ends go by this."""

from dataclasses import dataclass

from stratamq.errors import (
    BusyError,
    InvalidRequestError,
    NotFoundError,
    NotPermittedError,
    NotWritableError,
    StrataError,
    UnavailableError,
)
from stratamq.formats.message_status import SendStatus


@dataclass(frozen=True, slots=True)
class Refusal:
    """Consecutive messages of a batch that the log leaves out, and why; counted from its first."""

    first: int
    count: int
    status: SendStatus
    error: StrataError

    @property
    def rows(self) -> range:
        return range(self.first, self.first + self.count)


NO_MASTER = ("role", "held", "term", "lease", "flush_failed")
"""Reasons of a broker that takes no messages, and whose cluster may have a master that does, or
will: one whose lease is over, or whose flush failed, is replaced."""


def holds_up(error: StrataError | None) -> bool:
    """Whether nothing is stored, on a stream in order, that was sent behind a batch that is refused
    so, until a batch resumes the stream: the same batch may be taken later, or by another log. A
    producer that did not know this of its log would wait for it in vain."""
    if isinstance(error, NotWritableError):
        return error.reason in NO_MASTER
    if not isinstance(error, BusyError | UnavailableError):
        return False
    return not error.fields.get("beyond_window")


def is_of_one_message(error: StrataError) -> bool:
    """Whether a message is refused for what it is: others of its batch may be taken."""
    if isinstance(error, NotWritableError):
        return error.reason == "permission"
    return isinstance(error, InvalidRequestError | NotFoundError | NotPermittedError)
