"""Where the services of a broker are: from their run files, or from the caller.

A target is one of

    a directory                                    the store; services announce themselves in it
    host:port                                      the commit log service alone
    commitlog=host:port,dispatcher=host:port,…     the services one by one
"""

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stratamq.errors import ConfigurationError, InvalidRequestError, UnavailableError
from stratamq.rpc import discovery
from stratamq.rpc.address import is_unix, split_address
from stratamq.rpc.methods import COMMITLOG, HA, JANITOR, ROOMS, Method

CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),  # the services bound what they send
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),  # a proxy of the environment is for the web
    ("grpc.use_local_subchannel_pool", 1),  # one client's connection is not another's
    ("grpc.initial_reconnect_backoff_ms", 50),
    # Not a wait, for all its name: how long an attempt to connect may take.
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)


class Endpoints:
    """Where each room is now. Not bound to a thread."""

    def __init__(
        self, root: Path | None = None, addresses: Mapping[str, str] | None = None
    ) -> None:
        self.root = root
        self._addresses = dict(addresses or {})

    def names(self, room: str) -> bool:
        """Whether the room's address is known, or may become known."""
        return self.root is not None or room in self._addresses

    def address(self, room: str) -> str:
        """UnavailableError when the room's address is not known."""
        if room in self._addresses:
            return self._addresses[room]
        if self.root is None:
            raise UnavailableError(f"the address of the {room} service is not known: name it")
        endpoint = discovery.read(self.root, room)
        if endpoint is None:
            raise UnavailableError(
                f"no {room} service has announced itself in {self.root}: is it running?"
            )
        return endpoint.address


def parse_target(target: str | os.PathLike[str]) -> Endpoints:
    """InvalidRequestError when `target` is none of the three kinds."""
    if isinstance(target, os.PathLike) or os.path.isdir(target):
        root = Path(target)
        if not root.is_dir():
            raise InvalidRequestError(f"there is no directory {root}")
        return Endpoints(root)
    if "=" in target:
        pairs = [part.partition("=") for part in target.split(",") if part.strip()]
        addresses = {room.strip(): address.strip() for room, _, address in pairs}
    else:
        addresses = {COMMITLOG: target.strip()}
    for room, address in addresses.items():
        if room not in (*ROOMS, HA, JANITOR):
            known = ", ".join((*ROOMS, HA, JANITOR))
            raise InvalidRequestError(f"there is no service {room!r}: {known}")
        try:
            if not is_unix(address):
                split_address(address)
        except ConfigurationError as error:
            raise InvalidRequestError(f"{target!r} is neither a directory nor host:port") from error
    return Endpoints(addresses=addresses)


class Channels:
    """One channel for each room, made at its first use and again when the room has moved.

    `connect` is `grpc.insecure_channel` or the asyncio one. Thread-safe.
    """

    def __init__(self, endpoints: Endpoints, connect: Callable[..., Any]) -> None:
        self._endpoints = endpoints
        self._connect = connect
        self._lock = threading.Lock()
        self._open: dict[str, tuple[str, Any]] = {}
        self._callables: dict[Method, Any] = {}
        self._left: list[Any] = []

    def callable(self, method: Method) -> Any:
        """UnavailableError when the address of the method's room is not known."""
        known = self._callables.get(method)
        if known is not None:
            return known
        channel = self.channel(method.room)
        with self._lock:
            if (self._open.get(method.room) or (None, None))[1] is not channel:
                return method.on(channel)  # it has moved meanwhile
            return self._callables.setdefault(method, method.on(channel))

    def channel(self, room: str) -> Any:
        with self._lock:
            if room not in self._open:
                address = self._endpoints.address(room)
                self._open[room] = (address, self._connect(address, options=CHANNEL_OPTIONS))
            return self._open[room][1]

    def renew(self, room: str) -> bool:
        """After a room did not answer: look for it again. True when it has moved."""
        with self._lock:
            if room not in self._open:
                return False
            try:
                address = self._endpoints.address(room)
            except UnavailableError:
                return False
            if address == self._open[room][0]:
                return False
            self._left.append(self._open.pop(room)[1])
            for method in [known for known in self._callables if known.room == room]:
                del self._callables[method]
            return True

    def close(self) -> list[Any]:
        """Forget all channels; the caller closes what is returned."""
        with self._lock:
            channels = self._left + [channel for _, channel in self._open.values()]
            self._open.clear()
            self._callables.clear()
            self._left.clear()
            return channels
