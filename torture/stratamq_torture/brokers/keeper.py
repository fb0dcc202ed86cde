"""What the keeper of a replication service does: asks the others how they stand, decides by the
production policy, and does it; some time lies between the three.

Whoever asks says how it stands itself. A question may miss its answer, and the next one arrive.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from stratamq_commitlog.messages import Role
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_ha.peer_decisions import (
    Adopt,
    Answer,
    Follow,
    Forgot,
    Join,
    Open,
    Promise,
    Serve,
    Stay,
    Wait,
)
from stratamq_ha.peer_policy import decide

from stratamq.errors import StrataError
from stratamq.formats.replication_peers import PeerStatus
from stratamq_torture.brokers.node import Node

if TYPE_CHECKING:
    from stratamq_torture.brokers.cluster import Cluster

ASKING = "its peers have not been asked yet"


def ask(cluster: "Cluster", node: Node, own: PeerStatus) -> list[Answer]:
    """What the others answer to a broker that stands like that."""
    return [
        Answer(other.address, _exchange(cluster, node, own, other), "away")
        for other in cluster.nodes
        if other is not node
    ]


def _exchange(cluster: "Cluster", node: Node, own: PeerStatus, other: Node) -> PeerStatus | None:
    away = other.number in cluster.paused or not cluster.reach(node, other)
    if away or cluster.misses():
        return None
    theirs = other.peer_status()
    if theirs is not None and own.term > theirs.term:
        other.asked_by[own.instance] = Answer(own.replication_address, own)
        other.curious = True
    return None if cluster.misses() else theirs


def look(cluster: "Cluster", node: Node) -> None:
    """Ask everybody; `act` decides, later."""
    engine, own = node.log, node.peer_status()
    if engine is None or own is None or node.changing or node.promotion is not None:
        return
    if engine.membership.members is None:
        engine.membership.put(cluster.members, node.address, _changing(node))
        return
    if own.is_master and not engine.state.assigned.peers:
        _hold(cluster, node, ASKING)
        return
    node.curious = False
    node.looked = own, ask(cluster, node, own)


def act(cluster: "Cluster", node: Node) -> None:
    """Decide by what was heard."""
    looked, node.looked = node.looked, None
    engine = node.log
    if looked is None or engine is None or node.changing or node.promotion is not None:
        return
    own, answers = looked
    heard, node.asked_by = list(node.asked_by.values()), {}
    link = cluster.links[node.number]
    decision = decide(own, [*answers, *heard], connected=link.connected, longer=node.longer)
    if isinstance(decision, Wait):
        if engine.state.held != decision.reason:
            _hold(cluster, node, decision.reason)
    elif isinstance(decision, Serve):
        _hold(cluster, node, "")
    elif isinstance(decision, Promise):
        cluster.note(f"{node.address} promises term {decision.term}: {decision.reason}")
        link.break_off()
        change = RoleChange(
            Role.SLAVE,
            decision.term,
            decision.address,
            decision.reason,
            candidate=decision.candidate,
        )
        set_role(node, change)
    elif isinstance(decision, Join):
        set_joined(node, joined=True)
    elif isinstance(decision, Forgot):
        cluster.met("a directory had forgotten something")
        cluster.note(f"{node.address} has forgotten: {decision.reason}")
        link.break_off()
        set_joined(node, joined=False)
    elif isinstance(decision, Adopt):
        engine.membership.put(decision.members, node.address, _changing(node))
    elif isinstance(decision, Open):
        set_role(node, RoleChange(engine.role, decision.term, reason="it is the first master"))
    elif isinstance(decision, Follow):
        if own.is_master:
            cluster.step_down(node, decision.term, decision.address)
        else:
            cluster.note(f"{node.address} follows another: {decision.reason}")
            node.override = decision.address
            link.break_off()
    elif isinstance(decision, Stay) and node.joining.has_joined(own, answers, node.safe):
        cluster.met("a new directory counted as a member")
        cluster.note(f"{node.address} counts as a member")
        link.break_off()
        set_joined(node, joined=True)


def set_role(node: Node, change: RoleChange) -> None:
    """`node.changing` until it has happened; `node.refused` says why it has not."""
    assert node.log is not None
    node.log.set_role(change, _changing(node))


def set_joined(node: Node, *, joined: bool) -> None:
    """Whether its directory counts as a member."""
    assert node.log is not None
    node.log.membership.set_joined(joined, _changing(node))


def _changing(node: Node) -> Callable[[StrataError | None], None]:
    """One change of a log's state at a time."""
    node.changing, node.refused = True, ""

    def done(error: StrataError | None) -> None:
        node.changing = False
        node.refused = str(error or "")

    return done


def _hold(cluster: "Cluster", node: Node, reason: str) -> None:
    engine = node.log
    assert engine is not None
    node.changing = True

    def held(error: StrataError | None) -> None:
        node.changing = False
        if not reason and error is None and node.serves:
            cluster.check(node)

    engine.hold_writes(reason, True, held)
