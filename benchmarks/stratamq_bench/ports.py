"""Free ports for servers that cannot choose one themselves, or that listen again on the same one.

The kernel gives ports of `ip_local_port_range` to outgoing connections: one that was free a moment
ago may be the local end of a connection before the server binds it. These ports are below that
range. Each worker of a run has its own part of them and uses them in turn, so that no two tests
that run at the same time get the same port.
"""

import errno
import os
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

_FIRST = 11_000
"""Above what programs listen at by default, our own and RocketMQ's among them."""
_PARTS = 8
_LOCAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    return free_ports(1)


def free_ports(in_a_row: int) -> int:
    """The first of as many consecutive ports of which no socket of this machine is bound to one."""
    for _ in range(len(_PART)):
        first = next(_TURNS)
        if first + in_a_row <= _PART.stop and _all_free(range(first, first + in_a_row)):
            for _ in range(in_a_row - 1):
                next(_TURNS)
            return first
    raise OSError(errno.EADDRINUSE, f"no {in_a_row} free ports in a row in {_PART}")


def _all_free(ports: range) -> bool:
    with ExitStack() as held:
        try:
            for port in ports:
                held.enter_context(socket.socket()).bind(("", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
        return True


def _own_part() -> range:
    end = int(_LOCAL_RANGE.read_text().split()[0]) if _LOCAL_RANGE.exists() else 32_768
    if end < _FIRST + 100 * _PARTS:
        end = 32_768
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    size = (end - _FIRST) // _PARTS
    first = _FIRST + worker % _PARTS * size
    return range(first, first + size)


def _turns(part: range) -> Iterator[int]:
    """Without end, from somewhere in the part: runs beside each other begin apart."""
    at = random.randrange(len(part))
    while True:
        yield part[at % len(part)]
        at += 1


_PART = _own_part()
_TURNS = _turns(_PART)
