"""What a broker does in response to the peer statuses of the other members. Pure.

    this broker is                and                                       it
    any                           receives a later version of the members   adopts it
                                  was removed from them                     takes no messages
                                  receives a promise to itself, or a term   rejoins, uncounted (its
                                  that it alone opens, and has no record    directory is older)
                                  receives that one is being promoted to a  promises it, a master
                                  higher term                               becomes a slave
    a master                      receives a higher term of its history     stops writing, follows
                                  another has promised a higher term to     stops writing
                                  one that is being removed
                                  another is a master of the same term      waits for an operator
                                  another has more of the same history      waits for an operator
    a master that waits           no other member answers                   waits, unless forced
                                  it has nothing, and another is the master follows that one
                                  it has nothing, and another has something waits for an operator
                                  it is new in the cluster                  waits, or founds it
                                  its term is another member's              opens one of its own if
                                                                            all logs are empty
                                  none of these                             takes messages
    a master that takes messages  none of these                             continues
    a slave                       has no master that answers, and another   follows that one
                                  is one that it may follow
                                  has none, and may not follow the one that waits for an operator
                                  is there

A history is the same as ours if any generation is in both lists: a broker of another history, by
the same name or not, stops no broker. A term more than LARGEST_TERM_STEP above ours is ignored.
"""

from collections.abc import Sequence

from stratamq.formats.generation_number import LARGEST_TERM_STEP, next_term, slot_of
from stratamq.formats.members import Members
from stratamq.formats.replication_opening import MasterAnswer, Verdict
from stratamq.formats.replication_peers import PeerStatus
from stratamq_ha.history import (
    History,
    longer_end,
    longer_sentence,
    refusal_to_follow,
    related,
)
from stratamq_ha.peer_decisions import (
    Adopt,
    Decision,
    Follow,
    Forgot,
    FoundCluster,
    OpenTerm,
    PeerAnswer,
    PromiseTerm,
    RefuseMessages,
    Serve,
    Stay,
)

Others = list[tuple[PeerAnswer, PeerStatus]]


def usable(own: PeerStatus, answers: Sequence[PeerAnswer]) -> Others:
    """Answers of other members, one for each, or without members of others that share this broker's
    name; those of the highest term first."""
    found: dict[object, tuple[PeerAnswer, PeerStatus]] = {}
    for answer in answers:
        theirs = answer.peer_status
        if theirs is None or theirs.name != own.name or theirs.instance == own.instance:
            continue
        if own.members is None:
            found[theirs.instance] = answer, theirs
        elif theirs.member != own.member and own.members.is_active(theirs.member):
            before = found.get(theirs.member)
            if before is None or before[1].term <= theirs.term:
                found[theirs.member] = answer, theirs
    return sorted(found.values(), key=lambda pair: (pair[1].term, pair[1].is_master), reverse=True)


def history_of(peer_status: PeerStatus) -> History:
    return History(peer_status.generations, peer_status.minimum, peer_status.end)


def same_history(own: PeerStatus, theirs: PeerStatus) -> bool:
    """Their terms concern this broker."""
    return own.is_empty or own.rejoining or related(own.generations, theirs.generations)


def decide(
    own: PeerStatus,
    answers: Sequence[PeerAnswer],
    *,
    forced: bool = False,
    connected: bool = False,
    recovers_tail: bool = False,
    longer: str = "",
) -> Decision:
    """`forced`: an operator lets this start continue although no other answers. `connected`: this
    slave follows its master. `recovers_tail`: this master copies its lost tail from its slaves.
    `longer`: why a slave that opened was refused, which has more of this history."""
    newer = _newer_members(own, answers)
    if newer is not None:
        return Adopt(newer)
    if own.members is not None and not own.members.counts(own.member):
        return _removed(own)
    others = usable(own, answers)
    higher, problem = _higher(own, others)
    if higher is not None:
        return higher
    if not own.is_master:
        return _of_slave(own, others, connected, problem)
    rival = next((pair for pair in others if _is_rival(own, pair[1])), None)
    if rival is not None:
        return RefuseMessages(_of_rival(rival, own.term))
    if not recovers_tail:
        longer = longer or _longer(own, others)
    if longer:
        # Durable: it does not resume after a restart either, when the others do not answer.
        return RefuseMessages(longer) if own.members is None or own.rejoining else Forgot(longer)
    if not own.held:
        return Stay(problem or _different_members(own, others))
    return _of_held(own, others, answers, forced, problem)


def _of_held(
    own: PeerStatus, others: Others, answers: Sequence[PeerAnswer], forced: bool, problem: str
) -> Decision:
    if problem:
        return RefuseMessages(problem + _FORCE)
    if forced:
        return FoundCluster() if own.rejoining else Serve()
    if not others:
        return RefuseMessages(_no_answer(answers) + _FORCE) if _has_others(own) else Serve()
    different = _different_members(own, others)
    if different:
        return RefuseMessages(different)
    if own.is_empty:
        for answer, theirs in others:
            if theirs.is_master and not theirs.held:
                reason = f"this log is empty, and the broker at {answer.address} is the master"
                return Follow(answer.address, theirs.term, reason)
        longest = max(others, key=lambda pair: pair[1].end - pair[1].minimum)
        if not longest[1].is_empty:
            return RefuseMessages(
                f"this log is empty, and the broker at {longest[0].address} has "
                f"[{longest[1].minimum}, {longest[1].end}): promote that one (`stratamq replica "
                "promote` there)" + _FORCE
            )
    if own.rejoining:
        return (
            FoundCluster()
            if _founds(own, others)
            else RefuseMessages(_is_new(own, others, answers) + _FORCE)
        )
    return _with_own_term(own)


def _with_own_term(own: PeerStatus) -> Decision:
    """A member serves in a term of its own alone, so that no two serve in one."""
    member = own.members.find(own.member) if own.members is not None else None
    if member is None or slot_of(own.last_term) == member.slot:
        return Serve()
    if own.is_empty:
        return OpenTerm(next_term(own.term, member.slot))
    return RefuseMessages(
        f"this log is of term {own.last_term}, which is not one of the member {own.member}: "
        "promote one of the members (`stratamq replica promote`)"
    )


_FORCE = "; `stratamq replica promote --force` lets this one take messages all the same"


def _has_others(own: PeerStatus) -> bool:
    return own.members is None or bool(own.members.others(own.member))


def _newer_members(own: PeerStatus, answers: Sequence[PeerAnswer]) -> Members | None:
    """The latest version of any member of this cluster, if it is later than ours."""
    ours, found = own.members, None
    if ours is None:
        return None
    for answer in answers:
        theirs = answer.peer_status
        if theirs is None or theirs.name != own.name or theirs.members is None:
            continue
        version = theirs.members.version
        is_ours = ours.find(theirs.member) is not None and same_history(own, theirs)
        if is_ours and version > (found or ours).version and theirs.members.find(own.member):
            found = theirs.members
    return found


def _removed(own: PeerStatus) -> Decision:
    reason = (
        f"this broker, {own.member}, was removed from its cluster: `stratamq replica admit "
        f"{own.member}` at the master takes it in again"
    )
    if not own.rejoining:
        return Forgot(reason)
    return RefuseMessages(reason) if own.is_master else Stay(reason)


def _higher(own: PeerStatus, others: Others) -> tuple[Decision | None, str]:
    """What a higher term asks for; or what is wrong with it."""
    problem = ""
    for answer, theirs in others:
        if theirs.term <= own.term and not _only_received(own, theirs):
            break
        if not same_history(own, theirs):
            problem = (
                f"the broker at {answer.address} is of term {theirs.term}, of another history by "
                f"the same name ({own.name})"
            )
        elif theirs.term > own.term + LARGEST_TERM_STEP and not (own.is_empty or own.rejoining):
            problem = (
                f"the broker at {answer.address} reports term {theirs.term}, more than "
                f"{LARGEST_TERM_STEP} above {own.term}, the highest known here: it is ignored"
            )
        elif theirs.is_master:
            return (_followed(answer, theirs) if own.is_master else None), problem
        elif theirs.promised_to:
            found = _promise(own, answer, theirs)
            if found is not None:
                return found, problem
        elif _lost_record_of(own, theirs.term):
            return _forgot_term(f"the broker at {answer.address}", theirs.term), problem
        elif own.is_master:
            return _followed(answer, theirs), problem
    return None, problem


def of_slaves_term(own: PeerStatus, term: int, source: str) -> Decision:
    """What a master does that the slave at `source` has told of this higher term, and no peer."""
    if _lost_record_of(own, term):
        return _forgot_term(f"the slave {source}", term)
    return Follow("", term, f"the slave {source} has followed a master of term {term}")


def _lost_record_of(own: PeerStatus, term: int) -> bool:
    """A member promises itself a term of its own, durably, before another receives it."""
    member = own.members.find(own.member) if own.members is not None else None
    is_own = member is not None and slot_of(term) == member.slot
    return is_own and term > own.term and not own.rejoining


def _forgot_term(who: str, term: int) -> Forgot:
    return Forgot(
        f"{who} is of term {term}, which this member alone may have opened, and it has no record "
        "of it: its directory is older"
    )


def _only_received(own: PeerStatus, theirs: PeerStatus) -> bool:
    """Another member promised the term; this broker has received it, and promised it to none."""
    return (
        theirs.term == own.term > own.last_term
        and not own.is_master
        and not own.promised_to
        and bool(theirs.promised_to)
        and not theirs.is_master
    )


def _promise(own: PeerStatus, answer: PeerAnswer, theirs: PeerStatus) -> Decision | None:
    assert own.members is not None
    candidate = own.members.find(theirs.promised_to)
    if candidate is None or candidate.removed or slot_of(theirs.term) != candidate.slot:
        return None
    if not own.members.counts(candidate.name):
        # Being removed, it is promised nothing. A member that counts, and promised it the term
        # before it received the list, follows no master of a lower one.
        if not own.is_master or not own.members.counts(theirs.member):
            return None
        reason = (
            f"the broker at {answer.address} has promised term {theirs.term} to the member "
            f"{candidate.name}, which is being removed: promote another"
        )
        return Follow("", theirs.term, reason)
    if candidate.name == own.member:
        reason = (
            f"the broker at {answer.address} has promised term {theirs.term} to this member, which "
            "has no record of it: its directory is older"
        )
        return None if own.rejoining else Forgot(reason)
    reason = f"the member {candidate.name} is being promoted to term {theirs.term}"
    return PromiseTerm(candidate.address, theirs.term, candidate.name, reason)


def _followed(answer: PeerAnswer, theirs: PeerStatus) -> Follow:
    term = theirs.term
    if theirs.is_master:
        return Follow(
            answer.address, term, f"the broker at {answer.address} was promoted to term {term}"
        )
    return Follow(
        theirs.follows, term, f"the broker at {answer.address} has heard of a master of term {term}"
    )


def _is_rival(own: PeerStatus, theirs: PeerStatus) -> bool:
    return (
        theirs.is_master
        and theirs.term == own.term
        and related(own.generations, theirs.generations)
    )


def _of_rival(rival: tuple[PeerAnswer, PeerStatus], term: int) -> str:
    return (
        f"the broker at {rival[0].address} is a master of the same term {term}: demote one of the "
        "two (`stratamq replica demote`); neither takes messages before"
    )


def _longer(own: PeerStatus, others: Others) -> str:
    for answer, theirs in others:
        if theirs.term > own.term:
            continue
        end = longer_end(history_of(own), history_of(theirs), own_terms=own.members is not None)
        if end is not None:
            return longer_sentence(f"the broker at {answer.address}", end, history_of(own))
    return ""


def _different_members(own: PeerStatus, others: Others) -> str:
    for answer, theirs in others:
        if own.members is None or theirs.members is None or own.members.agrees(theirs.members):
            continue
        if theirs.members.version == own.members.version:
            return (
                f"the broker at {answer.address} has other members, or another number of required "
                "acknowledgements: ha.members and commitlog.required_replicas are the same on all"
            )
    return ""


def _founds(own: PeerStatus, others: Others) -> bool:
    """No acknowledgement or promise can have been lost: all members that must answer have empty
    logs and term 0; or no member of all has ever counted, and none has more.
    """
    assert own.members is not None
    empty = all(theirs.is_empty and theirs.term == 0 for _, theirs in others)
    if empty and len(others) >= own.members.founding_answers:
        return True
    return len(others) == own.members.count - 1 and all(
        theirs.rejoining
        and theirs.term <= own.term
        and (theirs.is_empty or same_history(theirs, own))
        and history_of(theirs).reach <= history_of(own).reach
        for _, theirs in others
    )


def _is_new(own: PeerStatus, others: Others, answers: Sequence[PeerAnswer]) -> str:
    assert own.members is not None
    silent = ", ".join(one.address for one in answers if one.peer_status is None)
    return (
        f"this directory is new in its cluster, or was put back from a backup: {len(others)} of "
        f"the {own.members.founding_answers} other members that must be heard answer"
        + (f" ({silent} do not)" if silent else "")
        + ", or one of them has messages: promote that one (`stratamq replica promote` there)"
    )


def _no_answer(answers: Sequence[PeerAnswer]) -> str:
    asked = ", ".join(f"{one.address} ({one.problem or 'not a member'})" for one in answers)
    return f"no other member reports whether one of them was promoted: {asked or 'none asked'}"


def _of_slave(own: PeerStatus, others: Others, connected: bool, problem: str) -> Decision:
    for answer, theirs in others:
        if not theirs.is_master or theirs.term < own.term or not same_history(own, theirs):
            continue
        refusal = _refusal_to_follow(own, theirs)
        if refusal:
            if not connected:
                way_out = _REPLACE_EMPTY if own.is_empty else ""
                found = f"the broker at {answer.address} is not followed: {refusal}{way_out}"
                problem = problem or found
            continue
        if answer.address == own.follows:
            return Stay(problem)
        if theirs.term > own.last_term or not connected:
            reason = f"the broker at {answer.address} is the master of term {theirs.term}"
            return Follow(answer.address, theirs.term, reason)
    return Stay(problem)


_REPLACE_EMPTY = (
    "; or, if that one is the right master, start this broker with a new directory: its log is "
    "empty, but what it has heard of may hold messages elsewhere"
)


def _refusal_to_follow(own: PeerStatus, master: PeerStatus) -> str:
    """Predict why the slave would refuse the master when it opens the connection."""
    keeps = MasterAnswer(Verdict.KEEP, 0, 0, 0, 0, "", "", master.generations, master.member)
    new = own.is_empty or own.rejoining
    return refusal_to_follow(history_of(own), own.term, own.promised_to, keeps, new)


class Joining:
    """When a rejoining slave counts again: enough other members that count have answered, or all
    others; none of them is at a higher term than the master that it follows, all have the same
    members in force; and it then has all that this master had at that moment. Whatever its
    directory has lost is below that: what was acknowledged since may be confirmed only later.
    """

    def __init__(self) -> None:
        self._goal: tuple[int, int] | None = None
        """(generation, end) of the master, by its answer."""

    def has_joined(self, own: PeerStatus, answers: Sequence[PeerAnswer], safe: int) -> bool:
        """`safe`: below here this log has its bytes as its flush setting requires."""
        others = usable(own, answers)
        master = self._master(own, others)
        if master is None:
            self._goal = None
            return False
        if self._goal is None or self._goal[0] != master.generation:
            self._goal = master.generation, master.end
        return safe >= self._goal[1]

    def _master(self, own: PeerStatus, others: Others) -> PeerStatus | None:
        if own.members is None or not own.rejoining or own.is_master:
            return None
        agreeing = [
            theirs
            for _, theirs in others
            if theirs.members is not None and own.members.agrees(theirs.members)
        ]
        # Two disks that were lost may have forgotten the same promise.
        count = sum(not theirs.rejoining for theirs in agreeing)
        enough = count >= own.members.rejoining_answers or len(agreeing) == own.members.count - 1
        if not own.members.counts(own.member) or not enough:
            return None
        master = next((theirs for theirs in agreeing if theirs.is_master), None)
        if master is None or master.rejoining or master.generation != own.generation:
            return None
        highest = max(own.term, *(theirs.term for _, theirs in others))
        return master if master.term >= highest else None
