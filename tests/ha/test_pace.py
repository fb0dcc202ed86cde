"""How soon a master's log feeds its slaves: at once while producers wait for them."""

import asyncio
import contextlib
import random
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from stratamq_commitlog.replica.follow_hub import UNHURRIED_SECONDS
from stratamq_ha.config import HaConfig
from stratamq_ha.master import Master
from stratamq_ha.own_log import OwnLogView
from stratamq_ha.slave import Slave

from stratamq.client import connect
from stratamq.files.clock import SystemClock
from stratamq.formats.log_state import LogState, Role
from stratamq.formats.replication import NOTICE, REPORT, TRANSFER_HEAD, TransferReader
from stratamq.formats.replication_fields import LENGTH, decode_length
from stratamq.formats.replication_opening import MARK, MasterAnswer, Verdict, encode_master_answer
from tests.ha.own_logs import RecordedLog, log_state, master_and_slave, show
from tests.ha.pairs import Pair, log_status
from tests.support.logs import Store

SEGMENT = 65_536
DEADLINE_S = 60.0


def facts(role: Role) -> LogState:
    return log_state(role, [(7, 0)], 1_000, SEGMENT)


def is_hurried(master: Master, view: OwnLogView) -> bool:
    return not master.demand.tell(view.report()).unhurried


@contextlib.asynccontextmanager
async def running(role: Role) -> AsyncIterator[tuple[Master, OwnLogView]]:
    """A master to which a plain slave connects; without a slave its log is not hurried."""
    view = OwnLogView(SystemClock())
    log = RecordedLog(facts(role))
    config = HaConfig(root=Path("store"), rocketmq_slaves=("127.0.0.1",))
    master, _, listener = master_and_slave(config, log, view)
    listener.setblocking(False)
    show(view, facts(role))
    assert not is_hurried(master, view)
    working = asyncio.create_task(master.run())
    _, writer = await asyncio.open_connection(*listener.getsockname())
    writer.write(REPORT.pack(1_000))
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield master, view
    finally:
        writer.close()
        working.cancel()
        await asyncio.wait([working])


async def test_a_slave_gives_its_log_bytes_and_what_is_confirmed_in_one_call():
    store = Store(SEGMENT)
    store.start()
    store.put(b"x")
    frame = store.segments()[0][: store.end()]

    async def master(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(len(MARK)))
        await reader.readexactly(decode_length(await reader.readexactly(LENGTH.size)))
        keeps = MasterAnswer(Verdict.KEEP, 0, 0, 0, 0, "", "", [(7, 0)])
        writer.write(encode_master_answer(keeps))
        assert REPORT.unpack(await reader.readexactly(REPORT.size)) == (0,)
        writer.write(TRANSFER_HEAD.pack(0, NOTICE) + TRANSFER_HEAD.pack(0, len(frame)) + frame)
        assert REPORT.unpack(await reader.readexactly(REPORT.size)) == (len(frame),)
        reported.set()

    reported = asyncio.Event()
    server = await asyncio.start_server(master, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    config = HaConfig(root=Path("store"), master=f"{host}:{port}")
    log = RecordedLog(replace(facts(Role.SLAVE), appended_offset=0))
    slave = Slave(config, log, SystemClock(), random.Random(1))
    following = asyncio.create_task(slave.run())
    async with asyncio.timeout(DEADLINE_S):
        await reported.wait()
    following.cancel()
    await asyncio.wait([following])
    server.close()
    assert log.appends == [(0, frame, 0)]


@pytest.mark.parametrize(
    ("role", "hurried"), [(Role.SYNC_MASTER, True), (Role.ASYNC_MASTER, False)]
)
async def test_the_log_is_told_at_once_of_a_slave_for_which_producers_wait(role, hurried):
    async with running(role) as (master, view):
        await master.demand.begun(DEADLINE_S)
        assert len(master.slaves.peers()) == 1
        assert is_hurried(master, view) is hurried


async def test_the_log_is_told_at_once_when_it_has_answered_that_producers_wait():
    async with running(Role.ASYNC_MASTER) as (master, view):
        await master.demand.begun(DEADLINE_S)
        assert not is_hurried(master, view)
        view.learned(facts(Role.SYNC_MASTER))
        master.learned("127.0.0.1:1")
        await master.demand.begun(DEADLINE_S)
        assert is_hurried(master, view)


def test_the_slave_of_an_async_master_gets_many_single_messages_together(tmp_path):
    with Pair(tmp_path, master=["ha.heartbeat_ms=100"]) as pair:
        pair.start_master()
        pair.send(1)
        host, _, port = pair.replication_address().rpartition(":")
        begin = log_status(pair.master).appended_offset
        with socket.create_connection((host, int(port)), DEADLINE_S) as slave:
            slave.sendall(REPORT.pack(begin))
            assert transfers(slave, begin, begin) == 0  # a heartbeat: it is served
            with connect(pair.master.root) as client:
                began = time.monotonic()
                for number in range(200):
                    client.send("t", b"%d" % number)
                seconds = time.monotonic() - began
            end = log_status(pair.master).appended_offset
            # What comes while an event is being sent follows it at once.
            assert transfers(slave, begin, end) <= 2 * seconds / UNHURRIED_SECONDS + 3


def transfers(slave: socket.socket, begin: int, end: int) -> int:
    """How many come, heartbeats not counted, until the slave has what is between."""
    reader, sizes = TransferReader(), []
    while not sizes or begin + sum(sizes) < end:
        data = slave.recv(1 << 16)
        assert data, "the master closed the connection"
        for piece in reader.feed(data):
            if piece.opens:
                sizes.append(0)
            sizes[-1] += len(piece.data)
    return sum(size > 0 for size in sizes)
