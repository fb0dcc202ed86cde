"""The event loop of a service."""

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVarTuple

Ts = TypeVarTuple("Ts")

_GRPC = "grpc._cython.cygrpc"
_WAKE_UPS = 4_096
"""Read at once; a socket pair holds a few hundred."""


class ServiceLoop(asyncio.SelectorEventLoop):
    """Reads gRPC's wake-ups together.

    A thread of gRPC's puts each event in a list and writes a byte to a socket; while the socket is
    full, it waits. The reader that gRPC registers takes the whole list, but a single byte. So bytes
    pile up in a loop that gets several events a turn, until that thread waits for room before each
    event. From then on the loop gets one event a turn, however many there are: beside a turn of
    100 ms, calls that were answered at once have been seen to wait for a minute.
    """

    def add_reader(self, fd: Any, callback: Callable[[*Ts], Any], *args: *Ts) -> None:
        function = getattr(callback, "func", callback)  # gRPC gives a partial
        if isinstance(fd, socket.socket) and getattr(function, "__module__", "") == _GRPC:
            super().add_reader(fd, partial(_read_together, fd, partial(callback, *args)))
        else:
            super().add_reader(fd, callback, *args)


def _read_together(wake_ups: socket.socket, take_events: Callable[[], object]) -> None:
    """Leave the byte that `take_events` reads. The others are read first: behind it, one could
    belong to an event that it has not taken."""
    surplus = len(wake_ups.recv(_WAKE_UPS, socket.MSG_PEEK)) - 1
    if surplus:
        wake_ups.recv(surplus)
    take_events()
