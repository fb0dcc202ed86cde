"""An operator who promotes whatever broker at whatever moment; only in the end, when all are up and
none can be promoted, is the one that has the most forced.

The steps are the keeper's (`stratamq_ha.keeper.RoleKeeper.promote`), with whatever happens next in
between: two promotions may go on side by side, and what was heard may be old.
"""

from collections.abc import Generator, Iterator

from stratamq_commitlog.messages import Role
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_ha.peer_policy import usable
from stratamq_ha.promotion import assess, candidate_term

from stratamq_torture.brokers.keeper import Keeper
from stratamq_torture.brokers.node import Node
from stratamq_torture.brokers.world import World

PATIENCE = 15


def promotion(
    world: World, keeper: Keeper, node: Node, *, force: bool = False
) -> Generator[None, None, int | None]:
    """Goes on each time it is asked to; over when the node is the master of the term that is
    returned, or is not to be one (None)."""
    own = node.peer_status()
    if own is None:
        return None
    answers = keeper.ask(node, own)
    yield
    against = assess(own, answers, node.heard).against
    if against and not force:
        world.note(f"{node.address} is not promoted: {'; '.join(against)}")
        return None
    term = candidate_term(own, answers)
    if own.rejoining:
        node.set_joined(joined=True)
        yield from _done(node)
    keeper.leave(node)
    if node.log is None:
        return None
    reason = f"it is being promoted to term {term}"
    node.set_role(RoleChange(Role.SLAVE, term, reason=reason, candidate=own.member))
    yield from _done(node)
    candidate = node.peer_status()
    if node.refused or candidate is None:
        world.note(f"{node.address} is not promoted: {node.refused}")
        return None
    for _ in range(PATIENCE):
        answers = keeper.ask(node, candidate)
        yield from _pause(world)
        if all(theirs.promised_to == own.member for _, theirs in usable(candidate, answers)):
            break
    own = node.peer_status()
    if own is None:
        return None
    against = assess(own, answers, node.heard, term).against
    if against and not force:
        world.note(f"{node.address} is not promoted after all: {'; '.join(against)}")
        return None
    yield
    if node.log is None:
        return None
    node.set_role(RoleChange(world.settings.role, term, reason="promoted"))
    yield from _done(node)
    if node.refused:
        world.note(f"{node.address} is not promoted: {node.refused}")
        return None
    return term


def _done(node: Node) -> Iterator[None]:
    while node.changing:
        yield


def _pause(world: World) -> Iterator[None]:
    """Until some time is over."""
    before = world.clock.monotonic_ns()
    yield
    while world.clock.monotonic_ns() == before:
        yield
