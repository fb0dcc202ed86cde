"""The rules of the protocol by name, the bounds of a search, and one state of the model: immutable
and comparable, so that no state is looked at twice.

An entry of a log is the generation that wrote it: a generation belongs to one life of one master,
which writes each offset once, so (offset, generation) is one message. What a member *claims* about
its log, the list of generations, is kept apart from what it has, as in the product.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

BOUNDED = (
    "promotions",
    "restarts",
    "reconnects",
    "losses",
    "restores",
    "silent_restores",
    "deaths",
    "removals",
    "admissions",
)


def _rule(sentence: str) -> Any:
    return field(default=True, metadata={"is": sentence})


@dataclass(frozen=True, slots=True)
class Rules:
    """Which rules hold."""

    quorum: bool = _rule("a promotion needs n − k promises, the candidate's own included")
    named_promises: bool = _rule(
        "a promise counts for the candidate that it names, and for no other"
    )
    slot_terms: bool = _rule("a member opens only terms of its own residue: no two open the same")
    fencing: bool = _rule("who promised a term acknowledges to no master of a lower one")
    one_chain: bool = _rule(
        "a slave follows no other chain of generations of a term that it has followed"
    )
    own_promise: bool = _rule(
        "a term is opened only while the candidate's own promise is still for it"
    )
    reach: bool = _rule("a candidate is not opened below the reach of any that promised")
    reach_of_empty: bool = _rule(
        "a term counts in the reach once its start is reached, without a byte"
    )
    acknowledged_start: bool = _rule(
        "an acknowledgement counts from the start of the master's generation on"
    )
    confirmed_travels: bool = _rule("a promotion below a known confirmed offset is refused")
    one_member_once: bool = _rule("several connections of one member count once")
    rejoining: bool = _rule("a new identity promises nothing and its acknowledgements do not count")
    rejoining_hears: bool = _rule(
        "it stays so until k + 1 others know no higher term than its master's"
    )
    rejoining_end: bool = _rule("and until it has its master's end, not only what was confirmed")
    longer_history: bool = _rule(
        "a master that learns of a longer history of its own holds and cuts no slave"
    )
    forgotten_generation: bool = _rule(
        "an unknown generation of its own term is a longer history, too"
    )
    master_shows_confirmed: bool = _rule("consumers see on a master what k slaves have")
    slave_shows_confirmed: bool = _rule("a slave shows at most what its master confirmed")
    removal_at_master: bool = _rule("only a serving master removes a member")
    removal_waits: bool = _rule("and only once all others have acknowledged everything that it has")
    removal_in_two: bool = _rule(
        "a member first stops counting, and the quorum shrinks by a later list"
    )
    removal_heard: bool = _rule(
        "which is made once all that are left have the first, at no higher term"
    )
    joined_as: bool = _rule(
        "a slave counts by what its directory joined as, against its master's list"
    )
    joining_agrees: bool = _rule(
        "a member joins by answers of those that have the list that admits it"
    )

    def without(self, names: Iterable[str]) -> "Rules":
        """The same, with these switched off. TypeError for a name that is none."""
        return replace(self, **dict.fromkeys(names, False))


RULES = {each.name: each.metadata["is"] for each in fields(Rules)}
"""Name and sentence."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What a search goes through: n members of which k acknowledge, and how often each thing may
    happen. A link that is cut needs no action of its own: whatever needs the other side may as
    well not happen."""

    members: int
    required: int
    entries: int = 1
    promotions: int = 2
    restarts: int = 0
    reconnects: int = 0
    losses: int = 0
    """Disks replaced by empty ones."""
    restores: int = 0
    """Disks put back to an earlier copy, with the command."""
    silent_restores: int = 0
    """The same without the command."""
    deaths: int = 0
    """Members that are gone for good, and may be removed."""
    removals: int = 0
    """Members that live and are removed: cut off, and taken for dead. Only where k + 1 of those
    that are left remain (k ≤ n − 2); else an operator has to know that it is dead."""
    admissions: int = 0
    """Members that are taken in again."""
    apart: int = 0
    """So many of the members, the last ones, were removed before, and do not know it; with
    k = n − 1, where one that lives would promote itself, their directories are new."""

    @property
    def title(self) -> str:
        parts = [f"n={self.members}, k={self.required}", f"log of {self.entries}"]
        for name in (*BOUNDED, "apart"):
            if getattr(self, name):
                parts.append(f"{name.replace('_', ' ')}: {getattr(self, name)}")
        return ", ".join(parts)


NONE = -1


class Generation(NamedTuple):
    """Later is greater. `chance` keeps two of the same term and start apart, as random bits do."""

    term: int
    starts: int
    chance: int


class Members(NamedTuple):
    """Who counts, and how many slaves acknowledge. `version` 0: as configured. `since`: by member,
    the version that a directory must have joined as; a later one than `version`: the member is
    being removed."""

    version: int
    numbers: frozenset[int]
    required: int
    since: tuple[int, ...]

    @property
    def quorum(self) -> int:
        """Promises of a promotion."""
        return len(self.numbers) - self.required

    @property
    def leaving(self) -> frozenset[int]:
        return frozenset(one for one in self.numbers if self.since[one] > self.version)


History = tuple[tuple[Generation, int], ...]
"""(generation, start), in order."""


class Reply(NamedTuple):
    """The state of a member that promised."""

    number: int
    reach: tuple[int, ...]
    confirmed: int


class Candidate(NamedTuple):
    """A promotion under way, in the memory of the candidate."""

    term: int
    replies: frozenset[Reply]


class Member(NamedTuple):
    """Durable: everything up to `joined`; the rest ends with the process."""

    log: tuple[Generation, ...]
    history: History
    master: bool
    term: int
    """The highest promised or received from a peer."""
    promised_to: int
    """The candidate that `term` was promised to; NONE: it was only received from a peer."""
    confirmed: int
    members: Members
    rejoining: bool
    joined: int = 0
    """The version of the members as of which it counts."""
    dead: bool = False
    held: bool = False
    follows: int = NONE
    goal: int = NONE
    """On a rejoining member: how much of its master's log it must have."""
    known_terms: frozenset[tuple[int, int]] = frozenset()
    """On a rejoining member: (member, its term)."""
    heard: frozenset[int] = frozenset()
    """While a master removes a member: who has reported its list, at no higher term."""
    candidate: Candidate | None = None

    @property
    def end(self) -> int:
        return len(self.log)

    @property
    def serves(self) -> bool:
        return self.master and not self.held


class Connection(NamedTuple):
    """A slave's connection as its master holds it. `live`: the slave still uses it. `under_way`: an
    acknowledgement that has left the slave, `counted`: one that has come; NONE: none. `joined`: as
    of which version the slave's directory counts, by its opening; NONE: it does not."""

    slave: int
    master: int
    live: bool
    under_way: int
    counted: int
    joined: int = 0


class State(NamedTuple):
    members: tuple[Member, ...]
    connections: tuple[Connection, ...]
    promised: tuple[tuple[Generation, int], ...]
    """By offset: the message that was acknowledged or shown, and the lowest term it was in."""
    opened: frozenset[tuple[int, int]]
    """(term, member)"""
    backup: tuple[int, Member] | None
    left: tuple[int, ...]
    """How often each bounded thing may still happen, in the order of BOUNDED."""


class Violation(Exception):
    """A broken promise: the rule's short name and a sentence."""


# --- what follows from a log and its list of generations ---


def last_term(history: History) -> int:
    return history[-1][0].term if history else NONE


def stretches(member: Member) -> list[tuple[Generation, int, int]]:
    """(generation, start, end) of those that have a byte."""
    found = []
    history, end = member.history, member.end
    for at, (generation, start) in enumerate(history):
        stop = min(history[at + 1][1], end) if at + 1 < len(history) else end
        if start < stop:
            found.append((generation, start, stop))
    return found


def reach(member: Member, *, of_empty: bool) -> tuple[int, ...]:
    """(term of the last generation whose start is reached, last generation with a byte, end), flat.
    `of_empty` off: the term is that of the last byte. Within a term one member writes, so that an
    empty generation of it proves nothing."""
    written = stretches(member)
    last = written[-1][0] if written else Generation(NONE, NONE, NONE)
    term = last.term
    if of_empty:
        term = max((g.term for g, start in member.history if start <= member.end), default=NONE)
    return (term, *last, member.end)


def shared_end(master: Member, slave: Member) -> int | None:
    """Up to here both are one, by the generations with a byte; None: they share nothing."""
    ends = {generation: end for generation, _, end in stretches(master)}
    for generation, _, end in reversed(stretches(slave)):
        if generation in ends:
            return min(end, ends[generation])
    return None


def merged(own: History, theirs: History, cut: int) -> History:
    """A slave's list after a cut: its own up to there, then its master's."""
    first = max((at for at, (_, start) in enumerate(theirs) if start <= cut), default=0)
    rest = theirs[first:]
    coming = {generation for generation, _ in rest}
    kept = [
        (generation, min(start, cut))
        for generation, start in own
        if start < cut or generation not in coming
    ]
    if kept and rest and kept[-1][0] == rest[0][0]:
        rest = rest[1:]
    return (*kept, *((generation, max(start, cut)) for generation, start in rest))


def begun(member: Member, generation: Generation) -> Member:
    """The same, with a generation that begins at its end; older ones do not begin behind it."""
    lowered = ((older, min(start, member.end)) for older, start in member.history)
    return member._replace(history=(*lowered, (generation, member.end)))


def related(one: Member, other: Member) -> bool:
    mine = {generation for generation, _ in one.history}
    return any(generation in mine for generation, _ in other.history)


def has_longer(master: Member, other: Member, *, forgotten: bool) -> bool:
    """`other` has more of this master's own history than the master: its disk has forgotten."""
    starts = dict(master.history)
    term = last_term(master.history)
    if forgotten and any(g.term == term and g not in starts for g, _ in other.history):
        return True
    for generation, _, end in stretches(other):
        if generation not in starts:
            continue
        later = [(g, start) for g, start in master.history if g > generation]
        own_end = later[0][1] if later else master.end
        if end > own_end and all(g.term == generation.term for g, _ in later):
            return True
    return False


NAMES = "ABCD"
_PLACE = {name: at for at, name in enumerate(BOUNDED)}
Step = tuple[str, State]
"""What happened, and the state then."""


def step(
    label: str, do: Callable[..., State | None], state: State, *more: object
) -> Iterator[Step]:
    """What `do` makes of the state, if it can and if that is another one."""
    try:
        after = do(state, *more)
    except Violation as violation:
        raise Violation(*violation.args, label) from None
    if after is not None and after != state:
        yield label, after


def with_member(state: State, number: int, member: Member) -> State:
    members = state.members
    if members[number] is member:
        return state
    return state._replace(members=(*members[:number], member, *members[number + 1 :]))


def with_connection(state: State, old: Connection, new: Connection) -> State:
    connections = [new if one is old else one for one in state.connections]
    return state._replace(connections=ordered(connections))


def ordered(connections: list[Connection]) -> tuple[Connection, ...]:
    return tuple(sorted(connections))


def left(state: State, name: str) -> bool:
    """Whether it may happen once more."""
    return state.left[_PLACE[name]] > 0


def spend(state: State, name: str) -> State:
    """It happens once more."""
    left = list(state.left)
    left[_PLACE[name]] -= 1
    return state._replace(left=tuple(left))
