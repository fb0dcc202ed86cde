"""What the broker is: the configured role is the first one, a promotion or demotion the next.

    stratamq/role.json   {"role", "chosen_by", "term", "candidate", "master", "reason", "peers"}

    chosen by             at the next start the role is
    (no file)             the configured one
    CONFIGURATION         the configured one; a slave that it makes a master is promoted, unless it
                          is a member of a cluster: members are promoted by an operator alone
    OPERATOR              this one, whatever is configured
    HIGHER_TERM           this one: another broker was promoted, and this one heard of it

Of a master, whether it waits for its slaves is what the setting requires, if it is a master's. The
file is the point at which a change of role has happened: what follows it, a start does as well.
"""

import enum
from dataclasses import dataclass, replace

from stratamq.files.metadata import LoadOutcome, MetadataFile
from stratamq.files.port import Files
from stratamq.formats.log_state import Role
from stratamq.formats.store_paths import ROLE_PATH

PEERS_NOT_ASKED = (
    "this master is a member of a cluster (ha.members), and its replication service has not asked "
    "the others yet whether one of them was promoted"
)
MEMBERS_ARE_PROMOTED = (
    "a member of a cluster becomes the master by `stratamq replica promote` alone"
)
REMOVED = "this broker was removed from its cluster"
RESTORED = "its directory was restored from a backup (`stratamq replica restored`)"
RECOVERING_TAIL = (
    "this master was not stopped cleanly, and may have lost what it had not flushed: it takes back "
    "what its slaves hold before it takes messages"
)


class ChosenBy(enum.Enum):
    """Who gave the broker its role."""

    CONFIGURATION = "CONFIGURATION"
    OPERATOR = "OPERATOR"
    HIGHER_TERM = "HIGHER_TERM"


@dataclass(frozen=True, slots=True)
class RoleState:
    """`term`: the highest that was promised or heard of; a master's generations have no lower one.
    `candidate`: the member to which `term` is promised, "" if it was only heard of.
    `master`: where a slave's master takes slaves, "" if only the replication service's setting
    names it. `peers`: a master asks others before it takes messages."""

    role: Role
    chosen_by: ChosenBy = ChosenBy.CONFIGURATION
    term: int = 0
    master: str = ""
    reason: str = ""
    peers: bool = False
    candidate: str = ""

    def difference(self, configured: Role) -> str:
        """Why the role is not the configured one; "" if it is."""
        if self.role is configured or self.chosen_by is ChosenBy.CONFIGURATION:
            return ""
        return (
            f"the role is {self.role.name} and not {configured.name} (commitlog.role): "
            f"{self.reason}"
        )


@dataclass(frozen=True, slots=True)
class StartRole:
    """What a start makes of the stored state. `promotes`: a slave begins as a master. `held`: why
    no messages are taken before the peers were asked. `uncertain`: why the role itself is not
    known, so that an operator must assign one. `recovers_tail`: a SYNC_MASTER may have lost what
    its slaves acknowledged; until it has asked them its log works as a slave's."""

    state: RoleState
    promotes: bool = False
    held: str = ""
    uncertain: str = ""
    recovers_tail: bool = False


def at_start(
    configured: Role,
    stored: RoleState | None,
    *,
    wait_for_peers: bool,
    damage: str = "",
    tail_at_risk: bool = False,
    is_member: bool = False,
) -> StartRole:
    """The role of a start. `damage`: the stored state cannot be trusted. `tail_at_risk`: the last
    stop was not clean, and flushing is asynchronous. `is_member`: of a cluster, whose terms are
    opened by promotions alone."""
    if stored is None:
        state = RoleState(configured, peers=wait_for_peers)
        promotes = False
    elif stored.chosen_by is ChosenBy.CONFIGURATION:
        promotes = stored.role is Role.SLAVE and configured is not Role.SLAVE
        state = replace(stored, role=configured, peers=stored.peers or wait_for_peers)
        if promotes and is_member:
            promotes = False
            state = replace(stored, chosen_by=ChosenBy.OPERATOR, reason=MEMBERS_ARE_PROMOTED)
    else:
        promotes = False
        masters = stored.role is not Role.SLAVE and configured is not Role.SLAVE
        role = configured if masters else stored.role
        state = replace(stored, role=role, peers=stored.peers or wait_for_peers)
    uncertain = (
        f"{damage}: whether this broker is a master is not known (`stratamq replica promote "
        "--force` makes it one, `stratamq replica demote --master HOST:PORT` a slave)"
    )
    held = PEERS_NOT_ASKED if state.peers else ""
    recovers_tail = tail_at_risk and state.role is Role.SYNC_MASTER and state.peers and not promotes
    return StartRole(state, promotes, held, uncertain if damage else "", recovers_tail)


class RoleFile:
    """`stratamq/role.json` of one broker. Blocking; what is stored is durable on return."""

    def __init__(self, files: Files, configured: Role) -> None:
        self.configured = configured
        self._file = MetadataFile(files, ROLE_PATH)
        self._stored: RoleState | None = None

    def start(
        self,
        *,
        wait_for_peers: bool,
        tail_at_risk: bool = False,
        is_member: bool = False,
        restored: bool = False,
    ) -> StartRole:
        """Read the file and decide. Nothing is written yet, unless the directory was `restored`:
        then it is a slave without a promise, durably."""
        document = self._file.load()
        found = self._file.found
        stored, damage = None, ""
        if document is not None:
            try:
                stored = _decode(document)
            except (KeyError, TypeError, ValueError) as error:
                damage = f"{ROLE_PATH}: {error!r}"
        if found.outcome is LoadOutcome.DAMAGED or (
            found.outcome is LoadOutcome.USED_PREVIOUS and found.faults
        ):
            damage = "; ".join(found.faults)
        if restored:
            stored, damage = RoleState(Role.SLAVE, ChosenBy.OPERATOR, reason=RESTORED), ""
            self.store(stored)
        self._stored = stored
        return at_start(
            self.configured,
            stored,
            wait_for_peers=wait_for_peers,
            damage=damage,
            tail_at_risk=tail_at_risk,
            is_member=is_member,
        )

    def keep(self, started: RoleState, term: int) -> RoleState:
        """The start has happened, its generation has `term`: the role from now on. What later
        starts require of it is stored; a master that never was anything else needs no file."""
        state = replace(started, term=max(term, started.term))
        plain = RoleState(state.role, term=state.term)
        is_plain = self._stored is None and state == plain and state.role is not Role.SLAVE
        if not is_plain and state != self._stored:
            self.store(state)
        return state

    def store(self, state: RoleState) -> None:
        self._file.store(
            {
                "role": state.role.name,
                "chosen_by": state.chosen_by.value,
                "term": state.term,
                "candidate": state.candidate,
                "master": state.master,
                "reason": state.reason,
                "peers": state.peers,
            }
        )
        self._stored = state


def _decode(document: dict[str, object]) -> RoleState:
    term, peers = document["term"], document["peers"]
    if not isinstance(term, int) or isinstance(term, bool) or not isinstance(peers, bool):
        raise ValueError(f"expected a term and a truth, not {term!r} and {peers!r}")
    return RoleState(
        role=Role[document["role"]],
        chosen_by=ChosenBy(document["chosen_by"]),
        term=term,
        master=str(document["master"]),
        reason=str(document["reason"]),
        peers=peers,
        candidate=str(document.get("candidate", "")),
    )
