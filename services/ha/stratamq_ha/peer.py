"""One slave's connection on the master: a socket around `MasterConnection`.

accepted ──► its first four bytes ──► a peer's mark: exchange peer statuses, and close
                                 ├──► its master's mark: the same, and it receives what it lost
                                 ├──► a slave's mark: compare histories ──► a slave of ours
                                 └──► anything else: an offset, RocketMQ's slave
         ──► reading acknowledgements, writing transfers, until either ends
"""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from stratamq.files.port import File, Files
from stratamq.formats.file_names import offset_name
from stratamq.formats.log_state import Role
from stratamq.formats.replication_fields import LENGTH, decode_length
from stratamq.formats.replication_metadata import METADATA_MARK
from stratamq.formats.replication_opening import (
    BACK_MARK,
    MARK,
    MasterAnswer,
    SlaveOpening,
    Verdict,
    decode_slave_opening,
    encode_master_answer,
)
from stratamq.formats.replication_peers import PEER_MARK, PeerStatus
from stratamq.formats.store_paths import COMMIT_LOG
from stratamq.service.tasks import first_ended
from stratamq_ha import metrics
from stratamq_ha.master_connection import Acknowledged, Closed, MasterConnection, MasterSettings
from stratamq_ha.own_log import OwnLogView
from stratamq_ha.peers import answer
from stratamq_ha.sockets import Now, receive, receive_exactly, send, send_file

READ_BYTES = 4_096
LOOK_S = 1.0
"""How often, at least, a connection looks at the clock."""


class PeerClosed(Exception):
    """The connection is to be closed. `reason` is one constant word, `sentence` for people."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """For slaves of ours and for RocketMQ's."""

    ours: MasterSettings
    rocketmq: MasterSettings


Accepted = Callable[[socket.socket, str], Awaitable[tuple[socket.socket, bool]]]
"""`Encryption.accepted`."""


@dataclass(frozen=True, slots=True)
class PeerListener:
    """What a connection asks the master's side."""

    judge: Callable[[str, SlaveOpening], MasterAnswer]
    """Answers the opening of a StrataMQ slave at that address."""
    heard: Callable[["Peer"], None]
    """Called at a slave's request and at every acknowledgement."""
    status_for: Callable[[PeerStatus, str], PeerStatus | None]
    """This broker's peer status, for a broker at that address that asks with its own."""
    documents: Callable[[socket.socket], Awaitable[None]]
    """Answers a slave that asks for topics and offsets, over the rest of the connection."""


class Peer:
    """One connection to this master."""

    def __init__(
        self,
        connection: socket.socket,
        address: str,
        files: Files,
        log: OwnLogView,
        settings: PeerSettings,
        now_ms: Now,
        listener: PeerListener,
    ) -> None:
        self.address = address
        self.name = ""
        """What a slave of ours calls itself."""
        self.has: SlaveOpening | None = None
        """The opening of a StrataMQ slave; None of RocketMQ's."""
        self.moved = asyncio.Event()
        """The log has grown."""
        self.machine: MasterConnection | None = None
        self._socket = connection
        self._files = files
        self._log = log
        self._settings = settings
        self._now_ms = now_ms
        self._listener = listener
        self._asks_for_documents = False
        self._in_clear = False
        """It speaks RocketMQ's protocol alone, where others show certificates."""
        self.recovers_tail = False
        """It is this slave's master, which takes back what it has lost."""
        self.asked = False
        """It is no slave: it asked how this broker stands, or for documents."""
        self._segment: tuple[int, File] | None = None

    @property
    def member(self) -> str:
        """Its name among the members, "" if it has none."""
        return self.has.member if self.has is not None else ""

    def is_same(self, other: "Peer") -> bool:
        """Both are connections of one slave of ours: of one member, or of one directory."""
        if self.has is None or other.has is None:
            return False
        if self.has.member or other.has.member:
            return self.has.member == other.has.member
        return self.has.identity == other.has.identity

    @property
    def offset(self) -> int:
        """What the slave has acknowledged; −1: nothing yet."""
        return self.machine.acknowledged if self.machine is not None else -1

    async def secure(self, accepted: Accepted) -> None:
        """Before `run`: go on over what `accepted` makes of the connection, with its errors."""
        self._socket, self._in_clear = await accepted(self._socket, self.address)

    async def run(self) -> None:
        """Until the connection ends, with PeerClosed, OSError, EOFError or CorruptRecordError."""
        try:
            async with asyncio.timeout(self._settings.ours.housekeeping_ms / 1000):
                await self._open()
        except TimeoutError:
            raise PeerClosed("silent", "the peer connected and sent nothing") from None
        if self._asks_for_documents:
            await self._listener.documents(self._socket)
        if self.asked:
            return
        assert self.machine is not None
        await first_ended(self._read(self.machine), self._write(self.machine))

    def close(self) -> None:
        self._socket.close()
        self._let_go()

    async def _open(self) -> None:
        while not self._log.ready:
            self.moved.clear()
            await self.moved.wait()
        first = await receive_exactly(self._socket, len(MARK))
        if self._in_clear and first in (MARK, PEER_MARK, METADATA_MARK, BACK_MARK):
            raise PeerClosed("refused", "a StrataMQ broker in clear: set tls.certificate there")
        if first == PEER_MARK:
            self.asked = True
            await answer(self._socket, self._own_status)
            return
        if first == METADATA_MARK:
            self.asked = self._asks_for_documents = True
            return
        is_slave = self._log.facts is None or self._log.facts.role is Role.SLAVE
        self.recovers_tail = first == BACK_MARK
        if is_slave is not self.recovers_tail:
            ours = "a slave itself" if is_slave else "a master, and has nothing of another's"
            raise PeerClosed("refused", f"this broker is {ours}")
        if not self.recovers_tail and first != MARK:
            self.machine = MasterConnection(self._settings.rocketmq, self._now_ms())
            self._take(self.machine, first)
            return
        await send(self._socket, first)
        length = decode_length(await receive_exactly(self._socket, LENGTH.size))
        has = decode_slave_opening(await receive_exactly(self._socket, length))
        self.name, self.has = has.name, has
        keeps = self._listener.judge(self.address, has)
        await send(self._socket, encode_master_answer(keeps))
        if keeps.verdict in (Verdict.UNRELATED, Verdict.REFUSED):
            raise PeerClosed("refused", keeps.sentence)
        self.machine = MasterConnection(self._settings.ours, self._now_ms())

    def _own_status(self, theirs: PeerStatus) -> PeerStatus:
        ours = self._listener.status_for(theirs, self.address)
        if ours is None:
            raise PeerClosed("asked", "the log is being opened")
        return ours

    async def _read(self, machine: MasterConnection) -> None:
        look_s = min(LOOK_S, self._settings.ours.heartbeat_ms / 2000)
        while True:
            data = await receive(self._socket, READ_BYTES, look_s)
            if data:
                self._take(machine, data)
            elif data is not None:
                raise EOFError("the slave closed the connection")
            closed = machine.tick(self._log.view, self._now_ms())
            if closed is not None:
                raise PeerClosed(closed.reason, closed.sentence)

    def _take(self, machine: MasterConnection, data: bytes) -> None:
        waits_for_request = machine.requested is None
        for action in machine.received(data, self._log.view, self._now_ms()):
            if isinstance(action, Closed):
                raise PeerClosed(action.reason, action.sentence)
            assert isinstance(action, Acknowledged)
        if machine.requested is not None and not self.recovers_tail:
            self._listener.heard(self)
        if waits_for_request:
            self.moved.set()

    async def _write(self, machine: MasterConnection) -> None:
        look_s = min(LOOK_S, self._settings.ours.heartbeat_ms / 20_000)
        while True:
            self.moved.clear()
            transfer = machine.next_transfer(self._log.view, self._now_ms())
            if transfer is None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(look_s):
                        await self.moved.wait()
                continue
            await send(self._socket, transfer.head, more=transfer.length > 0)
            if transfer.length:
                file, position = self._open_segment(transfer.offset)
                await send_file(self._socket, file, position, transfer.length)
                metrics.SENT.inc(transfer.length)
            machine.written(self._now_ms())
            await asyncio.sleep(0)  # a slave that reads as fast does not keep the loop to itself

    def _open_segment(self, offset: int) -> tuple[File, int]:
        base = offset - offset % self._log.view.segment_bytes
        if self._segment is None or self._segment[0] != base:
            self._let_go()
            try:
                file = self._files.open(f"{COMMIT_LOG}/{offset_name(base)}")
            except FileNotFoundError as error:
                raise PeerClosed(
                    "deleted", f"the slave needs the log from {offset} on, which was deleted"
                ) from error
            self._segment = (base, file)
        return self._segment[1], offset - base

    def _let_go(self) -> None:
        if self._segment is not None:
            self._segment[1].close()
            self._segment = None
