"""What a master remembers of its slaves: who they are, how far, how fast, why they went."""

from collections.abc import Iterable
from dataclasses import dataclass

from stratamq.formats.log_state import ReplicaState
from stratamq.formats.members import Members
from stratamq.formats.replication_opening import SlaveOpening
from stratamq.formats.replication_peers import PeerStatus
from stratamq_ha.own_log import OwnLogView
from stratamq_ha.peer import Peer

MAX_GONE = 64
"""Disconnected slaves that are remembered, newest first."""
MAX_ACKNOWLEDGED = 64
"""Directories of which it is remembered, those that acknowledged last."""
FIRST_VERSION = 1
"""The first version of a list of members: a directory that has joined has joined as of it."""
_REJOINING = (
    "rejoining: not counted in the quorum until it has the master's log, and enough members have "
    "confirmed the list of members that admitted it"
)
_NO_MEMBERS_YET = "not counted in the quorum until this log has its list of members"
FORGOTTEN_MS = 600_000
"""A slave that disconnected so long ago is left out of reports and of the status."""


class AcknowledgedEnds:
    """How much each directory has acknowledged to this master in its term, by identity. What it
    acknowledged in an earlier one, another master may have cut since."""

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        self._term = -1

    def by(self, identity: int, term: int) -> int:
        """−1: nothing."""
        if term != self._term:
            self._ends, self._term = {}, term
        return self._ends.get(identity, -1)

    def heard(self, identity: int, term: int, offset: int) -> None:
        if offset > self.by(identity, term):
            self._ends.pop(identity, None)
            self._ends[identity] = offset
            if len(self._ends) > MAX_ACKNOWLEDGED:
                self._ends.pop(next(iter(self._ends)))


@dataclass(slots=True)
class SlaveState:
    """One slave, connected or not. Offsets of the log; rates over the last second."""

    address: str
    name: str
    acknowledged: int = -1
    connected: bool = True
    problem: str = ""
    """Why it left; of a connected one why it is not counted in the quorum."""
    left_ms: int = 0
    bytes_per_second: float = 0.0
    measured: int = -1
    lag_bytes: int = 0
    lag_ms: int = 0
    member: str = ""
    counts: bool = False
    """Its acknowledgements count towards PUT_OK."""
    stands_still: bool = False
    """Its log does not take what it is sent: `problem`."""


class Slaves:
    """Connected peers, and those that were. Single-threaded.

    One slave counts once: a member by its name, one of ours without members by its directory's
    identity, RocketMQ's by its host, if that is one of `rocketmq_hosts`.
    """

    def __init__(
        self,
        log: OwnLogView,
        rocketmq_hosts: Iterable[str] = (),
        *,
        members_configured: bool = False,
    ) -> None:
        self._log = log
        self._members_configured = members_configured
        self._rocketmq_hosts = frozenset(rocketmq_hosts)
        self._states: dict[Peer, SlaveState] = {}
        self._gone: list[SlaveState] = []
        self._joined: dict[str, tuple[int, int]] = {}
        """By member: its directory's identity, and the `Member.since` as of which that joined."""

    def heard(self, status: PeerStatus) -> None:
        """A member's peer status: whether its directory joined, and as of which list of members."""
        member = status.members.find(status.member) if status.members is not None else None
        if member is None:
            return
        if not status.rejoining:
            self._joined[member.name] = status.identity, member.since
        elif self._joined.get(member.name, (0, 0))[0] == status.identity:
            del self._joined[member.name]

    def joined(self, peer: Peer) -> None:
        """Its histories agree, or it is RocketMQ's. An older entry of the same slave goes, and one
        from its host that was not served before it named itself as a member."""
        host = _host(peer.address)

        def superseded(old: SlaveState) -> bool:
            if old.member:
                return old.member == peer.member
            never_served = old.acknowledged < 0 and old.name in ("", peer.name)
            same = not peer.member and old.name == peer.name
            return _host(old.address) == host and (never_served or same)

        self._gone = [old for old in self._gone if not superseded(old)]
        self._states[peer] = SlaveState(peer.address, peer.name, member=peer.member)

    def older(self, peer: Peer) -> list[Peer]:
        """Other connections of the same slave: half-open ones, which it has given up."""
        return [one for one in self._states if one is not peer and one.is_same(peer)]

    def left(self, peer: Peer, problem: str, now_ms: int) -> None:
        state = self._states.pop(peer, None)
        if state is None:
            state = SlaveState(peer.address, peer.name, member=peer.member)
            self._gone = [old for old in self._gone if not _is_again(old, state, problem)]
        standstill = self._standstill(peer)
        state.stands_still = bool(standstill)
        state.connected, state.problem, state.left_ms = False, standstill or problem, now_ms
        state.acknowledged = max(state.acknowledged, peer.offset)
        state.bytes_per_second = 0.0
        self._gone.append(state)
        if len(self._gone) > MAX_GONE:
            strangers = (old for old in self._gone if not (old.member or old.acknowledged >= 0))
            self._gone.remove(next(strangers, self._gone[0]))

    def measure(self, elapsed_s: float) -> None:
        """Once a second: how fast each is."""
        for peer, state in self._states.items():
            if state.measured >= 0 and elapsed_s > 0:
                state.bytes_per_second = (peer.offset - state.measured) / elapsed_s
            state.measured = max(0, peer.offset)

    def known(self, now_ms: int) -> list[SlaveState]:
        """All of them as they are now, connected ones first."""
        self._gone = [old for old in self._gone if now_ms - old.left_ms < FORGOTTEN_MS]
        counted: set[object] = set()
        members = self._log.facts.members if self._log.facts is not None else None
        # The newest connection first: it is the one that counts.
        for peer, state in reversed(self._states.items()):
            state.acknowledged = peer.offset
            state.problem = self._standstill(peer)
            state.stands_still = bool(state.problem)
            key = None
            if not state.stands_still:
                key, state.problem = self._counts_as(peer, members)
            state.counts = key is not None and key not in counted
            counted.add(key)
        states = [*self._states.values(), *self._gone]
        shippable = self._log.view.shippable
        for state in states:
            state.lag_bytes = max(0, shippable - max(0, state.acknowledged))
            state.lag_ms = self._log.lag_ms(state.acknowledged)
        return states

    def peers(self) -> Iterable[Peer]:
        return list(self._states)

    def reports(self, now_ms: int) -> list[ReplicaState]:
        """For the log."""
        return [
            ReplicaState(
                state.address,
                state.acknowledged,
                state.connected,
                state.lag_bytes,
                state.lag_ms,
                state.counts and state.connected,
                state.member,
            )
            for state in self.known(now_ms)
        ]

    def _standstill(self, peer: Peer) -> str:
        """Why the slave did not take what it was sent, until it has taken it."""
        has = peer.has
        if has is None or not has.problem or peer.offset > has.end:
            return ""
        return has.problem if self._log.view.shippable > peer.offset else ""

    def _counts_as(self, peer: Peer, members: Members | None) -> tuple[object | None, str]:
        """A key that two slaves share only if they count once, and ""; or None, and why the slave
        does not count."""
        has, host = peer.has, _host(peer.address)
        if members is not None:
            problem = self._not_counted(has, members)
            return (None, problem) if problem else (peer.member, "")
        if self._members_configured:
            # The log has no list yet at its first start. A slave that counted for this moment would
            # leave a moment later, when it has joined and connects again as a member.
            return None, _NO_MEMBERS_YET
        if has is not None:
            return has.identity, ""
        return (host if host in self._rocketmq_hosts else None), ""

    def _not_counted(self, has: SlaveOpening | None, members: Members) -> str:
        """Why a slave is not counted in the quorum; "" if it is.

        This master's list decides: a directory that was away reports by its own, older one.
        Example:
        1. c joins as of version 1, and is removed by version 2 while it is away.
        2. Version 3 admits it again: it must join again, because it may have forgotten a promise.
        3. c connects, still with version 1, by which it has joined. It counts only once it has
           reported that it joined as of version 3.
        """
        member = members.find(has.member) if has is not None else None
        if has is None or member is None or not members.counts(member.name):
            return "not counted in the quorum: it is no active member, or is being removed"
        if has.rejoining:
            return _REJOINING
        if member.since > FIRST_VERSION and self._joined.get(member.name) != (
            has.identity,
            member.since,
        ):
            return _REJOINING
        return ""


def _is_again(old: SlaveState, new: SlaveState, problem: str) -> bool:
    """Whether both are connections of the same host, with the same problem, that never became a
    slave's: a client that connects a thousand times is one line of the status."""
    same = (old.name, old.member, old.problem) == (new.name, new.member, problem)
    return same and old.acknowledged < 0 and _host(old.address) == _host(new.address)


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")
