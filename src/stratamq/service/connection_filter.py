"""Which new connections the kernel lets in: a filter at the listening socket, before the process
hears of them.

    a packet that opens no connection    let through
    one of a host that is not named      let through
    one of a host that is                one of so many, by chance; the others are dropped

A host that is dropped sends again after a second, two, four, …, and is not told. Connections that
are open stay, of whatever host. IPv6 hosts are named by the first half of their address: the other
is the host's to choose.

The program is classic BPF (socket(7), SO_ATTACH_FILTER), which needs no privilege. Connections
inherit the filter, so that it sees all their packets: it looks at the flags first.
"""

import contextlib
import ctypes
import ipaddress
import socket
import struct
from collections.abc import Mapping
from enum import IntEnum

MOST_HOSTS = 256
"""At seven instructions each at most: the kernel takes 4 096."""
LARGEST_ONE_IN = 1 << 12
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_FLAGS, _SYN, _SYN_ACK = 13, 0x02, 0x12
"""Of the TCP header, at which a filter's packet begins."""
_NETWORK = -0x100000
"""Where the IP header is (SKF_NET_OFF)."""
_RANDOM = -0x1000 + 56
_VERSION, _SOURCE_4, _SOURCE_6 = _NETWORK, _NETWORK + 12, _NETWORK + 8
_ALL = 0xFFFF_FFFF


class _Do(IntEnum):
    LOAD_BYTE = 0x30
    LOAD_WORD = 0x20
    AND = 0x54
    SHIFT_RIGHT = 0x74
    IF_EQUAL = 0x15
    RETURN = 0x06
    JUMP = 0x05


def program(hosts: Mapping[str, int]) -> list[bytes]:
    """Instructions. `hosts`: addresses, and of how many connections of each one is let in, a power
    of two."""
    of_four = [each for host, one_in in hosts.items() if ":" not in host
               for each in _for_host(_words_of_four(host), one_in)]  # fmt: skip
    of_six = [each for host, one_in in hosts.items() if ":" in host
              for each in _for_host(_words_of_six(host), one_in)]  # fmt: skip
    return [
        _instruction(_Do.LOAD_BYTE, _FLAGS),
        _instruction(_Do.AND, _SYN_ACK),
        _instruction(_Do.IF_EQUAL, _SYN, 1, 0),
        _LET_IN,
        _instruction(_Do.LOAD_BYTE, _VERSION),
        _instruction(_Do.SHIFT_RIGHT, 4),
        _instruction(_Do.IF_EQUAL, 4, 1, 0),
        _instruction(_Do.JUMP, len(of_four) + 1),
        *of_four,
        _LET_IN,
        *of_six,
        _LET_IN,
    ]


def keep_out(listener: socket.socket, hosts: Mapping[str, int]) -> None:
    """Those alone, of now on. OSError where the kernel has no filters."""
    if not hosts:
        with contextlib.suppress(FileNotFoundError):  # there is no filter
            listener.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
        return
    instructions = program(hosts)
    code = ctypes.create_string_buffer(b"".join(instructions))
    given = struct.pack("@HP", len(instructions), ctypes.addressof(code))
    listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, given)


def _for_host(words: list[tuple[int, int]], one_in: int) -> list[bytes]:
    """`words`: where the packet has what."""
    found = [
        _instruction(_Do.LOAD_WORD, _RANDOM),
        _instruction(_Do.AND, one_in - 1),
        _instruction(_Do.IF_EQUAL, 0, 0, 1),
        _LET_IN,
        _DROP,
    ]
    for where, what in reversed(words):
        asked = _instruction(_Do.LOAD_WORD, where), _instruction(_Do.IF_EQUAL, what, 0, len(found))
        found = [*asked, *found]
    return found


def _words_of_four(address: str) -> list[tuple[int, int]]:
    return [(_SOURCE_4, int(ipaddress.IPv4Address(address)))]


def _words_of_six(address: str) -> list[tuple[int, int]]:
    high = int(ipaddress.IPv6Address(address)) >> 64
    return [(_SOURCE_6, high >> 32), (_SOURCE_6 + 4, high & _ALL)]


def _instruction(do: _Do, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", do, if_true, if_false, value & _ALL)


_LET_IN, _DROP = _instruction(_Do.RETURN, _ALL), _instruction(_Do.RETURN, 0)
