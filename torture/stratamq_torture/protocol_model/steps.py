"""Everything that can happen next in a state: one step of one member, or one fault.

Steps that need an answer may not happen: a member that is silent, a cut link, a lost or a late
message are all that. What must be atomic in the product is one step here (a cut with its list of
generations, a promise, the opening of a term); what need not be is several.
"""

from collections.abc import Iterator

from stratamq_torture.protocol_model.changes import Changes
from stratamq_torture.protocol_model.state import (
    BOUNDED,
    NAMES,
    NONE,
    Candidate,
    Connection,
    Generation,
    Member,
    Members,
    Reply,
    Rules,
    Scope,
    State,
    Step,
    Violation,
    begun,
    has_longer,
    last_term,
    left,
    merged,
    ordered,
    reach,
    related,
    shared_end,
    spend,
    step,
    with_connection,
    with_member,
)


def beginning(scope: Scope) -> State:
    """A is the master of term 0, the others follow it with empty logs."""
    configured = _configured(scope)
    inside = scope.members - scope.apart
    in_force = configured
    if scope.apart:
        k = min(scope.required, inside - 1)
        in_force = configured._replace(version=1, numbers=frozenset(range(inside)), required=k)
    first = ((Generation(0, 0, 0), 0),)

    def member(number: int) -> Member:
        follows = 0 if 0 < number < inside else NONE
        if number < inside:
            return Member((), first, number == 0, 0, NONE, 0, in_force, False, follows=follows)
        if scope.required == scope.members - 1:
            return Member((), (), False, 0, NONE, 0, configured, True)
        return Member((), first, False, 0, NONE, 0, configured, False)

    return State(
        tuple(member(number) for number in range(scope.members)),
        tuple(Connection(number, 0, True, NONE, NONE) for number in range(1, inside)),
        (),
        frozenset({(0, 0)}),
        None,
        tuple(getattr(scope, name) for name in BOUNDED),
    )


def _configured(scope: Scope) -> Members:
    return Members(0, frozenset(range(scope.members)), scope.required, (0,) * scope.members)


class Steps:
    """The steps of one scope under some rules."""

    def __init__(self, scope: Scope, rules: Rules) -> None:
        self._scope = scope
        self._rules = rules
        self._changes = Changes(scope, rules, self._confirm, self._leave)

    def after(self, state: State) -> Iterator[Step]:
        """Every step from here. Violation when one breaks a promise in itself; its last argument is
        the step."""
        for number, member in enumerate(state.members):
            if member.dead:
                continue
            yield from self._of_member(state, number, member)
            for other, theirs in enumerate(state.members):
                if other != number and not theirs.dead:
                    yield from self._of_pair(state, number, member, other)
        for connection in state.connections:
            yield from self._of_connection(state, connection)
        yield from self._changes.of_members(state)

    def _of_member(self, state: State, number: int, member: Member) -> Iterator[Step]:
        name = NAMES[number]
        if member.serves and member.end < self._scope.entries:
            yield from step(f"{name} appends", self._append, state, number)
        if member.rejoining and self._is_whole(number, member):
            yield from step(f"{name} has rejoined", self._rejoin, state, number)
        if member.candidate is not None and self._may_open(number, member):
            term = member.candidate.term
            yield from step(f"{name} opens term {term}", self._open, state, number, member)
        if left(state, "promotions"):
            yield from self._stand(state, number, member)
        if left(state, "restarts"):
            spent = spend(state, "restarts")
            yield from step(f"{name} restarts", self._restart, spent, number)
        if left(state, "losses"):
            spent = spend(state, "losses")
            yield from step(f"{name}'s disk is replaced by an empty one", self._lose, spent, number)
        if left(state, "restores") or left(state, "silent_restores"):
            yield from self._copies(state, number, member)
        if left(state, "deaths"):
            spent = spend(state, "deaths")
            yield from step(f"{name} is gone for good", self._die, spent, number)

    def _of_pair(self, state: State, number: int, member: Member, other: int) -> Iterator[Step]:
        """`number` does something with the answer of `other`."""
        name, theirs = NAMES[number], NAMES[other]
        if not member.master and member.follows == NONE and state.members[other].master:
            yield from step(f"{name} follows {theirs}", self._connect, state, number, other)
        if member.master or member.rejoining:
            yield from step(f"{name} learns of {theirs}", self._learn, state, number, other)
        yield from self._changes.of_pair(state, number, other)
        if member.candidate is not None and member.promised_to == number:
            promise = f"{theirs} promises {name} term {member.term}"
            yield from step(promise, self._ask, state, number, other)
            if not self._rules.named_promises:
                answer = f"{name} has {theirs}'s answer"
                yield from step(answer, self._reply, state, number, other)

    def _of_connection(self, state: State, connection: Connection) -> Iterator[Step]:
        number, slave, master = connection.slave, NAMES[connection.slave], NAMES[connection.master]
        if connection.live:
            copies = f"{slave} copies from {master}"
            yield from step(copies, self._copy, state, number, connection.master)
            if left(state, "reconnects"):
                spent = spend(state, "reconnects")
                lost = f"{slave} loses its connection to {master}, who has not noticed"
                yield from step(lost, self._leave, spent, number)
        if connection.under_way != NONE:
            label = f"{master} learns that {slave} has {connection.under_way}"
            yield from step(label, self._count, state, connection)

    def _append(self, state: State, number: int) -> State:
        member = state.members[number]
        written = member._replace(log=(*member.log, member.history[-1][0]))
        return self._confirm(with_member(state, number, written), number)

    def _rejoin(self, state: State, number: int) -> State:
        member = state.members[number]
        whole = member._replace(
            rejoining=False, joined=member.members.version, goal=NONE, known_terms=frozenset()
        )
        opened = tuple(
            one._replace(joined=whole.joined) if one.slave == number and one.live else one
            for one in state.connections
        )
        state = with_member(state, number, whole)._replace(connections=opened)
        return self._acknowledge(state, number)

    def _count(self, state: State, connection: Connection) -> State:
        counted = max(connection.counted, connection.under_way)
        came = connection._replace(under_way=NONE, counted=counted)
        return self._confirm(with_connection(state, connection, came), connection.master)

    def _die(self, state: State, number: int) -> State:
        state = self._silence(state, number)
        member = state.members[number]._replace(dead=True, master=False, candidate=None)
        return with_member(state, number, member)

    # --- replication ---

    def _connect(self, state: State, number: int, master: int) -> State | None:
        slave, theirs = state.members[number], state.members[master]
        term = last_term(theirs.history)
        known = slave.term if self._rules.fencing else last_term(slave.history)
        if term < known or last_term(slave.history) > term or theirs.dead:
            return None
        named = self._rules.named_promises and self._rules.fencing
        if term == slave.term and slave.promised_to not in (NONE, master) and named:
            return None
        if self._rules.one_chain and last_term(slave.history) == term:
            last = slave.history[-1][0]
            if all(generation != last for generation, _ in theirs.history):
                return self._meet_longer(state, master, number)
        if theirs.held and theirs.rejoining:
            return None
        met = self._meet_longer(state, master, number)
        if met is not None:
            return met
        shared = 0 if slave.end == 0 else shared_end(theirs, slave)
        if shared is None:
            return None
        self._guard_cut(state, number, slave, shared)
        following = slave._replace(
            log=slave.log[:shared],
            history=merged(slave.history, theirs.history, shared),
            term=max(term, slave.term),
            promised_to=slave.promised_to if slave.term == term else NONE,
            confirmed=max(slave.confirmed, theirs.confirmed),
            follows=master,
            candidate=slave.candidate
            if term <= slave.term or not self._rules.own_promise
            else None,
        )
        if slave.rejoining and self._agree(slave, theirs):
            known_terms = slave.known_terms | {(master, term)}
            following = following._replace(goal=self._goal(theirs), known_terms=known_terms)
        kept = [
            one if one.slave != number or one.master != master else one._replace(live=False)
            for one in state.connections
            if not self._rules.one_member_once or (one.slave, one.master) != (number, master)
        ]
        joined = NONE if slave.rejoining and self._rules.rejoining else slave.joined
        connections = [*kept, Connection(number, master, True, NONE, NONE, joined)]
        state = with_member(state, number, following)._replace(connections=ordered(connections))
        return self._shown(self._acknowledge(state, number), number)

    def _meet_longer(self, state: State, master: int, other: int) -> State | None:
        """The master after a peer reported a longer history of its own; None if it is none."""
        theirs, rules = state.members[master], self._rules
        if not rules.longer_history:
            return None
        if not has_longer(theirs, state.members[other], forgotten=rules.forgotten_generation):
            return None
        if theirs.rejoining and theirs.held:
            return None
        return with_member(state, master, theirs._replace(held=True, rejoining=True))

    def _guard_cut(self, state: State, number: int, member: Member, cut: int) -> None:
        for offset in range(cut, min(member.end, len(state.promised))):
            if member.log[offset] == state.promised[offset][0]:
                raise Violation(
                    "cut", f"{NAMES[number]} is cut to {cut}: below what it had and was promised"
                )

    def _copy(self, state: State, number: int, master: int) -> State | None:
        slave, theirs = state.members[number], state.members[master]
        if slave.end >= theirs.end and slave.confirmed >= theirs.confirmed:
            return None
        copied = slave._replace(
            log=theirs.log[: slave.end + 1] if slave.end < theirs.end else slave.log,
            confirmed=max(slave.confirmed, theirs.confirmed),
        )
        if copied.log[: slave.end] != slave.log:
            raise Violation("prefix", f"{NAMES[number]} has other bytes than its master")
        return self._shown(self._acknowledge(with_member(state, number, copied), number), number)

    def _acknowledge(self, state: State, number: int) -> State:
        """An acknowledgement leaves with the offset it covers; it may come late, or never."""
        slave, scope = state.members[number], self._scope
        for connection in state.connections:
            if connection.slave == number and connection.live and connection.joined != NONE:
                reached = slave.end or scope.deaths or scope.removals
                if reached and slave.end > max(connection.under_way, connection.counted):
                    sent = connection._replace(under_way=slave.end)
                    return with_connection(state, connection, sent)
        return state

    def _confirm(self, state: State, number: int) -> State:
        """The master counts what has been acknowledged."""
        master = state.members[number]
        members = master.members
        if not master.master or number not in members.numbers - members.leaving:
            return state
        start = master.history[-1][1] if self._rules.acknowledged_start else 0
        offsets: dict[object, int] = {}
        for connection in state.connections:
            if connection.master != number or not self._counts(members, connection):
                continue
            once = self._rules.one_member_once
            key = connection.slave if once else (connection.slave, len(offsets))
            if start <= connection.counted <= master.end:
                offsets[key] = max(connection.counted, offsets.get(key, NONE))
        counted = sorted(offsets.values(), reverse=True)
        required = members.required
        replicated = master.end if required == 0 else NONE
        if 0 < required <= len(counted):
            replicated = counted[required - 1]
        if replicated > master.confirmed:
            master = master._replace(confirmed=replicated)
        return self._shown(with_member(state, number, master), number)

    def _counts(self, members: Members, connection: Connection) -> bool:
        """By the master's list."""
        slave = connection.slave
        if slave not in members.numbers - members.leaving:
            return False
        return connection.joined >= members.since[slave] or not self._rules.joined_as

    def _agree(self, member: Member, theirs: Member) -> bool:
        return member.members == theirs.members or not self._rules.joining_agrees

    def _shown(self, state: State, number: int) -> State:
        """Consumers of this member look at what it shows; a master's PUT_OK is for the same."""
        member = state.members[number]
        shown = min(member.confirmed, member.end)
        if member.serves and not self._rules.master_shows_confirmed:
            connected = sum(one.master == number for one in state.connections)
            if connected < member.members.required:
                shown = member.end
        if not member.master and not self._rules.slave_shows_confirmed:
            shown = member.end
        term = last_term(member.history)
        promised = list(state.promised)
        for offset in range(shown):
            if offset == len(promised):
                promised.append((member.log[offset], term))
            elif promised[offset][0] != member.log[offset]:
                raise Violation(
                    "shown", f"{NAMES[number]} shows another message at {offset} than was promised"
                )
            elif promised[offset][1] > term:
                promised[offset] = (member.log[offset], term)
        found = tuple(promised)
        return state if found == state.promised else state._replace(promised=found)

    # --- what peers receive from each other ---

    def _learn(self, state: State, number: int, other: int) -> State | None:
        member, theirs = state.members[number], state.members[other]
        if not member.master:
            if not self._agree(member, theirs):
                return None
            taught = member._replace(known_terms=member.known_terms | {(other, theirs.term)})
            if other == member.follows and member.goal == NONE:
                taught = taught._replace(goal=self._goal(theirs))
            return with_member(state, number, taught)
        if theirs.term > member.term and related(member, theirs):
            down = self._silence(state, number)
            demoted = down.members[number]._replace(
                master=False, held=False, term=theirs.term, promised_to=NONE
            )
            return with_member(down, number, demoted)
        met = self._meet_longer(state, number, other)
        if met is not None:
            return met
        if member.held and not member.rejoining:
            return with_member(state, number, member._replace(held=False))
        is_news = member.members.leaving and theirs.members == member.members
        if is_news and theirs.term <= member.term:
            return with_member(state, number, member._replace(heard=member.heard | {other}))
        return None

    def _goal(self, master: Member) -> int:
        """How much a rejoining member must have, asked when its master has the list that admits it:
        until then the master acknowledges without it. Example: B is the master by a list without C,
        and C follows it. What B acknowledges with A is confirmed, and C must have it."""
        return master.end if self._rules.rejoining_end else master.confirmed

    def _is_whole(self, number: int, member: Member) -> bool:
        if number not in member.members.numbers - member.members.leaving:
            return False
        if member.master or member.goal == NONE or member.end < member.goal:
            return False
        if not self._rules.rejoining_hears:
            return True
        needed = min(member.members.required + 1, len(member.members.numbers) - 1)
        answered = {number for number, _ in member.known_terms}
        term = last_term(member.history)
        return len(answered) >= needed and all(known <= term for _, known in member.known_terms)

    # --- promotion ---

    def _stand(self, state: State, number: int, member: Member) -> Iterator[Step]:
        """An operator promotes this member, at any moment and never with force."""
        if member.serves or member.candidate is not None or number not in member.members.numbers:
            return
        if member.rejoining and self._rules.rejoining:
            return
        known = max(one.term for one in state.members if not one.dead)
        for highest in {member.term, known}:
            term = self._next_term(highest, number)
            alone = self._silence(spend(state, "promotions"), number)
            promoted = alone.members[number]._replace(
                master=False,
                held=False,
                term=term,
                promised_to=number,
                candidate=Candidate(term, frozenset()),
            )
            yield (
                f"{NAMES[number]} is to be promoted to {term}",
                with_member(alone, number, promoted),
            )

    def _next_term(self, known: int, number: int) -> int:
        if not self._rules.slot_terms:
            return known + 1
        residue = (number - known - 1) % self._scope.members
        return known + 1 + residue

    def _ask(self, state: State, number: int, other: int) -> State | None:
        candidate, theirs = state.members[number], state.members[other]
        term = candidate.term
        only_heard = theirs.promised_to == NONE and last_term(theirs.history) < term
        if theirs.term > term or (theirs.term == term and not only_heard):
            return None
        if theirs.rejoining and self._rules.rejoining:
            return None
        if self._rules.fencing or theirs.master:
            state = self._silence(state, other)
        promised = state.members[other]._replace(
            master=False, held=False, term=term, promised_to=number
        )
        if self._rules.own_promise:
            promised = promised._replace(candidate=None)
        return self._reply(with_member(state, other, promised), number, other)

    def _reply(self, state: State, number: int, other: int) -> State | None:
        candidate, theirs = state.members[number], state.members[other]
        under_way = candidate.candidate
        assert under_way is not None
        if theirs.term != under_way.term or (theirs.rejoining and self._rules.rejoining):
            return None
        if theirs.promised_to != number and self._rules.named_promises:
            return None
        if theirs.members != candidate.members:
            return None
        reply = Reply(other, self._reach(theirs), theirs.confirmed)
        replies = {one for one in under_way.replies if one.number != other} | {reply}
        now = under_way._replace(replies=frozenset(replies))
        return with_member(state, number, candidate._replace(candidate=now))

    def _may_open(self, number: int, member: Member) -> bool:
        rules, under_way = self._rules, member.candidate
        assert under_way is not None
        replies = [one for one in under_way.replies if one.number in member.members.numbers]
        if rules.own_promise and (member.term, member.promised_to) != (under_way.term, number):
            return False
        if last_term(member.history) >= under_way.term:
            return False
        if rules.quorum and 1 + len(replies) < member.members.quorum:
            return False
        if rules.reach and any(one.reach > self._reach(member) for one in replies):
            return False
        if rules.confirmed_travels:
            known = max([member.confirmed, *(one.confirmed for one in replies)])
            if known > member.end:
                return False
        return True

    def _open(self, state: State, number: int, member: Member) -> State:
        assert member.candidate is not None
        term = member.candidate.term
        if any(opened == term and by != number for opened, by in state.opened):
            raise Violation("term", f"{NAMES[number]} opens term {term}, which another has opened")
        state = self._silence(state, number)
        generation = _fresh(state, term, 0)
        member = state.members[number]
        master = begun(member, generation)._replace(master=True, held=False, candidate=None)
        opened = state._replace(opened=state.opened | {(term, number)})
        return self._confirm(with_member(opened, number, master), number)

    def _reach(self, member: Member) -> tuple[int, ...]:
        return reach(member, of_empty=self._rules.reach_of_empty)

    # --- faults, and what an operator does about them ---

    def _restart(self, state: State, number: int) -> State:
        state = self._silence(state, number)
        member = state.members[number]._replace(
            held=False, goal=NONE, known_terms=frozenset(), heard=frozenset(), candidate=None
        )
        if member.master:
            last, _ = member.history[-1]
            generation = _fresh(state, last.term, last.starts + 1)
            member = begun(member, generation)._replace(held=True)
        return with_member(state, number, member)

    def _lose(self, state: State, number: int) -> State:
        state = self._silence(state, number)
        empty = Member((), (), False, 0, NONE, 0, _configured(self._scope), True)
        return with_member(state, number, empty)

    def _copies(self, state: State, number: int, member: Member) -> Iterator[Step]:
        name = NAMES[number]
        if state.backup is None:
            durable = member._replace(
                held=False, follows=NONE, goal=NONE, known_terms=frozenset(), candidate=None
            )
            yield f"{name}'s disk is copied", state._replace(backup=(number, durable))
            return
        owner, copy = state.backup
        if owner != number:
            return
        if left(state, "restores"):
            spent = spend(state, "restores")
            label = f"{name} is restored to the copy, with the command"
            yield from step(label, self._put_back, spent, number, copy)
        if left(state, "silent_restores"):
            spent = spend(state, "silent_restores")
            silent = f"{name} is restored to the copy, without the command"
            yield from step(silent, self._put_back_silently, spent, number, copy)

    def _put_back(self, state: State, number: int, copy: Member) -> State:
        state = self._silence(state, number)
        return with_member(state, number, copy._replace(master=False, rejoining=True))

    def _put_back_silently(self, state: State, number: int, copy: Member) -> State:
        return self._restart(with_member(self._silence(state, number), number, copy), number)

    # --- connections ---

    def _leave(self, state: State, number: int) -> State:
        """The slave's side of its connection is gone; its master has not noticed."""
        member = state.members[number]
        if member.follows == NONE:
            return state
        connections = [
            one._replace(live=False) if one.slave == number else one for one in state.connections
        ]
        kept = [one for one in connections if one.live or one.under_way >= 0 or one.counted >= 0]
        return with_member(state, number, member._replace(follows=NONE, goal=NONE))._replace(
            connections=ordered(kept)
        )

    def _silence(self, state: State, number: int) -> State:
        """It leaves its master, and all its slaves' connections end."""
        state = self._leave(state, number)
        members = tuple(
            one._replace(follows=NONE, goal=NONE) if one.follows == number else one
            for one in state.members
        )
        kept = [one for one in state.connections if one.master != number]
        return state._replace(members=members, connections=ordered(kept))


def _fresh(state: State, term: int, starts: int) -> Generation:
    """A number that no member knows."""
    known = {generation for member in state.members for generation, _ in member.history}
    known |= {generation for generation, _ in state.promised}
    if state.backup is not None:
        known |= {generation for generation, _ in state.backup[1].history}
    chance = 0
    while Generation(term, starts, chance) in known:
        chance += 1
    return Generation(term, starts, chance)
