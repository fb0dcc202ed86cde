"""An operator who promotes whatever broker at whatever moment; only in the end, when all are up and
none can be promoted, is the one that has the most forced.

The steps are the replication service's (`stratamq_ha.promotion_steps`), with whatever happens next
in between: two promotions may run side by side, and what was learned may be old.
"""

from collections.abc import Generator, Iterator

from stratamq_commitlog.messages import Role
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_ha.promotion_steps import Ask, Asked, Join, Open, Outcome, Promise, promote

from stratamq_torture.brokers.keeper import Keeper
from stratamq_torture.brokers.node import Node
from stratamq_torture.brokers.world import World


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
