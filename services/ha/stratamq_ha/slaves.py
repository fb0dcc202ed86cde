"""What a master remembers of its slaves: who they are, how far, how fast, why they went."""

from collections.abc import Iterable
from dataclasses import dataclass

from stratamq.client.replication import ReplicaReport
from stratamq_ha.own_log import OwnLogView
from stratamq_ha.peer import Peer

FORGOTTEN_MS = 600_000
"""A slave that went away so long ago is no longer told of."""


@dataclass(slots=True)
class SlaveState:
    """One slave, connected or not. Offsets of the log; rates over the last second."""

    address: str
    name: str
    acknowledged: int = -1
    connected: bool = True
    problem: str = ""
    left_ms: int = 0
    bytes_per_second: float = 0.0
    measured: int = -1
    lag_bytes: int = 0
    lag_ms: int = 0


class Slaves:
    """Connected peers, and those that were. Single-threaded."""

    def __init__(self, log: OwnLogView) -> None:
        self._log = log
        self._states: dict[Peer, SlaveState] = {}
        self._gone: list[SlaveState] = []

    def joined(self, peer: Peer) -> None:
        """Its histories agree, or it is RocketMQ's. An older entry of the same slave goes, and one
        from its host that never said who it was."""
        state = SlaveState(peer.address, peer.name)
        host = peer.address.rpartition(":")[0]
        self._gone = [
            old
            for old in self._gone
            if old.address.rpartition(":")[0] != host
            or not (old.name == peer.name or (not old.name and old.acknowledged < 0))
        ]
        self._states[peer] = state

    def left(self, peer: Peer, problem: str, now_ms: int) -> None:
        state = self._states.pop(peer, None) or SlaveState(peer.address, peer.name)
        state.connected, state.problem, state.left_ms = False, problem, now_ms
        state.acknowledged = max(state.acknowledged, peer.offset)
        state.bytes_per_second = 0.0
        self._gone.append(state)

    def measure(self, elapsed_s: float) -> None:
        """Once a second: how fast each is."""
        for peer, state in self._states.items():
            if state.measured >= 0 and elapsed_s > 0:
                state.bytes_per_second = (peer.offset - state.measured) / elapsed_s
            state.measured = max(0, peer.offset)

    def known(self, now_ms: int) -> list[SlaveState]:
        """All of them as they are now, connected ones first."""
        self._gone = [old for old in self._gone if now_ms - old.left_ms < FORGOTTEN_MS]
        for peer, state in self._states.items():
            state.acknowledged = peer.offset
        states = [*self._states.values(), *self._gone]
        shippable = self._log.view.shippable
        for state in states:
            state.lag_bytes = max(0, shippable - max(0, state.acknowledged))
            state.lag_ms = self._log.lag_ms(state.acknowledged)
        return states

    def peers(self) -> Iterable[Peer]:
        return list(self._states)

    def reports(self, now_ms: int) -> list[ReplicaReport]:
        """For the log."""
        return [
            ReplicaReport(
                state.address, state.acknowledged, state.connected, state.lag_bytes, state.lag_ms
            )
            for state in self.known(now_ms)
        ]
