"""An operator who promotes whatever broker at whatever moment; only in the end, when all are up and
none can be promoted, is the one that has the most forced.

The steps are the keeper's (`stratamq_ha.keeper.RoleKeeper.promote`), with whatever happens next in
between: two promotions may go on side by side, and what was heard may be old.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stratamq_commitlog.messages import Role
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_ha.peer_policy import usable
from stratamq_ha.promotion import assess, candidate_term

from stratamq_torture.brokers import keeper
from stratamq_torture.brokers.node import Node

if TYPE_CHECKING:
    from stratamq_torture.brokers.cluster import Cluster

PATIENCE = 15


def promotion(cluster: "Cluster", node: Node, *, force: bool = False) -> Iterator[None]:
    """Goes on each time it is asked to; over when the node is a master, or is not to be one."""
    own = node.peer_status()
    if own is None:
        return
    answers = keeper.ask(cluster, node, own)
    yield
    against = assess(own, answers, node.heard).against
    if against and not force:
        cluster.note(f"{node.address} is not promoted: {'; '.join(against)}")
        return
    term = candidate_term(own, answers)
    if own.rejoining:
        keeper.set_joined(node, joined=True)
        yield from _done(node)
    cluster.links[node.number].break_off()
    if node.log is None:
        return
    reason = f"it is being promoted to term {term}"
    keeper.set_role(node, RoleChange(Role.SLAVE, term, reason=reason, candidate=own.member))
    yield from _done(node)
    candidate = node.peer_status()
    if node.refused or candidate is None:
        cluster.note(f"{node.address} is not promoted: {node.refused}")
        return
    for _ in range(PATIENCE):
        answers = keeper.ask(cluster, node, candidate)
        yield from _pause(cluster)
        if all(theirs.promised_to == own.member for _, theirs in usable(candidate, answers)):
            break
    own = node.peer_status()
    if own is None:
        return
    against = assess(own, answers, node.heard, term).against
    if against and not force:
        cluster.note(f"{node.address} is not promoted after all: {'; '.join(against)}")
        return
    yield
    if node.log is None:
        return
    keeper.set_role(node, RoleChange(cluster.settings.role, term, reason="promoted"))
    yield from _done(node)
    if node.refused:
        cluster.note(f"{node.address} is not promoted: {node.refused}")
        return
    cluster.promoted(node, term)


def _done(node: Node) -> Iterator[None]:
    while node.changing:
        yield


def _pause(cluster: "Cluster") -> Iterator[None]:
    """Until some time is over."""
    before = cluster.clock.monotonic_ns()
    yield
    while cluster.clock.monotonic_ns() == before:
        yield
