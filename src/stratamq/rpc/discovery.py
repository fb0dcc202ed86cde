"""How the processes of one broker find each other: `<root>/stratamq/run/<room>.json`.

A service writes its file once it listens and removes it at a clean stop. After a kill the file is
stale: readers must expect an address that does not respond, and read the file again. The file means
nothing after a power loss, so it is not synced.
"""

import contextlib
import errno
import functools
import hashlib
import json
import os
import stat
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

from stratamq.files.clock import machine_boot
from stratamq.formats.store_paths import RUN_DIRECTORY
from stratamq.rpc.rooms import SERVICES

boot_of_machine = functools.cache(machine_boot)
"""Containers of one machine have one."""
UNIX = "unix:"
LARGEST_SOCKET_PATH_BYTES = 107
SOCKET_SUFFIX, CALLS_SUFFIX, PAGES_SUFFIX = ".sock", ".calls", ".http"
FRONT = "-front"
LONGEST_SOCKET = f"{max(SERVICES, key=len)}{FRONT}{CALLS_SUFFIX}"
_PRIVATE = 0o700
_LIMIT_BYTES = 64 * 1024  # a run file takes about 100 bytes; anything large is not one


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a running service is reached: gRPC and metrics as `host:port`, and its process."""

    address: str
    metrics: str
    pid: int
    advertised: str = ""
    """For clients: as `rpc.address.advertised_address`; empty: `address`."""
    broker_name: str = ""
    broker_id: int = 0
    """Only the log service has it."""
    local: str = ""
    """`unix:` and the path of a socket, for processes of this machine that may use it."""
    boot: str = ""
    """The kernel's boot ID of the machine: the socket means nothing elsewhere."""
    front: str = ""
    """Like `local`, of the socket for fronts, which call on behalf of their callers."""
    owner: int = field(default=-1, compare=False)
    """The user whose run file it is, as found by `read`; −1: not read."""

    def calls(self) -> str:
        """The path of the socket for calls without gRPC, beside the other one, where this process
        may use that; "" elsewhere."""
        nearest = self.nearest()
        path = nearest.removeprefix(UNIX)
        return "" if nearest != self.local or not path else calls_path(path)

    def nearest(self) -> str:
        """The socket where this process may use it, else the address."""
        return self._usable(self.local) or self.address

    def for_fronts(self) -> str:
        """The socket for fronts where this process may use it, else ""."""
        return self._usable(self.front)

    def for_pages(self) -> str:
        """The path of the socket at which the console answers HTTP to fronts, or ""."""
        socket = self.for_fronts()
        return socket and pages_path(socket.removeprefix(UNIX))

    def _usable(self, socket: str) -> str:
        """The socket, if this process may use it and the announcing user has made it, else ""."""
        if socket and self.boot == boot_of_machine():
            path = socket.removeprefix(UNIX)
            with contextlib.suppress(OSError):
                if self._is_ours(Path(path)) and os.access(path, os.R_OK | os.W_OK):
                    return socket
        return ""

    def _is_ours(self, path: Path) -> bool:
        """Check the owner: a directory under the temporary one may have been removed and recreated
        by another user."""
        socket, directory = path.lstat(), path.parent.lstat()
        return stat.S_ISDIR(directory.st_mode) and (
            self.owner in (-1, socket.st_uid) and socket.st_uid == directory.st_uid
        )


def calls_path(socket: str) -> str:
    """Return the path of the socket for calls without gRPC, beside a service's socket for gRPC."""
    return socket.removesuffix(SOCKET_SUFFIX) + CALLS_SUFFIX


def pages_path(front: str | Path) -> str:
    """Return the path of the console's socket for HTTP, beside its socket for fronts."""
    return str(front).removesuffix(SOCKET_SUFFIX) + PAGES_SUFFIX


def socket_directory(root: Path) -> Path:
    """Where the services of a store listen for processes of their machine. A socket's path has at
    most 107 bytes: of a longer store it is a directory of this user's under the temporary one."""
    here = Path(root).absolute() / RUN_DIRECTORY / "sockets"
    if len(os.fsencode(here / LONGEST_SOCKET)) <= LARGEST_SOCKET_PATH_BYTES:
        return here
    name = hashlib.sha256(os.fsencode(here)).hexdigest()[:16]
    return _of_user() / name


def make_socket_directory(root: Path) -> Path:
    """The directory, this user's alone. PermissionError when it is another one's."""
    path = socket_directory(root)
    if path.parent == _of_user():
        _make_private(path.parent)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
    _make_private(path)
    return path


def _of_user() -> Path:
    return Path(tempfile.gettempdir()) / f"stratamq-{os.getuid()}"


def _make_private(path: Path) -> None:
    path.mkdir(mode=_PRIVATE, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "it is another user's", str(path))
    if stat.S_IMODE(found.st_mode) != _PRIVATE:
        path.chmod(_PRIVATE)


def run_file(root: Path, room: str) -> Path:
    return Path(root) / RUN_DIRECTORY / f"{room}.json"


def write(root: Path, room: str, endpoint: Endpoint) -> Path:
    """Announce `endpoint`. A reader sees the old file or the new one, never part of one; after an
    OSError the old one."""
    path = run_file(root, room)
    # Not in stratamq/tmp: a log service that starts meanwhile empties that.
    temporary = path.with_name(f"{room}-{endpoint.pid}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        temporary.write_text(json.dumps(_document(endpoint)) + "\n", encoding="utf-8")
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return path


def _document(endpoint: Endpoint) -> dict[str, object]:
    document = asdict(endpoint)
    del document["owner"]
    return document


def read(root: Path, room: str) -> Endpoint | None:
    """The last announcement, perhaps stale; None when there is none that can be understood."""
    try:
        with open(run_file(root, room), "rb", opener=_without_waiting) as file:
            document = json.loads(file.read(_LIMIT_BYTES))
            owner = os.fstat(file.fileno()).st_uid
        return Endpoint(
            str(document["address"]),
            str(document.get("metrics", "")),
            int(document["pid"]),
            str(document.get("advertised", "")),
            str(document.get("broker_name", "")),
            int(document.get("broker_id", 0)),
            str(document.get("local", "")),
            str(document.get("boot", "")),
            str(document.get("front", "")),
            owner,
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _without_waiting(path: str, flags: int) -> int:
    """Open without blocking: an unexpected FIFO would wait for its other end."""
    return os.open(path, flags | os.O_NONBLOCK)


def remove(root: Path, room: str, pid: int) -> None:
    """Withdraw the announcement of process `pid`; a successor's is left alone."""
    endpoint = read(root, room)
    if endpoint is not None and endpoint.pid == pid:
        run_file(root, room).unlink(missing_ok=True)
        _remove_socket(endpoint.front)
        _remove_socket(endpoint.local)


def _remove_socket(socket: str) -> None:
    path = Path(socket.removeprefix(UNIX))
    if not socket or path.suffix != SOCKET_SUFFIX:
        return
    path.unlink(missing_ok=True)
    if path.parent.parent == _of_user():
        with contextlib.suppress(OSError):  # other services of the store are there
            path.parent.rmdir()
