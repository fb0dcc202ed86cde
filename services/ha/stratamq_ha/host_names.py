"""Look up addresses of hosts on separate threads: a name server that does not respond delays only
that name.

The event loop's own look-ups share a few threads. If the name of a lost machine is gone, each
look-up takes tens of seconds, and the live members would not be found either. Here a name has at
most one thread, however many callers ask, and a stop waits for none.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable

Where = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[object, ...]]
"""An entry of what `socket.getaddrinfo` returns."""
LookUp = Callable[[str, int], list[Where]]


def look_up(host: str, port: int) -> list[Where]:
    """Blocks. OSError."""
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


class HostNames:
    """Look-ups for one event loop."""

    def __init__(self, look_up: LookUp = look_up) -> None:
        self._look_up = look_up
        self._running: dict[tuple[str, int], asyncio.Future[list[Where]]] = {}

    async def addresses(self, host: str, port: int) -> list[Where]:
        """OSError. A look-up whose askers have gone goes on, and serves the next ones."""
        key = host, port
        if key not in self._running:
            self._running[key] = self._start(key)
        return await asyncio.shield(self._running[key])

    def _start(self, key: tuple[str, int]) -> asyncio.Future[list[Where]]:
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[Where]] = loop.create_future()

        def finish(addresses: list[Where], error: OSError | None) -> None:
            del self._running[key]
            if error is None:
                found.set_result(addresses)
            else:
                found.set_exception(error)
                found.exception()  # retrieved here, because no caller may have waited for it

        def run() -> None:
            addresses: list[Where] = []
            failure: OSError | None = None
            try:
                addresses = self._look_up(*key)
            except OSError as error:
                failure = error
            # The loop may have been closed meanwhile, with all its callers.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(finish, addresses, failure)

        threading.Thread(target=run, name=f"look up {key[0]}", daemon=True).start()
        return found
