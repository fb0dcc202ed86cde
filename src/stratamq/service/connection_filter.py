"""Which new connections the kernel lets in: a filter at the listening socket, before the process
hears of them.

    a packet that opens no connection    let through
    one of a host that is not named      let through
    one of a host that is                one of so many, by chance; the others are dropped

A host that is dropped sends again after a second, two, four, …, and is not told. Connections that
are open stay, of whatever host. IPv6 hosts are named by the first half of their address: the other
is the host's to choose. It is all hosts' of a link where it is a link's own: none of them is named.

The program is classic BPF (socket(7), SO_ATTACH_FILTER), which most kernels take of every user.
Connections inherit the filter, so that it sees all their packets: it looks at the flags first. What
it takes of the kernel counts (`net.core.optmem_max`: 20 KiB until Linux 6.7): for a host
there are comparisons alone, and the chances are behind them, once for all hosts that have the same.
"""

import contextlib
import ctypes
import errno
import ipaddress
import socket
import struct
from collections.abc import Mapping
from enum import IntEnum

MOST_HOSTS = 256
"""At five instructions each at most: the kernel takes 4 096."""
LARGEST_ONE_IN = 1 << 6
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_FLAGS, _SYN, _SYN_ACK = 13, 0x02, 0x12
"""Of the TCP header, at which a filter's packet begins."""
_NETWORK = -0x100000
"""Where the IP header is (SKF_NET_OFF)."""
_RANDOM = -0x1000 + 56
_VERSION, _SOURCE_4, _SOURCE_6 = _NETWORK, _NETWORK + 12, _NETWORK + 8
_ALL = 0xFFFF_FFFF
_CHANCE = 5
"""Instructions."""
_NO_ROOM = (errno.ENOMEM, errno.EINVAL)
"""Of the kernel's memory for one socket, and for so many instructions."""


class _Do(IntEnum):
    LOAD_BYTE = 0x30
    LOAD_WORD = 0x20
    LOAD_KEPT = 0x60
    KEEP = 0x02
    AND = 0x54
    SHIFT_RIGHT = 0x74
    IF_EQUAL = 0x15
    RETURN = 0x06
    JUMP = 0x05


def program(hosts: Mapping[str, int]) -> list[bytes]:
    """Instructions. `hosts`: addresses, and of how many connections of each one is let in, a power
    of two. Of those that are of one network the last counts."""
    four = {_word_of_four(host): one_in for host, one_in in hosts.items() if ":" not in host}
    six = {_words_of_six(host): one_in for host, one_in in hosts.items() if ":" in host}
    of_four: list[bytes | int] = []
    for word, one_in in four.items():
        of_four += [_instruction(_Do.IF_EQUAL, word, 0, 1), one_in]
    of_six: list[bytes | int] = []
    for words, one_in in six.items():
        of_six += [*_is_network(*words), one_in]
    return _linked([
        _instruction(_Do.LOAD_BYTE, _FLAGS),
        _instruction(_Do.AND, _SYN_ACK),
        _instruction(_Do.IF_EQUAL, _SYN, 1, 0),
        _LET_IN,
        _instruction(_Do.LOAD_BYTE, _VERSION),
        _instruction(_Do.SHIFT_RIGHT, 4),
        _instruction(_Do.IF_EQUAL, 4, 1, 0),
        _instruction(_Do.JUMP, len(of_four) + 2),
        _instruction(_Do.LOAD_WORD, _SOURCE_4),
        *of_four,
        _LET_IN,
        _instruction(_Do.LOAD_WORD, _SOURCE_6),
        _instruction(_Do.KEEP, 0),
        _instruction(_Do.LOAD_WORD, _SOURCE_6 + 4),
        _instruction(_Do.KEEP, 1),
        *of_six,
        _LET_IN,
    ])  # fmt: skip


def keep_out(listener: socket.socket, hosts: Mapping[str, int]) -> None:
    """Those alone, of now on; the last ones of them, if the kernel has no room for all. OSError
    where it has no filters."""
    named = list(hosts.items())
    if not named:
        _detach(listener)
        return
    try:
        _attach(listener, named)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        _detach(listener)  # it counts until the next one is there
        _attach_some(listener, named)


def _attach_some(listener: socket.socket, named: list[tuple[str, int]]) -> None:
    while True:
        try:
            _attach(listener, named)
        except OSError as error:
            if error.errno not in _NO_ROOM or len(named) == 1:
                raise
            named = named[len(named) // 2 :]
        else:
            return


def _attach(listener: socket.socket, named: list[tuple[str, int]]) -> None:
    instructions = program(dict(named))
    code = ctypes.create_string_buffer(b"".join(instructions))
    # The kernel has no more than so many, whatever the field holds.
    given = struct.pack("@HP", min(len(instructions), 0xFFFF), ctypes.addressof(code))
    listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, given)


def _detach(listener: socket.socket) -> None:
    with contextlib.suppress(FileNotFoundError):  # there is no filter
        listener.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)


def _is_network(high: int, low: int) -> list[bytes]:
    return [
        _instruction(_Do.LOAD_KEPT, 0),
        _instruction(_Do.IF_EQUAL, high, 0, 3),
        _instruction(_Do.LOAD_KEPT, 1),
        _instruction(_Do.IF_EQUAL, low, 0, 1),
    ]


def _linked(instructions: list[bytes | int]) -> list[bytes]:
    """A number: a jump to where one of so many is let in, which follows."""
    chances = sorted({each for each in instructions if isinstance(each, int)})
    linked: list[bytes] = []
    for place, each in enumerate(instructions):
        if isinstance(each, int):
            target = len(instructions) + chances.index(each) * _CHANCE
            each = _instruction(_Do.JUMP, target - place - 1)
        linked.append(each)
    return linked + [each for one_in in chances for each in _chance(one_in)]


def _chance(one_in: int) -> list[bytes]:
    return [
        _instruction(_Do.LOAD_WORD, _RANDOM),
        _instruction(_Do.AND, one_in - 1),
        _instruction(_Do.IF_EQUAL, 0, 0, 1),
        _LET_IN,
        _DROP,
    ]


def _word_of_four(address: str) -> int:
    return int(ipaddress.IPv4Address(address))


def _words_of_six(address: str) -> tuple[int, int]:
    high = int(ipaddress.IPv6Address(address)) >> 64
    return high >> 32, high & _ALL


def _instruction(do: _Do, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", do, if_true, if_false, value & _ALL)


_LET_IN, _DROP = _instruction(_Do.RETURN, _ALL), _instruction(_Do.RETURN, 0)
