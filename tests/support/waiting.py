"""Waiting for what another process does: never for ever."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from stratamq.client import Client, connect
from stratamq.errors import UnavailableError
from stratamq.files.clock import SystemClock
from stratamq.files.real import RealFiles
from stratamq.formats.json_files import parse_json
from stratamq.store.confirmed import confirmed_end

DEADLINE_S = 120.0
LOOK_S = 0.01

T = TypeVar("T")


def until(
    ask: Callable[[], T], what: str, deadline_s: float = DEADLINE_S, look_s: float = LOOK_S
) -> T:
    """Ask every `look_s` until the answer is true; AssertionError when the deadline passes.

    A service that is unavailable has not answered yet: a log that changes its role is opened again,
    which takes longer than one call waits on a busy machine.
    """
    clock, pause = SystemClock(), threading.Event()
    deadline_ns = clock.monotonic_ns() + int(deadline_s * 1e9)
    last = ""
    while True:
        try:
            if answer := ask():
                return answer
        except UnavailableError as error:
            last = f" ({error})"
        assert clock.monotonic_ns() < deadline_ns, f"not within {deadline_s} s: {what}{last}"
        pause.wait(look_s)


def until_dispatched(client: Client, end: int | None = None) -> None:
    """Until the dispatcher has applied all messages below log offset `end`; None: all there are."""
    wanted = client.log_state().appended_offset if end is None else end
    until(
        lambda: client.admin.dispatch_state().applied_offset >= wanted,
        f"the dispatcher has applied the log to {wanted}",
    )


def until_indexed(client: Client, end: int | None = None) -> None:
    """Until the index has applied all messages below log offset `end`; None: all there are."""
    wanted = client.log_state().appended_offset if end is None else end
    until(
        lambda: client.admin.index_state().applied_offset >= wanted,
        f"the index has applied the log to {wanted}",
    )


def until_readable_in_files(root: Path) -> None:
    """Until who reads the files alone sees all that the running log of this store has appended: the
    checkpoint follows within a second."""
    files = RealFiles(root)
    with connect(root, retry_timeout_s=DEADLINE_S) as client:
        wanted = client.log_state().appended_offset
    until(
        lambda: (confirmed_end(files) or 0) >= wanted,
        f"readers of the files in {root} see the log to {wanted}",
    )


def json_of(path: Path) -> dict:
    """A file that another process replaces by two renames; empty where it is missing meanwhile."""
    try:
        return parse_json(path.read_bytes())
    except FileNotFoundError:
        return {}
