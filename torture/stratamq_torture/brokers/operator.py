"""An operator who promotes any broker, and removes and admits any member, at any moment; only in
the end, when all are up and none can be promoted, is the one that has the most forced.

The steps are the replication service's (`promotion_steps`, `member_changes`), with whatever happens
next in between: two promotions may run side by side, and what was learned may be old.
"""

from collections.abc import Generator, Iterator

from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_ha.member_changes import (
    check_confirmed,
    check_gone,
    check_removal,
    check_whole,
    lacking,
    unconfirmed,
    with_member,
)
from stratamq_ha.peer_decisions import Answer
from stratamq_ha.promotion_steps import Ask, Asked, Join, Open, Outcome, Promise, promote
from stratamq_ha.slaves import SlaveState

from stratamq.errors import StrataError, UnavailableError
from stratamq.formats.broker_role import Role
from stratamq.formats.members import Members
from stratamq.formats.replication_peers import PeerStatus
from stratamq_torture.brokers.keeper import Keeper
from stratamq_torture.brokers.masters_side import Masters
from stratamq_torture.brokers.node import Node
from stratamq_torture.brokers.world import World

PAUSES = 4
"""A removal waits so long for the members that are left."""


def promotion(
    world: World, keeper: Keeper, node: Node, *, force: bool = False
) -> Generator[None, None, int | None]:
    """Continues each time it is asked to; over when the node is the master of the term that is
    returned, or is not to be one (None)."""
    own = node.peer_status()
    if own is None:
        return None
    steps, asked = promote(force=force), None
    try:
        while True:
            step, asked = steps.send(asked), None
            if isinstance(step, Ask):
                answers = keeper.ask(node, own)
                if step.promises:
                    yield from _pause(world)
                    now = node.peer_status()
                else:
                    yield
                    now = own
                if now is None:
                    return None
                asked = Asked(now, answers, node.master_view)
            elif isinstance(step, Join):
                node.set_joined(joined=True)
                yield from _done(node)
            elif isinstance(step, Promise):
                keeper.leave(node)
                change = RoleChange(
                    Role.SLAVE, step.term, reason=step.reason, candidate=step.candidate
                )
                if not (yield from _changed(world, node, change)):
                    return None
                own = node.peer_status()
                if own is None:
                    return None
            elif isinstance(step, Open):
                yield
                change = RoleChange(world.settings.role, step.term, reason=step.reason)
                if not (yield from _changed(world, node, change)):
                    return None
    except StopIteration as ended:
        outcome: Outcome = ended.value
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


def _asked(keeper: Keeper, node: Node) -> Generator[None, None, tuple[PeerStatus, list[Answer]]]:
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
