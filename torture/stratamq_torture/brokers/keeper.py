"""What the keeper of a replication service does (asks the others for their status, decides by the
production policy, and does it; some time passes between the three), and an operator who promotes
any broker, and removes and admits any member, at any moment.

Each question carries the sender's own status. A question may miss its answer, and the next one
arrive. The operator's steps are the service's (`promotion_steps`, `member_changes`), with whatever
happens next in between: two promotions may run side by side, and what was learned may be old.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace

from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_ha import promotion_steps as steps_of
from stratamq_ha.member_changes import (
    check_confirmed,
    check_gone,
    check_removal,
    check_whole,
    lacking,
    unconfirmed,
    with_member,
)
from stratamq_ha.peer_decisions import (
    Adopt,
    Follow,
    Forgot,
    FoundCluster,
    OpenTerm,
    PeerAnswer,
    PromiseTerm,
    RefuseMessages,
    Serve,
    Stay,
)
from stratamq_ha.peer_policy import decide
from stratamq_ha.slaves import SlaveState

from stratamq.errors import StrataError, UnavailableError
from stratamq.formats.log_state import Role
from stratamq.formats.members import Members
from stratamq.formats.replication_peers import PeerStatus
from stratamq_torture.brokers.link import Link
from stratamq_torture.brokers.node import Masters, Node
from stratamq_torture.brokers.world import World

ASKING = "its peers have not been asked yet"


class Keeper:
    """The keepers of all brokers. `check` is given a master that begins to take messages."""

    def __init__(
        self,
        world: World,
        nodes: Sequence[Node],
        links: Mapping[int, Link],
        check: Callable[[Node], None],
    ) -> None:
        self._world = world
        self._nodes = nodes
        self._links = links
        self._check = check

    def leave(self, node: Node) -> None:
        """The slave leaves its master."""
        self._links[node.number].break_off()

    def ask(self, node: Node, own: PeerStatus) -> list[PeerAnswer]:
        """What the others answer to a broker with that status."""
        return [
            PeerAnswer(other.address, self._exchange(node, own, other), "away")
            for other in self._nodes
            if other is not node
        ]

    def _exchange(self, node: Node, own: PeerStatus, other: Node) -> PeerStatus | None:
        away = other.number in self._world.paused or not self._world.reach(
            node.number, other.number
        )
        if away or self._world.misses():
            return None
        theirs = other.peer_status()
        if theirs is not None:
            other.slaves.heard(own)
        if theirs is not None and own.term > theirs.term:
            other.asked_by[own.instance] = PeerAnswer(own.replication_address, own)
            other.curious = True
        if self._world.misses() or theirs is None:
            return None
        node.slaves.heard(theirs)
        return replace(theirs, held=True) if other.lead_ended else theirs

    def adopt(self, node: Node, members: Members) -> None:
        """The slave connects again, as what it is by the new list."""
        node.log.membership.put(members, node.address, node.change())
        self.leave(node)

    def look(self, node: Node) -> None:
        """Ask everybody; `act` decides, later."""
        engine, own = node.log, node.peer_status()
        if engine is None or own is None or node.changing or node.promotion is not None:
            return
        if engine.membership.members is None:
            engine.membership.put(self._world.members, node.address, node.change())
            return
        if own.is_master and not engine.state.assigned.peers:
            self._hold(node, ASKING)
            return
        node.curious = False
        node.looked = own, self.ask(node, own)

    def act(self, node: Node) -> None:
        """Decide by the answers received."""
        looked, node.looked = node.looked, None
        engine = node.log
        if looked is None or engine is None or node.changing or node.promotion is not None:
            return
        own, answers = looked
        asking, node.asked_by = list(node.asked_by.values()), {}
        link = self._links[node.number]
        decision = decide(own, [*answers, *asking], connected=link.connected, longer=node.longer)
        node.problem = decision.problem if isinstance(decision, Stay) else ""
        if isinstance(decision, RefuseMessages):
            if engine.state.held != decision.reason:
                self._hold(node, decision.reason)
        elif isinstance(decision, Serve):
            self._hold(node, "")
        elif isinstance(decision, PromiseTerm):
            self._world.note(f"{node.address} promises term {decision.term}: {decision.reason}")
            link.break_off()
            change = RoleChange(
                Role.SLAVE,
                decision.term,
                decision.address,
                decision.reason,
                candidate=decision.candidate,
            )
            node.set_role(change)
        elif isinstance(decision, FoundCluster):
            node.set_joined(joined=True)
        elif isinstance(decision, Forgot):
            self._world.met("a directory had forgotten something")
            self._world.note(f"{node.address} has forgotten: {decision.reason}")
            link.break_off()
            node.set_joined(joined=False)
        elif isinstance(decision, Adopt):
            self.adopt(node, decision.members)
        elif isinstance(decision, OpenTerm):
            node.set_role(RoleChange(engine.role, decision.term, reason="it is the first master"))
        elif isinstance(decision, Follow):
            if own.is_master:
                node.step_down(decision.term, decision.address)
            else:
                self._world.note(f"{node.address} follows another: {decision.reason}")
                node.override = decision.address
                link.break_off()
        elif isinstance(decision, Stay) and node.joining.has_joined(own, answers, node.safe):
            self._world.met("a new directory counted as a member")
            self._world.note(f"{node.address} counts as a member")
            link.break_off()
            node.set_joined(joined=True)

    def _hold(self, node: Node, reason: str) -> None:
        engine = node.log
        node.changing = True

        def held(error: StrataError | None) -> None:
            node.changing = False
            if not reason and error is None and node.serves:
                self._check(node)

        engine.hold_writes(reason, True, held)


PAUSES = 4
"""A removal waits so long for the members that are left."""


def promotion(
    world: World, keeper: Keeper, node: Node, *, force: bool = False, succeeds: str = ""
) -> Generator[None, None, int | None]:
    """Continues each time it is asked to; over when the node is the master of the term that is
    returned, or is not to be one (None)."""
    own = node.peer_status()
    if own is None:
        return None
    steps, asked = steps_of.promote(force=force, succeeds=succeeds), None
    try:
        while True:
            step, asked = steps.send(asked), None
            if isinstance(step, steps_of.Ask):
                answers = keeper.ask(node, own)
                if step.promises:
                    yield from _pause(world)
                    now = node.peer_status()
                else:
                    yield
                    now = own
                if now is None:
                    return None
                asked = steps_of.Asked(now, answers, node.master_view)
            elif isinstance(step, steps_of.Join):
                node.set_joined(joined=True)
                yield from _done(node)
            elif isinstance(step, steps_of.Promise):
                keeper.leave(node)
                change = RoleChange(
                    Role.SLAVE, step.term, reason=step.reason, candidate=step.candidate
                )
                if not (yield from _changed(world, node, change)):
                    return None
                own = node.peer_status()
                if own is None:
                    return None
            elif isinstance(step, steps_of.Open):
                yield
                change = RoleChange(world.settings.role, step.term, reason=step.reason)
                if not (yield from _changed(world, node, change)):
                    return None
    except StopIteration as ended:
        outcome: steps_of.PromotionOutcome = ended.value
    if outcome.refused:
        late = " after all" if outcome.promised else ""
        reasons = "; ".join(outcome.assessment.against)
        world.note(f"{node.address} is not promoted{late}: {reasons}")
        return None
    return outcome.term


def removal(
    world: World, keeper: Keeper, masters: Masters, node: Node, name: str
) -> Generator[None, None, None]:
    """Continues each time it is asked to; over when the member is removed, or is not to be."""

    def slaves() -> list[SlaveState]:
        return masters.serving(node).slaves.known(world.now_ms)

    try:
        own, answers = yield from _asked(keeper, node)
        members = check_removal(own, name)
        check_gone(members, name, answers, slaves())
        for _ in range(PAUSES):
            if not lacking(own, name, slaves()):
                break
            yield from _pause(world)
            _require_up(node)
        check_whole(name, lacking(own, name, slaves()))
        if members.counts(name):
            yield from _put_members(world, node, members.leaving(name), f"{name} is leaving")
        missing = [name]
        for _ in range(PAUSES):
            own, answers = yield from _asked(keeper, node)
            missing = unconfirmed(own, name, answers) or lacking(own, name, slaves())
            if not missing:
                break
            yield from _pause(world)
        members = check_confirmed(own, name, missing)
        yield from _put_members(world, node, members.without(name), f"{name} is removed")
    except StrataError as error:
        world.note(f"{name} is not removed at {node.address}: {error}")


def admission(world: World, keeper: Keeper, node: Node, name: str) -> Generator[None, None, None]:
    """Continues each time it is asked to; over when the member is admitted, or is not to be."""
    try:
        own, answers = yield from _asked(keeper, node)
        changed = with_member(own, name, answers, world.members, world.settings.required)
        yield from _put_members(world, node, changed, f"{name} is admitted")
    except StrataError as error:
        world.note(f"{name} is not admitted at {node.address}: {error}")


def _asked(
    keeper: Keeper, node: Node
) -> Generator[None, None, tuple[PeerStatus, list[PeerAnswer]]]:
    own = node.peer_status()
    if own is None:
        raise UnavailableError("it is down")
    answers = keeper.ask(node, own)
    yield
    _require_up(node)
    return own, answers


def _require_up(node: Node) -> None:
    if node.log is None:
        raise UnavailableError("it is down")


def _put_members(
    world: World, node: Node, changed: Members, what: str
) -> Generator[None, None, None]:
    yield
    if node.log is None or node.changing:
        raise UnavailableError("it is down, or its role changes")
    node.log.membership.put(changed, node.address, node.change())
    yield from _done(node)
    if node.refused:
        raise UnavailableError(node.refused)
    world.note(f"{what} at {node.address}: version {changed.version}")
    world.met(f"a member {what.split(' ', 1)[1]}")


def _changed(world: World, node: Node, change: RoleChange) -> Generator[None, None, bool]:
    """Whether its log has taken the role."""
    if node.log is None:
        return False
    node.set_role(change)
    yield from _done(node)
    if node.refused:
        world.note(f"{node.address} is not promoted: {node.refused}")
    return not node.refused


def _done(node: Node) -> Iterator[None]:
    while node.changing:
        yield


def _pause(world: World) -> Iterator[None]:
    """Until some time is over."""
    before = world.clock.monotonic_ns()
    yield
    while world.clock.monotonic_ns() == before:
        yield
