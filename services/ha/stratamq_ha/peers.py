"""Asks other brokers how they stand, and answers those who ask, on the replication port."""

import asyncio
import os
import socket
from collections.abc import Callable, Iterable

from stratamq.errors import ConfigurationError, CorruptRecordError
from stratamq.formats.replication_fields import LENGTH, decode_length
from stratamq.formats.replication_peers import (
    PEER_MARK,
    PeerStatus,
    decode_peer_status,
    encode_peer_status,
)
from stratamq.rpc.address import join_address, split_address
from stratamq_ha.peer_decisions import PeerAnswer
from stratamq_ha.sockets import connect, receive_exactly, send

ANSWER_S = 2.0
_WILDCARDS = ("0.0.0.0", "::")


async def ask_all(addresses: Iterable[str], own: PeerStatus) -> list[PeerAnswer]:
    """Every broker's answer, all asked at once; those that do not answer carry the reason."""
    return list(await asyncio.gather(*(ask(address, own) for address in addresses)))


async def ask(address: str, own: PeerStatus) -> PeerAnswer:
    """Never raises for what the other does or is."""
    try:
        async with asyncio.timeout(ANSWER_S):
            connection = await connect(address)
            try:
                return PeerAnswer(address, await _exchange(connection, own))
            finally:
                connection.close()
    except TimeoutError:
        return PeerAnswer(address, None, f"no answer within {ANSWER_S:.0f} s")
    except CorruptRecordError as error:
        return PeerAnswer(address, None, error.message)
    except EOFError:
        return PeerAnswer(address, None, "it closed the connection")
    except OSError as error:
        error_text = os.strerror(error.errno) if error.errno else str(error)
        return PeerAnswer(address, None, error_text or type(error).__name__)


async def _exchange(connection: socket.socket, own: PeerStatus) -> PeerStatus:
    await send(connection, PEER_MARK)
    if await receive_exactly(connection, len(PEER_MARK)) != PEER_MARK:
        raise CorruptRecordError("it is no StrataMQ replication port", 0, "mark")
    await send(connection, encode_peer_status(own))
    return await _receive(connection)


async def answer(connection: socket.socket, status_for: Callable[[PeerStatus], PeerStatus]) -> None:
    """The other side, after the asker's mark has come. `status_for` takes the asker's peer status
    and returns this broker's. EOFError, OSError, CorruptRecordError."""
    await send(connection, PEER_MARK)
    theirs = await _receive(connection)
    await send(connection, encode_peer_status(status_for(theirs)))


async def _receive(connection: socket.socket) -> PeerStatus:
    length = decode_length(await receive_exactly(connection, LENGTH.size))
    return decode_peer_status(await receive_exactly(connection, length))


def reached_at(theirs: PeerStatus, source: str) -> str:
    """Where the slaves of a broker that asked connect: the address that it names, and for a
    wildcard address the host it asked from. `source` is that connection's address."""
    try:
        host, port = split_address(theirs.replication_address)
    except ConfigurationError:
        return ""
    if host in _WILDCARDS:
        host = split_address(source)[0]
    return join_address(host, port)
