"""The master's side: takes slaves' connections, and reports to the log how far each slave is.

It reports once a second; under SYNC_MASTER at every acknowledgement, because producers wait for
it: those that come while one report is under way share the next.
"""

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from stratamq.errors import CorruptRecordError, StrataError
from stratamq.files.port import Clock, Files
from stratamq.follow.demand import Demand
from stratamq.follow.own_log import OwnLog
from stratamq.formats.log_state import Role
from stratamq.formats.replication_opening import MasterAnswer, SlaveOpening
from stratamq.formats.replication_peers import PeerStatus
from stratamq.rpc.address import reachable_address
from stratamq.service.access import AuditLog, Line
from stratamq.service.tasks import first_ended
from stratamq_ha import metrics
from stratamq_ha.config import HaConfig
from stratamq_ha.encryption import NotAMember
from stratamq_ha.master_agreement import Obstacle, obstacle, refused, served
from stratamq_ha.own_log import OwnLogView
from stratamq_ha.peer import Accepted, Peer, PeerClosed, PeerListener, PeerSettings
from stratamq_ha.slaves import AcknowledgedEnds, Slaves, SlaveState
from stratamq_ha.sockets import address_of, prepare

log = logging.getLogger(__name__)

REPORT_S = 1.0
MAX_REPORT_INTERVAL_S = 2.0
"""The log receives a report at least so often: after five seconds without one it counts no slave as
connected."""
MAX_PEERS = 64
MAX_STRANGERS = 64
"""Connections that are no slave's yet. A further one takes the oldest one's place: a slave tells
who it is at once."""
_ACCEPT_AGAIN_S = 0.1


@dataclass(frozen=True, slots=True)
class MasterListener:
    """What the master's side asks the parts that are made after it, and what it tells them."""

    status_for: Callable[[PeerStatus, str], PeerStatus | None]
    """This broker's peer status, for a broker at that address that asks with its own."""
    slave_refused: Callable[[Obstacle, str], None]
    """Called with why the slave at that address is not served."""
    documents: Callable[[socket.socket], Awaitable[None]]
    """Answers a slave that asks for topics and offsets, over the rest of the connection."""
    secure: Accepted | None = None
    """What is made of each connection first: `Encryption.accepted`; None: all is in clear."""


class Master:
    """`listening` is bound already. `run` until it is cancelled."""

    def __init__(
        self,
        config: HaConfig,
        listening: socket.socket,
        files: Files,
        clock: Clock,
        view: OwnLogView,
        own: OwnLog,
        listener: MasterListener,
    ) -> None:
        bound, name = address_of(listening.getsockname()), config.advertised_host
        self.address = reachable_address(bound, name) if name else bound
        self.slaves = Slaves(view, config.rocketmq_slaves, members_configured=bool(config.members))
        self.demand = Demand(self._is_waited_for)
        """The log feeds slaves for which producers wait at once, an ASYNC_MASTER's every 50 ms."""
        self.log_address = ""
        """Where producers reach this log; sent to slaves."""
        self._config = config
        self._listening = listening
        self._listener = listener
        self._peers = PeerListener(
            self.answer, self._heard, listener.status_for, listener.documents
        )
        self._files = files
        self._clock = clock
        self._view = view
        self._own = own
        self._networks = config.networks
        self._settings = PeerSettings(
            config.master_settings(ours=True), config.master_settings(ours=False)
        )
        self._tasks: dict[asyncio.Task[None], Peer] = {}
        """The oldest connection first."""
        self._lines = AuditLog(clock.monotonic_ns)
        self._acknowledged = asyncio.Event()
        self._remembered = AcknowledgedEnds()

    @property
    def serves(self) -> bool:
        """This broker's log is a master's."""
        facts = self._view.facts
        return facts is not None and facts.role is not Role.SLAVE

    def _is_waited_for(self) -> bool:
        """Producers wait for what slaves acknowledge."""
        facts = self._view.facts
        return facts is not None and facts.role is Role.SYNC_MASTER and bool(self.slaves.peers())

    async def run(self) -> None:
        """Accept and report, until cancelled."""
        log.info("slaves connect here", extra={"address": self.address})
        try:
            await first_ended(self._report(), self._accept())
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._listening.close()

    def learned(self, log_address: str) -> None:
        """The log has answered what it is, and where producers reach it."""
        self.log_address = log_address
        self.demand.begin()

    def moved(self) -> None:
        """The log has grown, or its facts have changed."""
        for peer in self._tasks.values():
            peer.moved.set()

    def end_all(self) -> None:
        """The log has begun another generation: every slave has to compare its history again."""
        for task in self._tasks:
            task.cancel()

    async def drain(self) -> None:
        """Until every connected slave has everything, at most `stop_slaves_ms`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._config.stop_slaves_ms / 1000):
                await self.until(lambda connected: not any(one.lag_bytes for one in connected))

    async def until(self, fulfilled: Callable[[list[SlaveState]], bool]) -> None:
        """Until what is true of the connected slaves; asked again whenever one of them comes, goes
        or acknowledges."""
        while not fulfilled([one for one in self.known_slaves() if one.connected]):
            self._acknowledged.clear()
            await self._acknowledged.wait()

    # --- connections ---

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, name = await loop.sock_accept(self._listening)
            except OSError as error:
                log.error("cannot accept slaves", extra={"error": str(error)})
                await asyncio.sleep(_ACCEPT_AGAIN_S)
                continue
            address = address_of(name)
            refusal = self._refusal(address)
            if refusal:
                self._note(logging.WARNING, "slave refused", address, refusal)
                metrics.CLOSED.labels("refused").inc()
                connection.close()
                continue
            prepare(connection)
            self._make_room()
            peer = Peer(
                connection,
                address,
                self._files,
                self._view,
                self._settings,
                self._now_ms,
                self._peers,
            )
            task = loop.create_task(self._serve(peer), name=f"slave {address}")
            self._tasks[task] = peer
            task.add_done_callback(self._ended)

    def _refusal(self, address: str) -> str:
        host = ipaddress.ip_address(address.rpartition(":")[0].strip("[]").partition("%")[0])
        if self._networks and not any(host in network for network in self._networks):
            return "its address is not among ha.allowed_slaves"
        if len(self._tasks) - len(self._strangers()) >= MAX_PEERS:
            return f"{MAX_PEERS} are connected"
        return ""

    def _strangers(self) -> list[asyncio.Task[None]]:
        """The oldest first."""
        slaves = set(self.slaves.peers())
        return [
            task
            for task, peer in self._tasks.items()
            if not (peer in slaves or peer.asked or peer.recovers_tail)
        ]

    def _make_room(self) -> None:
        strangers = self._strangers()
        for task in strangers[: max(0, len(strangers) - MAX_STRANGERS + 1)]:
            task.cancel("others that have not told who they are took its place")

    async def _serve(self, peer: Peer) -> None:
        problem = "this service stops, or the log was restarted"
        reason = "stopped"
        try:
            if self._listener.secure is not None:
                await peer.secure(self._listener.secure)
            await peer.run()
        except asyncio.CancelledError as cancelled:
            problem = str(cancelled) or problem
            raise
        except NotAMember as refusal:
            problem, reason = str(refusal), "refused"
        except PeerClosed as closed:
            problem, reason = closed.sentence, closed.reason
        except CorruptRecordError as error:
            problem, reason = error.message, "protocol"
        except (OSError, EOFError) as error:
            problem, reason = str(error) or type(error).__name__, "lost"
        finally:
            peer.close()
            if not (peer.asked or peer.recovers_tail):
                self._left(peer, problem, reason)

    def _left(self, peer: Peer, problem: str, reason: str) -> None:
        was_slave = peer in self.slaves.peers()
        self.slaves.left(peer, problem, self._now_ms())
        self._acknowledged.set()
        metrics.CLOSED.labels(reason).inc()
        level = logging.INFO if reason in ("lost", "stopped") else logging.WARNING
        if was_slave:
            log.log(level, "slave left", extra={"slave": peer.address, "reason": problem})
        else:
            self._note(level, "slave left", peer.address, problem)

    def _note(self, level: int, text: str, address: str, reason: str) -> None:
        """Log about a connection that never became a slave: a limited number of lines a second,
        then a count."""
        self._lines.line(Line.UNAUTHENTICATED, level, text, slave=address, reason=reason)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and task.exception() is not None:
            log.critical("serving a slave failed", exc_info=task.exception())

    def answer(self, source: str, has: SlaveOpening) -> MasterAnswer:
        """To the slave at `source` that opens with `has`."""
        facts, ours = self._view.facts, self._view.history
        assert facts is not None
        found = obstacle(facts, ours, has, source)
        if found is not None:
            self._listener.slave_refused(found, source)
            return refused(found.sentence)
        acknowledged = self._remembered.by(has.identity, facts.term)
        keeps = served(facts, self.log_address, ours, has, self._view.view, acknowledged)
        if keeps.forgot:
            log.warning("a slave has less than it acknowledged", extra={"slave": source})
        return keeps

    def _heard(self, peer: Peer) -> None:
        if peer not in self.slaves.peers():
            log.info("slave follows", extra={"slave": peer.address, "from": peer.offset})
            self.slaves.joined(peer)
            self.demand.begin()
            self._end_older(peer)
        facts = self._view.facts
        if peer.has is not None and facts is not None:
            self._remembered.heard(peer.has.identity, facts.term, peer.offset)
        self._acknowledged.set()

    def _end_older(self, peer: Peer) -> None:
        """A slave that connects again has left its older connections, noticed or not."""
        older = self.slaves.older(peer)
        for task, each in self._tasks.items():
            if each in older:
                task.cancel()

    # --- reports to the log ---

    async def _report(self) -> None:
        loop = asyncio.get_running_loop()
        measured = loop.time()
        reported: tuple[object, ...] = ()
        reported_at = measured
        while True:
            self._acknowledged.clear()
            facts = self._view.facts
            now = loop.time()
            if now - measured >= REPORT_S:
                self.slaves.measure(now - measured)
                self._observe()
                measured = now
            if facts is not None and facts.role is not Role.SLAVE:
                reports = self.slaves.reports(self._now_ms())
                report = (facts.generation, facts.role, *reports)
                try:
                    if report != reported or now - reported_at >= MAX_REPORT_INTERVAL_S:
                        await self._own.report(facts.generation, reports)
                        reported, reported_at = report, now
                except StrataError as error:
                    log.debug("the log refused a report", extra={"error": str(error)})
            if facts is not None and facts.role is Role.SYNC_MASTER:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(REPORT_S):
                        await self._acknowledged.wait()
            else:
                await asyncio.sleep(REPORT_S)

    def _observe(self) -> None:
        states = self.known_slaves()
        metrics.STANDING_STILL.set(sum(state.stands_still for state in states))
        known = [state for state in states if state.connected]
        metrics.SLAVES.set(len(known))
        metrics.SLAVE_LAG.clear()
        metrics.SLAVE_LAG_SECONDS.clear()
        for state in known:
            metrics.SLAVE_LAG.labels(state.address).set(state.lag_bytes)
            metrics.SLAVE_LAG_SECONDS.labels(state.address).set(state.lag_ms / 1000)

    def known_slaves(self) -> list[SlaveState]:
        """Those that are connected, and those that were."""
        return self.slaves.known(self._now_ms())

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // 1_000_000
