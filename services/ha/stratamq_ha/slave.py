"""The slave's side: follows one master, reconnects, appends what comes to its own log.

    own log's facts ──► connect ──► compare histories ──► Cut ──► report ──► transfers ──► appends
          ▲                         (a master of ours)                             │ report each
          └──────── back-off ◀── anything that goes wrong ◀────────────────────────┘

While one append is under way, what comes meanwhile is gathered into the next: the slower the disk,
the larger the appends. An acknowledgement is sent after the append that it covers.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from stratamq.errors import StrataError
from stratamq.files.port import Clock, Random
from stratamq.follow.demand import set_within
from stratamq.follow.own_log import OwnLog
from stratamq.formats.log_state import LogState, Role
from stratamq.formats.replication_fields import LENGTH, decode_length
from stratamq.formats.replication_opening import (
    MARK,
    MasterAnswer,
    decode_master_answer,
    encode_slave_opening,
)
from stratamq.formats.replication_peers import PeerStatus
from stratamq.rpc.address import told_by
from stratamq.service.tasks import first_ended
from stratamq_ha import metrics
from stratamq_ha.config import HaConfig
from stratamq_ha.following import FollowingStatus, MasterLeft, Standstill
from stratamq_ha.promotion import MasterView
from stratamq_ha.slave_agreement import NotAgreed, agree, learned, opening_of
from stratamq_ha.slave_connection import Append, Left, SlaveConnection, WriteToMaster
from stratamq_ha.sockets import connect, receive_exactly, receive_later, send

log = logging.getLogger(__name__)
T = TypeVar("T")

FIRST_DELAY_S = 0.05
CONNECT_S = 5.0
READ_BYTES = 1 << 20
LARGEST_APPEND_BYTES = 4 << 20
WAITING_BYTES = 16 << 20
"""So much that waits for the log's appends, and reading waits as well."""


class NoSlave(Exception):
    """This broker is a master, and follows none."""


def next_delay_s(delay_s: float, longest_s: float, *, woken: bool) -> float:
    """Return how long to wait after the next failure. `woken`: the role or the master to follow has
    changed, so that earlier failures say nothing about the next attempt."""
    return FIRST_DELAY_S if woken else min(2 * delay_s, longest_s)


class Slave:
    """`run` until it is cancelled. It looks at its log's role before it does anything."""

    def __init__(self, config: HaConfig, own: OwnLog, clock: Clock, random: Random) -> None:
        self.state = FollowingStatus()
        self.master = ""
        """The master that it follows, or tried to."""
        self.metadata_problem = ""
        """Why topics and consumer offsets are not the master's; empty when they are."""
        self.standstill = Standstill()
        self._config = config
        self._own = own
        self._clock = clock
        self._random = random
        self._may_begin_anew = False
        self._connections = 0
        self._again = asyncio.Event()

        self._drop = asyncio.Event()
        self._override = ""
        """A peer that was found to be the master: not kept, asked for again after a restart."""
        self._assigned_master = ""
        self.of_master = MasterView()
        """What is known of the master, for a promotion."""

    def address(self, facts: LogState) -> str:
        """Where the master's slaves connect, "" if that is not known."""
        if facts.master_replication_address != self._assigned_master:
            self._assigned_master, self._override = facts.master_replication_address, ""
        return self._override or facts.master_replication_address or self._config.master

    @property
    def followed(self) -> tuple[int, str]:
        """The number of the connection and its master's address, "" while there is none, or when
        the master is RocketMQ's."""
        ours = self.state.connected and self._config.master_kind == "STRATAMQ"
        return self._connections, self.master if ours else ""

    def follow(self, address: str) -> None:
        """Another master, from now on."""
        self._override = address
        self.drop()

    def drop(self) -> None:
        """Leave the master, and look again what is to be done."""
        self._drop.set()
        self._again.set()

    def retry(self) -> None:
        """Try again at once: the role, or the master to follow, has changed."""
        self._again.set()

    def learn_of_master(self, peer_status: PeerStatus) -> None:
        """It was asked how it stands."""
        self.of_master = replace(self.of_master, minimum=peer_status.minimum, end=peer_status.end)

    def resync(self) -> None:
        """By an operator's command: this log may be moved aside, and begins empty."""
        self._may_begin_anew = True
        self._again.set()

    async def run(self) -> None:
        """Follow the master forever."""
        delay_s = FIRST_DELAY_S
        while True:
            try:
                await self._follow()
            except NoSlave:
                self.state.problem, self.state.needs_resync = "", False
                self.standstill.over()
            except MasterLeft as left:
                self._report(left.sentence, left.reason)
            except StrataError as error:
                self._report(str(error), "own_log")
            except (OSError, EOFError) as error:
                self._report(f"{self.master}: {str(error) or type(error).__name__}", "lost")
            if self.state.connected and not self.standstill.problem:
                delay_s = FIRST_DELAY_S
            self.state.connected = False
            self.state.bytes_per_second = 0.0
            metrics.FOLLOWS.set(0)
            self._again.clear()
            try:
                async with asyncio.timeout(delay_s * (0.5 + self._random.getrandbits(16) / 2**17)):
                    await self._again.wait()
                woken = True
            except TimeoutError:
                woken = False
            delay_s = next_delay_s(delay_s, self._config.reconnect_longest_ms / 1000, woken=woken)

    def _report(self, problem: str, reason: str) -> None:
        metrics.LEFT.labels(reason).inc()
        # A new problem is logged once; repeated failures to connect at DEBUG only.
        news = problem != self.state.problem and reason != "own_log"
        level = logging.WARNING if news else logging.DEBUG
        log.log(level, "the master is not followed", extra={"reason": problem})
        self.state.problem = problem

    # --- one connection ---

    async def _follow(self) -> None:
        # A request to leave the master from here on is newer than the facts.
        self._drop.clear()
        facts = await self._own.facts()
        self.state.appended = facts.appended_offset
        if facts.role is not Role.SLAVE:
            raise NoSlave
        self.master = self.address(facts)
        if not self.master:
            raise MasterLeft(
                "no_master",
                "no master is known: name one (`stratamq replica demote --master HOST:PORT`, "
                "ha.master), or members to ask (ha.members)",
            )
        if self.of_master.address != self.master:
            self.of_master = MasterView(
                self.master, rocketmq=self._config.master_kind == "ROCKETMQ"
            )
        try:
            async with asyncio.timeout(CONNECT_S):
                connection = await connect(self.master)
        except TimeoutError:
            raise MasterLeft("lost", f"{self.master} does not answer") from None
        try:
            end, generation = await self._agree(connection, facts)
            machine = SlaveConnection(
                self._config.slave_settings, facts.segment_bytes, end, self._now_ms()
            )
            self._connections += 1
            self.state.connected, self.state.problem = True, ""
            self.state.needs_resync = self._may_begin_anew = False
            self.state.appended = self.state.received = end
            metrics.FOLLOWS.set(1)
            if self.of_master.end <= end:
                self.standstill.over()
            log.info("following the master", extra={"from": end, "generation": generation})
            await _Stream(self, connection, machine, generation, facts.segment_bytes).run()
        finally:
            connection.close()

    async def _agree(self, connection: socket.socket, facts: LogState) -> tuple[int, int]:
        """What is kept, what it begins with: (the end to go on from, the generation to append in).
        A RocketMQ master's history cannot be compared."""
        if self._config.master_kind == "ROCKETMQ":
            if self._may_begin_anew:
                return await self._cut(0, empty=True)
            return await self._cut(facts.appended_offset, empty=False)
        try:
            async with asyncio.timeout(self._config.housekeeping_ms / 1000):
                keeps = await self._compare(connection, facts)
        except TimeoutError:
            raise MasterLeft(
                "kind",
                f"{self.master} does not answer as a StrataMQ master does; if it is "
                "RocketMQ's, set ha.master_kind=ROCKETMQ",
            ) from None
        self.of_master = learned(self.of_master, keeps)
        from_last = self._config.sync_from == "LAST"
        agreed = agree(
            facts,
            keeps,
            self.master,
            may_begin_anew=self._may_begin_anew,
            from_last_segment=from_last,
        )
        if isinstance(agreed, NotAgreed):
            self.state.needs_resync |= agreed.needs_resync
            if agreed.rejoins:
                await self._own.set_joined(False, facts.generation)
            raise MasterLeft(agreed.reason, agreed.sentence)
        if not agreed.empty and agreed.offset < facts.appended_offset:
            log.warning(
                "this log is cut to its master's history",
                extra={"end": facts.appended_offset, "cut_to": agreed.offset},
            )
        elif agreed.empty and facts.appended_offset > facts.minimum_offset:
            log.warning("this log starts over", extra={"reason": keeps.sentence})
        end, generation = await self._cut(agreed.offset, empty=agreed.empty, keeps=keeps)
        # An empty log ends at 0 until it has a first byte, wherever that is.
        return (agreed.offset if agreed.empty and from_last else end), generation

    async def _compare(self, connection: socket.socket, facts: LogState) -> MasterAnswer:
        await send(connection, MARK)
        if await receive_exactly(connection, len(MARK)) != MARK:
            raise MasterLeft("protocol", f"{self.master} is no replication port")
        opening = replace(opening_of(facts), problem=self.standstill.problem_to_report())
        await send(connection, encode_slave_opening(opening))
        length = decode_length(await receive_exactly(connection, LENGTH.size))
        self.standstill.answered()
        return decode_master_answer(await receive_exactly(connection, length))

    async def _cut(
        self, offset: int, *, empty: bool, keeps: MasterAnswer | None = None
    ) -> tuple[int, int]:
        cut = self._own.cut(
            offset,
            empty=empty,
            generations=keeps.generations if keeps is not None else (),
            master_address=told_by(self.master, keeps.address) if keeps is not None else "",
            master_confirmed=keeps.confirmed if keeps is not None else None,
        )
        return await self._at(offset, cut)

    async def _at(self, offset: int, step: Awaitable[T]) -> T:
        """What the own log is asked to do there, with its errors."""
        try:
            return await step
        except StrataError as error:
            self.standstill.failed(offset, str(error))
            raise

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // 1_000_000

    async def append(
        self, generation: int, offset: int, pieces: Sequence[bytes], master_confirmed: int | None
    ) -> int:
        step = self._own.append(generation, offset, pieces, master_confirmed)
        end = await self._at(offset, step)
        self.state.appended = end
        if pieces:
            self.standstill.over()
        metrics.APPENDED.set(end)
        return end

    def heard(self, end: int, size: int) -> None:
        """`size` bytes have come, which continue the log up to `end`."""
        self.state.heard_ms = self._clock.wall_ms()
        self.state.received = end
        self.of_master = replace(self.of_master, received=end)
        metrics.RECEIVED.inc(size)

    async def dropped(self) -> None:
        """Until another part requests that the master be left."""
        await self._drop.wait()
        raise MasterLeft("role", "the role, or the master to follow, has changed")


class _Stream:
    """Reading and appending on one connection, side by side."""

    def __init__(
        self,
        slave: Slave,
        connection: socket.socket,
        machine: SlaveConnection,
        generation: int,
        segment_bytes: int,
    ) -> None:
        self._slave = slave
        self._socket = connection
        self._machine = machine
        self._generation = generation
        self._segment_bytes = segment_bytes
        self._now_ms: Callable[[], int] = slave._now_ms
        self._waiting: deque[Append] = deque()
        self._waiting_bytes = 0
        self._passed_confirmed: int | None = None
        """The last of the master's confirmed offsets that was passed to the log."""
        self._came = asyncio.Event()
        self._went = asyncio.Event()
        self._writing = asyncio.Lock()

    async def run(self) -> None:
        """Until something goes wrong."""
        await self._send(self._machine.begin(self._now_ms()))
        dropped = self._slave.dropped()
        await first_ended(self._read(), self._append(), self._measure(), dropped)

    async def _read(self) -> None:
        machine = self._machine
        look_s = min(1.0, self._slave._config.heartbeat_ms / 2000)
        while True:
            try:
                data: bytes | None = self._socket.recv(READ_BYTES)
            except BlockingIOError:
                self._take(machine.drained())
                if machine.master_confirmed != self._passed_confirmed:
                    # Bytes that came with it are on their way to the log by now, and take it along.
                    self._came.set()
                data = await receive_later(self._socket, READ_BYTES, look_s)
            if data:
                self._take(machine.received(data, self._now_ms()))
                self._slave.heard(machine.received_end, len(data))
            elif data is not None:
                raise EOFError("the master closed the connection")
            await self._tick()
            while self._waiting_bytes > WAITING_BYTES:
                self._went.clear()
                await set_within(self._went, look_s)
                # It is not read, so not silent; and it must hear of this slave.
                machine.is_heard(self._now_ms())
                await self._tick()
            await asyncio.sleep(0)

    async def _tick(self) -> None:
        answer = self._machine.tick(self._now_ms())
        if isinstance(answer, Left):
            raise MasterLeft(answer.reason, answer.sentence)
        if answer is not None:
            await self._send(answer)

    def _take(self, actions: Iterable[Append | Left]) -> None:
        for action in actions:
            if isinstance(action, Left):
                self._slave.standstill.failed(self._machine.appended, action.sentence)
                raise MasterLeft(action.reason, action.sentence)
            self._waiting.append(action)
            self._waiting_bytes += len(action.data)
            self._came.set()

    async def _append(self) -> None:
        machine = self._machine
        while True:
            while not self._waiting and machine.master_confirmed == self._passed_confirmed:
                self._came.clear()
                await self._came.wait()
            offset, pieces = self._next_append() if self._waiting else (machine.appended, [])
            confirmed = self._passed_confirmed = machine.master_confirmed
            end = await self._slave.append(self._generation, offset, pieces, confirmed)
            self._waiting_bytes -= sum(map(len, pieces))
            self._went.set()
            report = self._machine.was_appended(end, self._now_ms())
            if report is not None:
                await self._send(report)

    def _next_append(self) -> tuple[int, list[bytes]]:
        """What waits, up to a segment's end and to the limit of an append; its offset first."""
        first = self._waiting.popleft()
        parts, size = [first.data], len(first.data)
        base = first.offset // self._segment_bytes
        while (
            self._waiting
            and self._waiting[0].offset // self._segment_bytes == base
            and size + len(self._waiting[0].data) <= LARGEST_APPEND_BYTES
        ):
            parts.append(self._waiting.popleft().data)
            size += len(parts[-1])
        return first.offset, parts

    async def _measure(self) -> None:
        before = self._machine.appended
        while True:
            await asyncio.sleep(1.0)
            now = self._machine.appended
            self._slave.state.bytes_per_second = float(now - before)
            before = now

    async def _send(self, report: WriteToMaster) -> None:
        async with self._writing:
            await send(self._socket, report.data)
