"""Producers that were never closed: their messages are sent when the interpreter ends, within a
time limit, and those that are not stored by then are reported."""

import atexit
import logging
import os
import time
import warnings
from typing import Any
from weakref import WeakSet

from stratamq.client.primitives import Condition

log = logging.getLogger(__name__)

FLUSH_AT_EXIT_S = 10.0
"""For all producers of a process together."""

_open: WeakSet[Any] = WeakSet()
"""Append streams of producers that were not closed."""


def watch(stream: Any) -> None:
    _open.add(stream)


def forget(stream: Any) -> None:
    _open.discard(stream)


def report_unclosed(messages: int) -> None:
    """Report how many messages one producer was given and the log has not answered."""
    if not messages:
        return
    sentence = (
        f"a producer was not closed: {messages} messages that it was given are not stored, or not "
        "known to be: close it, best by `with`, or flush it"
    )
    log.error(sentence)
    warnings.warn(sentence, ResourceWarning, stacklevel=2)


@atexit.register
def _flush_all() -> None:
    """Before the connections are closed. A producer of an event loop has nothing left to run it."""
    end_s = time.monotonic() + FLUSH_AT_EXIT_S
    for stream in list(_open):
        if isinstance(stream.answered, Condition):
            with stream.answered:
                stream.flushed(stream.idle, max(0.0, end_s - time.monotonic()))
        stream.closing = True
        report_unclosed(stream.unanswered_messages)


# Producers of a process are no business of those that are forked from it.
os.register_at_fork(after_in_child=_open.clear)
