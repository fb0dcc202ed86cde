"""Tail recovery: a SYNC_MASTER under asynchronous flush copies, after an unclean stop, what its
slaves hold of its own log.

    every peer has answered ──► the one with the greatest (generation, end) ──► has it more than we?
          ──► connect under a mark of its own ──► compare histories ──► its bytes, appended
          ──► the log resumes as a master: its next generation begins behind them

What it had acknowledged is on some slave, and on which is unknown: it waits for all of its peers,
or for an operator (`stratamq replica promote --force`).
"""

import asyncio
import logging
import socket
from collections.abc import Sequence
from dataclasses import replace

from stratamq.errors import CorruptRecordError, UnavailableError
from stratamq.follow.own_log import OwnLog
from stratamq.formats.log_state import LogState
from stratamq.formats.replication_fields import LENGTH, decode_length
from stratamq.formats.replication_opening import (
    BACK_MARK,
    MasterAnswer,
    Verdict,
    decode_master_answer,
    encode_slave_opening,
)
from stratamq.formats.replication_peers import PeerStatus
from stratamq_ha.history import related
from stratamq_ha.peer_decisions import PeerAnswer
from stratamq_ha.promotion import reach
from stratamq_ha.slave import opening_of
from stratamq_ha.slave_connection import Append, Left, SlaveConnection, SlaveSettings
from stratamq_ha.sockets import Now, connect, receive, receive_exactly, send

log = logging.getLogger(__name__)

READ_BYTES = 1 << 20
OPEN_S = 10.0
SILENT_S = 10.0


def silent(answers: Sequence[PeerAnswer]) -> list[str]:
    """Peers that have not answered, so that their logs are unknown."""
    return [one.address for one in answers if one.peer_status is None]


def holder(own: PeerStatus, answers: Sequence[PeerAnswer]) -> str:
    """Where the peer listens that has the most of this history, "" if none has more than we."""
    found = [
        (reach(one.peer_status), one.address)
        for one in answers
        if one.peer_status is not None
        and one.peer_status.instance != own.instance
        and one.peer_status.name == own.name
        and not one.peer_status.is_master
        and related(own.generations, one.peer_status.generations)
    ]
    best = max(found, default=((0, 0, 0), ""))
    return best[1] if best[0] > reach(own) else ""


async def recover_tail(own: OwnLog, facts: LogState, address: str, now_ms: Now) -> int:
    """Append what the broker at `address` has more; the log's end then. UnavailableError when the
    other goes away before: what has come stays, and the rest is taken at the next look."""
    try:
        async with asyncio.timeout(OPEN_S):
            connection = await connect(address)
    except (OSError, TimeoutError) as error:
        raise UnavailableError(f"{address} does not answer: {error}") from error
    try:
        async with asyncio.timeout(OPEN_S):
            await send(connection, BACK_MARK)
            if await receive_exactly(connection, len(BACK_MARK)) != BACK_MARK:
                raise UnavailableError(f"{address} gives nothing back")
            has = replace(opening_of(facts), rejoining=False)
            await send(connection, encode_slave_opening(has))
            length = decode_length(await receive_exactly(connection, LENGTH.size))
            keeps = decode_master_answer(await receive_exactly(connection, length))
        begin = _begin(facts, keeps, address)
        log.warning("recovering the tail", extra={"slave": address, "from": begin, "to": keeps.end})
        return await _copy(own, facts, connection, begin, keeps.end, now_ms)
    except (OSError, EOFError, TimeoutError, CorruptRecordError) as error:
        problem = str(error) or type(error).__name__
        raise UnavailableError(f"tail recovery from {address} broke off: {problem}") from error
    finally:
        connection.close()


def _begin(facts: LogState, keeps: MasterAnswer, address: str) -> int:
    if keeps.verdict is Verdict.KEEP and keeps.cut_to == facts.appended_offset:
        return facts.appended_offset
    if keeps.verdict is Verdict.BEGIN and facts.appended_offset == facts.minimum_offset:
        return keeps.minimum
    raise UnavailableError(
        f"{address} cannot give back what is missing behind {facts.appended_offset}: "
        + (keeps.sentence or f"the histories part at {keeps.cut_to}")
    )


async def _copy(
    own: OwnLog, facts: LogState, connection: socket.socket, begin: int, end: int, now_ms: Now
) -> int:
    machine = SlaveConnection(SlaveSettings(notices=True), facts.segment_bytes, begin, now_ms())
    await send(connection, machine.begin(now_ms()).data)
    while machine.appended < end:
        data = await receive(connection, READ_BYTES, SILENT_S)
        if not data:
            raise EOFError("nothing more comes" if data is None else "it closed the connection")
        for action in [*machine.received(data, now_ms()), *machine.drained()]:
            if isinstance(action, Left):
                raise CorruptRecordError(action.sentence, machine.received_end, action.reason)
            assert isinstance(action, Append)
            reached = await own.append(facts.generation, action.offset, [action.data])
            report = machine.was_appended(reached, now_ms())
            if report is not None:
                await send(connection, report.data)
    return machine.appended
