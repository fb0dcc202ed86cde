"""How far two logs agree: what a slave keeps. Pure.

A generation's number is created once, and a log that lists it has the bytes that its creator
had, from the log's minimum to the generation's end. So the last non-empty generation of the slave
that the master has too is as far as they agree, to the lesser of its two ends.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from stratamq.formats.generation_number import LARGEST_TERM_STEP, last_term, term_of
from stratamq.formats.replication_fields import Generations
from stratamq.formats.replication_opening import MasterAnswer, SlaveOpening, Verdict


@dataclass(frozen=True, slots=True)
class History:
    """A log, as far as it is compared with another. Log offsets."""

    generations: Generations
    minimum: int
    end: int

    @property
    def reach(self) -> tuple[int, int, int]:
        """(the term of the last generation whose start the log has reached, the last generation
        that is not empty, the end): of two that hold the same promises, who has the greater one has
        every acknowledged byte of the other. A term counts without a byte of it: its start was
        accepted, and what an older one had beyond that was not acknowledged. Within a term one
        member writes, and a generation that it began and left empty holds nothing."""
        reached = [number for number, start in self.generations if start <= self.end]
        numbers = [number for number, _, _ in self.stretches()]
        return last_term((number, 0) for number in reached), max(numbers, default=0), self.end

    def stretches(self) -> Iterator[tuple[int, int, int]]:
        """(generation, start, end) of those that are not empty. The next one's start may be above
        the end: a slave has generations in its list whose first byte has not arrived."""
        for at, (number, start) in enumerate(self.generations):
            later = self.generations[at + 1 : at + 2]
            end = min(later[0][1], self.end) if later else self.end
            if max(start, self.minimum) < end:
                yield number, start, end


def related(ours: Generations, theirs: Generations) -> bool:
    """Both lists have a generation in common."""
    return not {number for number, _ in ours}.isdisjoint(number for number, _ in theirs)


def longer_end(master: History, other: History, *, own_terms: bool) -> int | None:
    """Where `other` ends in a generation that it has more of than the master, and that the master
    has left by no promotion since: the master's log has lost its end, or was put back from a
    backup. None if there is none. `own_terms`: no other broker opens generations of this master's
    term, so that one which it does not list was its own, and is forgotten."""
    if not related(master.generations, other.generations):
        return None
    theirs = {number: end for number, _, end in other.stretches()}
    found, end, term = None, master.end, last_term(master.generations)
    seen: set[int] = set()
    for number, start in reversed(master.generations):
        if term_of(number) == term and number not in seen and theirs.get(number, 0) > end:
            found = max(found or 0, theirs[number])
        seen.add(number)
        end = min(end, start)
    oldest = min(seen, default=0)
    for number, its_end in theirs.items():
        if own_terms and term_of(number) == term and number not in seen and number > oldest:
            found = max(found or 0, its_end)
    return found


def refusal_to_follow(
    slave: History, term: int, promised_to: str, keeps: MasterAnswer, new: bool
) -> str:
    """Why a slave at `term`, promised to `promised_to`, follows no master that answers
    `keeps`; "" if it may. `new`: it has no members and no term yet."""
    theirs = last_term(keeps.generations)
    if theirs < term:
        return (
            f"it is a master of term {theirs}, and this broker follows none below {term}: another "
            "was promoted, or is being promoted"
        )
    if theirs > term + LARGEST_TERM_STEP and not new:
        return (
            f"it is a master of term {theirs}, more than {LARGEST_TERM_STEP} above {term}, the "
            "highest known here: it is ignored. If it is right, mark this broker, stopped, as "
            "new (`stratamq replica restored`)"
        )
    if theirs > term:
        return ""
    ours = [number for number, _ in slave.generations if term_of(number) == term]
    listed = {number for number, _ in keeps.generations}
    if ours and ours[-1] not in listed and related(slave.generations, keeps.generations):
        return (
            f"it is a second master of term {term}: this broker has followed another one. Demote "
            "one of the two (`stratamq replica demote`), or, if its directory was put back from a "
            "backup, stop it and mark that (`stratamq replica restored`)"
        )
    if not ours and promised_to and promised_to != keeps.member:
        return f"term {term} is promised to the member {promised_to}"
    return ""


def shared_end(master: History, slave: History) -> int | None:
    """Up to here both logs are equal, as far as they reach back; None: they share nothing."""
    ends: dict[int, int] = {}
    for number, _, end in master.stretches():
        ends[number] = max(end, ends.get(number, 0))
    for number, _, end in reversed(list(slave.stretches())):
        if number in ends:
            return min(end, ends[number])
    return None


def judge(
    master: History,
    has: SlaveOpening,
    *,
    shippable: int,
    confirmed: int,
    segment_bytes: int,
    name: str,
    address: str,
    own_terms: bool,
) -> MasterAnswer:
    """What the slave that opened with `has` must do. `own_terms`: see `longer_end`."""

    def answer(verdict: Verdict, cut_to: int, sentence: str = "") -> MasterAnswer:
        return MasterAnswer(
            verdict,
            cut_to,
            master.minimum,
            shippable,
            confirmed,
            sentence,
            address,
            master.generations,
        )

    if has.name != name:
        return answer(Verdict.REFUSED, 0, f"this is broker {name}, and the slave is of {has.name}")
    if has.segment_bytes != segment_bytes:
        return answer(
            Verdict.REFUSED,
            0,
            f"segments have {segment_bytes} bytes here and {has.segment_bytes} at the slave "
            "(commitlog.segment_bytes): its log could not be byte-identical",
        )
    if has.end == has.minimum:
        return answer(Verdict.BEGIN, master.minimum)
    slave = History(has.generations, has.minimum, has.end)
    longer = longer_end(master, slave, own_terms=own_terms)
    if longer is not None:
        return answer(
            Verdict.REFUSED, 0, longer_sentence(f"the slave {has.member}", longer, master)
        )
    shared = shared_end(master, slave)
    if shared is None and master.end == master.minimum:
        return answer(
            Verdict.UNRELATED,
            master.minimum,
            f"the master's log is empty, and the slave's is [{has.minimum}, {has.end}): promote "
            "the slave (`stratamq replica promote` there), or let it start over with nothing "
            "(`stratamq replica resync`; what it has is kept)",
        )
    if shared is None:
        return answer(
            Verdict.UNRELATED,
            master.minimum,
            f"nothing of the slave's log [{has.minimum}, {has.end}) is known to be of this log's "
            "history (`stratamq replica resync` on the slave starts over; its log is moved aside)",
        )
    if shared < master.minimum or shared <= has.minimum:
        return answer(
            Verdict.BEGIN,
            master.minimum,
            f"the logs agree up to {shared}, and this one begins at {master.minimum}",
        )
    return answer(Verdict.KEEP, shared)


def longer_sentence(who: str, end: int, master: History) -> str:
    """The message of a master when another log has more of its own history than it has itself."""
    return (
        f"{who.strip()} has this log's history up to {end}, and this log ends at {master.end}: its "
        "directory was put back from a backup, or lost its end. Nothing is taken, and no slave is "
        "cut: stop this broker, mark it (`stratamq replica restored`), start it, and promote one "
        "that has more; or give up what the others have (`stratamq replica promote --force` here)"
    )
