"""What the keeper of a replication service does: asks the others for their status, decides by the
production policy, and does it; some time passes between the three.

Each question carries the sender's own status. A question may miss its answer, and the
next one arrive.
"""

from collections.abc import Callable, Mapping, Sequence

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
from stratamq.formats.broker_role import Role
from stratamq.formats.replication_peers import PeerStatus
from stratamq_torture.brokers.link import Link
from stratamq_torture.brokers.node import Node
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

    def ask(self, node: Node, own: PeerStatus) -> list[Answer]:
        """What the others answer to a broker with that status."""
        return [
            Answer(other.address, self._exchange(node, own, other), "away")
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
        if theirs is not None and own.term > theirs.term:
            other.asked_by[own.instance] = Answer(own.replication_address, own)
            other.curious = True
        return None if self._world.misses() else theirs

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
        if isinstance(decision, Wait):
            if engine.state.held != decision.reason:
                self._hold(node, decision.reason)
        elif isinstance(decision, Serve):
            self._hold(node, "")
        elif isinstance(decision, Promise):
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
        elif isinstance(decision, Join):
            node.set_joined(joined=True)
        elif isinstance(decision, Forgot):
            self._world.met("a directory had forgotten something")
            self._world.note(f"{node.address} has forgotten: {decision.reason}")
            link.break_off()
            node.set_joined(joined=False)
        elif isinstance(decision, Adopt):
            engine.membership.put(decision.members, node.address, node.change())
            link.break_off()
        elif isinstance(decision, Open):
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
        assert engine is not None
        node.changing = True

        def held(error: StrataError | None) -> None:
            node.changing = False
            if not reason and error is None and node.serves:
                self._check(node)

        engine.hold_writes(reason, True, held)
