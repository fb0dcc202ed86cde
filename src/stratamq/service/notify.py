"""systemd's notification protocol: a process reports that it is ready, or stops, to its manager.

NOTIFY_SOCKET names a datagram socket of the manager, `@` for an abstract one; the messages are
lines such as `READY=1` (sd_notify(3)). A unit of `Type=notify` has such a manager,
`stratamq up --daemon` is another.
"""

import contextlib
import os
import socket
from collections.abc import Mapping

VARIABLE = "NOTIFY_SOCKET"
READY, STOPPING = "READY=1", "STOPPING=1"
_LARGEST_MESSAGE_BYTES = 4096


def notify(state: str, environ: Mapping[str, str] | None = None) -> None:
    """Report `state` to the manager, if there is one."""
    path = (os.environ if environ is None else environ).get(VARIABLE)
    if not path:
        return
    address = f"\0{path[1:]}" if path.startswith("@") else path
    # A manager that has ended, as `up --daemon` does once it is ready, needs no more reports.
    ended = contextlib.suppress(ConnectionRefusedError, FileNotFoundError)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, ended:
        sender.sendto(state.encode(), address)


def withhold() -> None:
    """Keep this process's libraries from reporting: it is a part of what the manager waits for."""
    os.environ.pop(VARIABLE, None)


class Manager:
    """The other side: a socket for one process that is about to be forked."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("")  # the kernel chooses an abstract name
        self._name = "@" + self._socket.getsockname()[1:].decode()

    def fileno(self) -> int:
        return self._socket.fileno()

    def name_in_environment(self) -> None:
        """In the forked process: `notify` reports to this."""
        os.environ[VARIABLE] = self._name

    def receive(self) -> list[str]:
        """The states of one message; blocks until it comes."""
        return self._socket.recv(_LARGEST_MESSAGE_BYTES).decode(errors="replace").splitlines()

    def close(self) -> None:
        self._socket.close()
