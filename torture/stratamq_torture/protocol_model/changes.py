"""How members are removed and taken in: the steps of an operator at a master, and how lists travel.

A list in force differs from the one before it by one member, and one of the two always has the
quorums of both:

    remove    that member stops counting, n and k stay ──► all that are left have this list ──►
              n and k shrink
    admit     n grows, the member does not count ──► k + 1 others have this list ──► it joins
"""

from collections.abc import Callable, Iterator

from stratamq_torture.protocol_model.state import (
    NAMES,
    NONE,
    Members,
    Rules,
    Scope,
    State,
    Step,
    left,
    spend,
    step,
    with_member,
)


class Changes:
    """`confirm` and `leave`: of a member, by its number, what the master counts, and that it leaves
    its master."""

    def __init__(
        self,
        scope: Scope,
        rules: Rules,
        confirm: Callable[[State, int], State],
        leave: Callable[[State, int], State],
    ) -> None:
        self._scope = scope
        self._rules = rules
        self._confirm = confirm
        self._leave = leave

    def of_members(self, state: State) -> Iterator[Step]:
        """What an operator may ask of any master for any other member."""
        for number, member in enumerate(state.members):
            for other, theirs in enumerate(state.members):
                if member.dead or other == number:
                    continue
                name, subject = NAMES[number], NAMES[other]
                leaving, numbers = member.members.leaving, member.members.numbers
                if other in leaving:
                    yield from step(
                        f"{subject} is removed at {name}", self._remove, state, number, other
                    )
                elif other in numbers:
                    yield from self._removal(state, number, other)
                counts = other in numbers - leaving
                if not (counts or theirs.dead) and left(state, "admissions"):
                    spent = spend(state, "admissions")
                    yield from step(
                        f"{subject} is admitted at {name}", self._admit, spent, number, other
                    )

    def of_pair(self, state: State, number: int, other: int) -> Iterator[Step]:
        adopts = f"{NAMES[number]} takes over {NAMES[other]}'s list of members"
        yield from step(adopts, self._adopt, state, number, other)

    def _removal(self, state: State, number: int, gone: int) -> Iterator[Step]:
        dead, rules = state.members[gone].dead, self._rules
        members = state.members[number].members
        if not dead:
            if not left(state, "removals") or members.required > len(members.numbers) - 2:
                return
            state = spend(state, "removals")
        if rules.removal_in_two:
            label = f"{NAMES[gone]} is to be removed at {NAMES[number]}"
            yield from step(label, self._begin_removal, state, number, gone)
        else:
            label = f"{NAMES[gone]} is removed at {NAMES[number]}"
            yield from step(label, self._remove, state, number, gone)

    def _begin_removal(self, state: State, number: int, gone: int) -> State | None:
        member = state.members[number]
        if self._rules.removal_at_master and not member.serves:
            return None
        members = member.members
        version = members.version + 1
        since = _replaced(members.since, gone, version + 1)
        leaving = members._replace(version=version, since=since)
        changed = member._replace(members=leaving, heard=frozenset(), candidate=None)
        return with_member(state, number, changed)

    def _remove(self, state: State, number: int, gone: int) -> State | None:
        member, rules = state.members[number], self._rules
        if rules.removal_at_master and not member.serves:
            return None
        numbers = member.members.numbers - {gone}
        others = numbers - {number}
        if member.serves and rules.removal_waits and not others <= self._whole(state, number):
            return None
        heard = member.heard if rules.removal_in_two and rules.removal_heard else others
        if member.serves and not others <= heard:
            return None
        required = min(member.members.required, len(numbers) - 1)
        version = member.members.version + 1
        shorter = Members(version, numbers, required, member.members.since)
        changed = member._replace(members=shorter, heard=frozenset(), candidate=None)
        return self._confirm(with_member(state, number, changed), number)

    def _whole(self, state: State, number: int) -> set[int]:
        """Slaves that have acknowledged everything that this master has."""
        member = state.members[number]
        return {
            one.slave
            for one in state.connections
            if one.master == number and one.counted == member.end
        }

    def _admit(self, state: State, number: int, coming: int) -> State | None:
        member = state.members[number]
        members = member.members
        if not member.serves:
            return None
        numbers, version = members.numbers | {coming}, members.version + 1
        grown = min(self._scope.required, members.required + 1, len(numbers) - 1)
        required = max(members.required, grown)
        longer = Members(version, numbers, required, _replaced(members.since, coming, version))
        changed = member._replace(members=longer, heard=frozenset(), candidate=None)
        return self._confirm(with_member(state, number, changed), number)

    def _adopt(self, state: State, number: int, other: int) -> State | None:
        """The newer list of members is taken over from a member that has it."""
        member, theirs = state.members[number], state.members[other]
        if theirs.members.version <= member.members.version:
            return None
        members = theirs.members
        is_active = number in members.numbers
        counts = is_active and member.joined >= members.since[number]
        changed = member._replace(
            members=members, heard=frozenset(), known_terms=frozenset(), candidate=None, goal=NONE
        )
        if not counts:
            # A master of a directory that does not count takes no messages.
            state = self._leave(state, number)
            follows = state.members[number].follows
            changed = changed._replace(rejoining=True, held=member.master, follows=follows)
        return with_member(state, number, changed)


def _replaced(since: tuple[int, ...], number: int, version: int) -> tuple[int, ...]:
    return (*since[:number], version, *since[number + 1 :])
