"""Operations of several steps, which chance alone seldom brings together. Whatever can happen
happens in between."""

from functools import partial

from stratamq_torture.brokers.cluster import Cluster
from stratamq_torture.brokers.node import Node

STEPS = 60
LONGEST_STEPS = 2_000


def readmit(cluster: Cluster, master: Node | None) -> str:
    """A member is removed while it is down; its master, which may have been replaced meanwhile by
    one that it does not reach, takes it in again."""
    members = cluster.members_of(master) if master is not None else []
    others = [one for one in members if one is not master]
    if master is None or len(others) < max(2, cluster.least_required() + 1):
        return "no master, or not so many members"
    gone, other = cluster.chance.sample(others, 2)
    cluster.kill(gone)
    cluster.remove(master, gone.address)
    _until_over(cluster, master)
    if cluster.chance.random() < 0.8:
        cluster.isolate(other)
    cluster.promote(other)
    _until_over(cluster, other)
    cluster.start(gone)
    cluster.admit(master, gone.address)
    _until_over(cluster, master)
    for _ in range(3):
        _send(cluster, master)
    return f"{gone.address} at {master.address}, beside {other.address}"


def relieve(cluster: Cluster, master: Node | None) -> str:
    """The agent of a master that acknowledges nothing ends its lead, and another member is promoted
    in its place, which may lack something that others have. A lead that ended in vain is renewed,
    at once or when all else is over."""
    others = [one for one in cluster.nodes if one.log is not None and one is not master]
    if master is None or not others:
        return "no master, or no other member can take over"
    other = cluster.chance.choice(others)
    if cluster.chance.random() < 0.5:
        between = frozenset((master.number, other.number))
        cluster.apart.add(between)
        _send(cluster, master)
        cluster.apart.discard(between)
        for third in [one for one in others if one is not other]:
            cluster.isolate(third)
    if not master.serves:
        return f"{master.address} is a master no more"
    master.end_lead()
    cluster.met("a lead was ended for another member")
    said = cluster.promote(other, succeeds=master.address)
    _until_over(cluster, other)
    if master.lead_ended and cluster.chance.random() < 0.7:
        master.lead_again()
        cluster.met("a lead that had ended was renewed")
    return f"{master.address} by {said}"


def _send(cluster: Cluster, master: Node) -> None:
    cluster.act(master, partial(cluster.send, master))
    cluster.run(STEPS)


def _until_over(cluster: Cluster, node: Node) -> None:
    """The operator's command there is carried out, and others may have heard of it."""
    for _ in range(LONGEST_STEPS):
        if node.promotion is None:
            break
        cluster.step()
    cluster.run(STEPS)
