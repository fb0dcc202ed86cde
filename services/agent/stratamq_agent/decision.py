"""What an agent does, from the election's value and how the members stand. Pure.

See services/agent/README.md for the table. Nothing here is needed for the safety of SYNC_MASTER: a
promotion is refused by the members when another has more, or too few promise.
"""

from dataclasses import dataclass

from stratamq.formats.election_state import ElectionState, Unable

ASKED_TTLS = 4
"""After so many a switchover that could not be done is dropped."""
SETTLED_TTLS = 10
"""After so many ttl of acknowledging a leader's moves are forgotten; for so long a member that was
refused a promotion offers to take over from no leader."""
MAX_DOUBLINGS = 6
"""Earlier moves double the time after which a leader that acknowledges nothing is replaced."""


@dataclass(frozen=True, slots=True)
class OtherMember:
    """Another member, as it answered last. `reach`: generation and end of its log. `held`: a master
    that takes no messages."""

    member: str
    answers: bool
    is_master: bool
    term: int
    reach: tuple[int, int]
    counts: bool = True
    held: bool = False


@dataclass(frozen=True, slots=True)
class Own:
    """This agent's broker. `held`: why it takes no messages as a master, "": it does. `counts`: its
    directory is a member's; `is_empty`: its log. `slaves`: members that follow it, and count.
    `leased`: a master that waits for slaves, or whose lease goes on.

    `unable`: why it could acknowledge nothing for `unable_ns`; of a slave, why its disk takes
    nothing. `confirmed`: up to where its log is acknowledged. `quorum`: so many members promise a
    term; `waits_for`: so many slaves acknowledge before it answers. `ended`: why its agent has
    ended its lead; `told`: its replication service knows."""

    member: str
    is_master: bool
    held: str
    term: int
    reach: tuple[int, int]
    counts: bool
    is_empty: bool
    peers: tuple[OtherMember, ...] = ()
    slaves: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()
    """NAME=HOST:PORT of each."""
    leased: bool = False
    unable: str = ""
    unable_ns: int = 0
    confirmed: int = 0
    quorum: int = 0
    waits_for: int = 0
    ended: str = ""
    told: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """The value, and for how long it has not changed as far as this agent knows. `refused_ns`: how
    long ago the broker refused to be promoted; None: it did not. `asked_ns`: how long ago this
    agent saw the value's switchover first. `watched_ns`: for how long the value was followed
    without a step back; `step_back`: the last one, less than a ttl ago; `led_before`: who led
    before it, while the value is as it was put back."""

    state: ElectionState | None
    unchanged_ns: int
    refused_ns: int | None = None
    asked_ns: int = 0
    watched_ns: int = 0
    step_back: str = ""
    led_before: str = ""


@dataclass(frozen=True, slots=True)
class Idle:
    """Change nothing. `reason`: for people."""

    reason: str


@dataclass(frozen=True, slots=True)
class Renew:
    """Write the value with this member as its leader, and grant the log a lease. An offer is
    declined. `drops_switchover`: the one that was asked for cannot be done."""

    reason: str = "this member leads"
    drops_switchover: bool = False


@dataclass(frozen=True, slots=True)
class Stand:
    """Write this member as the leader, then promote its broker."""

    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Write that no member leads."""

    reason: str


@dataclass(frozen=True, slots=True)
class HandOver:
    """Demote the broker, then write `to` as the leader."""

    to: str
    reason: str


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Write the offer to take over from a leader that acknowledges nothing."""

    reason: str


@dataclass(frozen=True, slots=True)
class EndLead:
    """Let the broker answer nothing from now on, in memory, and look again at once."""

    reason: str


@dataclass(frozen=True, slots=True)
class Name:
    """Write `to` as the leader: this one has ended its lead."""

    to: str
    reason: str


Decision = Idle | Renew | Stand | GiveUp | HandOver | TakeOver | EndLead | Name


def decide(own: Own | None, seen: Seen, ttl_ns: int) -> Decision:
    """`own` None: the broker does not answer."""
    if own is None:
        return Idle("its broker does not answer")
    if not own.member:
        return Idle("its broker is no member: ha.members is not set")
    state = seen.state or ElectionState()
    waits = _waits(own, seen, ttl_ns)
    if seen.state is None and (own.is_master or not seen.step_back):
        return _without_value(own, waits)
    if is_foreign(state, own):
        return Idle(
            "the election is of another cluster with the same broker name: give agent.store a "
            "prefix of its own (etcd://…/PREFIX)"
        )
    if state.leader == own.member:
        return _as_leader(own, state, seen, waits, ttl_ns)
    silent = seen.unchanged_ns >= ttl_ns
    put_back = own.is_master and seen.led_before == own.member
    if state.leader and not silent and not put_back:
        return _beside_leader(own, state, seen, waits, ttl_ns)
    why = f"{state.leader} has not renewed" if state.leader else "no member leads"
    if own.is_master:
        return _as_master(own, "the election store went back" if put_back else why, waits)
    if state.paused:
        return Idle(f"{why}, and failover is paused")
    serving = next((one for one in own.peers if _serves(one)), None)
    if serving is not None:
        return Idle(f"{why}, and {serving.member} is a master that takes messages")
    if seen.refused_ns is not None and seen.refused_ns < ttl_ns:
        return Idle(f"{why}, and its broker was refused a promotion a moment ago")
    obstacle = waits or obstacle_to_stand(own)
    if obstacle:
        return Idle(f"{why}, and {obstacle}")
    return Stand(why)


def _waits(own: Own, seen: Seen, ttl_ns: int) -> str:
    """Why another master may have a lease that the value does not show; "": none has."""
    if own.leased or seen.watched_ns >= ttl_ns:
        return ""
    if seen.step_back:
        return f"the election store went back ({seen.step_back}): a ttl is waited for"
    answering = {one.member for one in own.peers if one.answers}
    if len(answering) >= len(own.members) - 1 and not any(map(_serves, own.peers)):
        return ""
    return "this agent has not followed the election for a whole ttl yet"


def _without_value(own: Own, waits: str) -> Decision:
    if own.is_master:
        return _as_master(own, "no member has led yet", waits)
    return Idle("no member has led yet: the configured master is the first")


def _as_leader(own: Own, state: ElectionState, seen: Seen, waits: str, ttl_ns: int) -> Decision:
    if own.is_master:
        return Idle(waits) if waits else _as_leading_master(own, state, seen, ttl_ns)
    # One of the term in the value is the leader before this one, as it was a moment ago.
    master = _other_master(own, state.term + 1)
    if master is not None:
        return GiveUp(f"{master.member} is the master of term {master.term}")
    if state.paused:
        return Idle("its broker is a slave, and failover is paused")
    if waits:
        return Idle(f"this member is to lead, and {waits}")
    obstacle = obstacle_to_stand(own)
    if obstacle:
        return GiveUp(obstacle)
    return Stand("this member leads, and its broker is a slave")


def _as_leading_master(own: Own, state: ElectionState, seen: Seen, ttl_ns: int) -> Decision:
    if own.held:
        return Idle(f"its broker takes no messages: {own.held}")
    if state.offer is not None or own.ended:
        return _relieved(own, state, ttl_ns)
    to = state.switchover
    if not to or state.paused:
        return Renew()
    if to == own.member:
        return Renew("the switchover is done", drops_switchover=True)
    if own.is_empty:
        return Renew("no switchover: no slave can take over an empty log", drops_switchover=True)
    if seen.asked_ns >= ASKED_TTLS * ttl_ns:
        return Renew(f"the switchover to {to} took too long", drops_switchover=True)
    if to not in own.slaves:
        return Renew(f"the switchover waits: {to} does not follow, or is new")
    return HandOver(to, "a switchover was asked for")


def required_ns(moves: int, ttl_ns: int) -> int:
    """For so long a leader acknowledges nothing before another member takes over."""
    return ttl_ns << min(moves, MAX_DOUBLINGS)


def _relieved(own: Own, state: ElectionState, ttl_ns: int) -> Decision:
    """A leader to which another offers to take over, or that has ended its lead for one."""
    offer = state.offer
    if offer is None or state.paused:
        return Renew("this member leads again: no other takes over")
    if not own.ended:
        if own.unable_ns < required_ns(state.moves, ttl_ns):
            return Renew(f"{offer.member} offered to take over, and this member acknowledges again")
        return EndLead(
            f"this member could acknowledge nothing ({own.unable}): {offer.member} leads"
        )
    # From here on its log confirms nothing more.
    if offer.generation != own.reach[0] or offer.end < own.confirmed:
        return Renew(f"{offer.member} has less than what was acknowledged here")
    if not own.told:
        return EndLead(own.ended)
    return Name(offer.member, own.ended)


def _beside_leader(own: Own, state: ElectionState, seen: Seen, waits: str, ttl_ns: int) -> Decision:
    unable = state.unable
    if unable is None or own.is_master:
        return Idle(f"{state.leader} leads")
    why = f"{state.leader} leads, and acknowledges nothing"
    if state.offer is not None:
        return Idle(f"{why}: {state.offer.member} offered to take over")
    if state.paused:
        return Idle(f"{why}, and failover is paused")
    if unable.ms * 1_000_000 < required_ns(state.moves, ttl_ns) or 2 * seen.unchanged_ns > ttl_ns:
        return Idle(why)
    obstacle = waits or _obstacle_to_offer(own, state.leader, unable, seen, ttl_ns)
    return Idle(f"{why}, and {obstacle}") if obstacle else TakeOver(why)


def _obstacle_to_offer(own: Own, leader: str, unable: Unable, seen: Seen, ttl_ns: int) -> str:
    """Why this member would be no better than the leader, or would lack messages; "": it may take
    over."""
    if seen.refused_ns is not None and seen.refused_ns < SETTLED_TTLS * ttl_ns:
        return "this broker was refused a promotion a while ago"
    if own.unable:
        return f"this broker is no better: {own.unable}"
    if own.reach[0] != unable.generation or own.reach[1] < unable.confirmed:
        return f"this broker has less than what {leader} has acknowledged"
    others = {one.member for one in own.peers if one.answers and one.counts} - {leader}
    needed = max(own.quorum - 1, unable.slaves)
    if len(others) < needed:
        return f"{len(others)} of the {needed} other members that it needs answer"
    return obstacle_to_stand(own)


def stays(own: Own) -> str:
    """Why a leader that acknowledges nothing still leads, as far as it knows."""
    silent = ", ".join(one.member for one in own.peers if not one.answers)
    return "no other member can take over, or has offered to" + (
        f" ({silent}: no answer)" if silent else ""
    )


def _as_master(own: Own, why: str, waits: str) -> Decision:
    if own.held or waits:
        return Idle(f"{why}, and {waits or f'its broker takes no messages: {own.held}'}")
    master = _other_master(own, own.term + 1)
    if master is not None:
        return Idle(f"{why}; {master.member} is the master of term {master.term}, above {own.term}")
    return Renew(f"{why}, and its broker is the master")


def _other_master(own: Own, term: int) -> OtherMember | None:
    """A master among the others, of `term` or a higher one."""
    return next(
        (one for one in own.peers if one.answers and one.is_master and one.term >= term), None
    )


def is_foreign(state: ElectionState, own: Own) -> bool:
    """The value is of other members: nothing of it is touched."""
    return bool(state.members and own.members) and state.members.isdisjoint(own.members)


def _serves(peer: OtherMember) -> bool:
    return peer.answers and peer.is_master and not peer.held


def obstacle_to_stand(own: Own) -> str:
    """Why this member should not lead; "": it may."""
    if not own.counts:
        return "its directory is new in the cluster"
    if own.is_empty:
        return "its log is empty"
    for peer in own.peers:
        if peer.answers and peer.counts and not peer.is_master and peer.reach > own.reach:
            return f"{peer.member} has more"
    return ""
