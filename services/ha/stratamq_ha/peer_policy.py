"""What a broker does when it knows how its peers stand. Pure.

    this broker is                and                                       it
    a master                      hears of a higher term of its history     stops writing, follows
    a master that waits           nobody of its peers answers               waits, unless forced
                                  it has nothing, and a peer is the master  follows that peer
                                  it has nothing, and a peer has something  waits for an operator
                                  a peer is master of the same term         waits for an operator
                                  none of these                             takes messages
    a master that takes messages  none of these                             goes on
    a slave                       hears that one is being promoted to a     promises it: follows no
                                  higher term                               master of a lower term
                                  knows no master that answers, and a peer  follows that peer
                                  is one

A history is the same as ours if any generation is in both lists: a broker of another history, by
the same name or not, can stop nobody.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from stratamq.formats.replication_fields import Generations
from stratamq.formats.replication_peers import Standing


@dataclass(frozen=True, slots=True)
class Answer:
    """What was heard of the broker at `address`: how it stands, or why not."""

    address: str
    standing: Standing | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """Take no messages, for that reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Serve:
    """Take messages."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Be a slave of the broker at `address`, "" if that is not known yet. `term`: what was heard
    of; `reason`: a sentence that is kept."""

    address: str
    term: int
    reason: str


@dataclass(frozen=True, slots=True)
class Promise:
    """Of a slave: follow the broker at `address` from `term` on, and no master of a lower one.

    It is durable before whoever is promoted takes a message: a master that was only cut off gets no
    acknowledgement any more when it is back.
    """

    address: str
    term: int
    reason: str


@dataclass(frozen=True, slots=True)
class Stay:
    """All is as it should be, or as it was. `problem`: what people should know."""

    problem: str = ""


Decision = Wait | Serve | Follow | Promise | Stay


def related(ours: Generations, theirs: Generations) -> bool:
    """Both lists have a generation in common."""
    return not {number for number, _ in ours}.isdisjoint(number for number, _ in theirs)


def usable(own: Standing, answers: Sequence[Answer]) -> list[tuple[Answer, Standing]]:
    """Answers of others that share this broker's name, those of the highest term first."""
    found = [
        (answer, answer.standing)
        for answer in answers
        if answer.standing is not None
        and answer.standing.name == own.name
        and answer.standing.instance != own.instance
    ]
    return sorted(found, key=lambda pair: (pair[1].term, pair[1].is_master), reverse=True)


def decide(
    own: Standing, answers: Sequence[Answer], *, forced: bool = False, connected: bool = False
) -> Decision:
    """`forced`: an operator lets this start go on although no peer answers. `connected`: this slave
    follows its master."""
    others = usable(own, answers)
    if not own.is_master:
        return _of_slave(own, others, connected)
    stranger = ""
    for answer, theirs in others:
        if theirs.term <= own.term:
            break
        if related(own.generations, theirs.generations) or own.end == own.minimum:
            return _followed(answer, theirs)
        stranger = (
            f"the broker at {answer.address} is of term {theirs.term}, of another history by the "
            f"same name ({own.name})"
        )
    rival = next((pair for pair in others if _is_rival(own, pair[1])), None)
    if not own.held:
        return Stay(_of_rival(rival[0].address, own.term) if rival else stranger)
    if stranger:
        return Wait(stranger + _FORCE)
    if rival is not None:
        return Wait(_of_rival(rival[0].address, own.term))
    if forced:
        return Serve()
    if not others:
        return Wait(_nobody(answers) + _FORCE)
    if own.end == own.minimum:
        for answer, theirs in others:
            if theirs.is_master and not theirs.held:
                reason = f"this log is empty, and the broker at {answer.address} is the master"
                return Follow(answer.address, theirs.term, reason)
        longer = max(others, key=lambda pair: pair[1].end - pair[1].minimum)
        if longer[1].end > longer[1].minimum:
            return Wait(
                f"this log is empty, and the broker at {longer[0].address} has "
                f"[{longer[1].minimum}, {longer[1].end}): promote that one (`stratamq replica "
                "promote` there)" + _FORCE
            )
    return Serve()


_FORCE = "; `stratamq replica promote --force` lets this one take messages all the same"


def _followed(answer: Answer, theirs: Standing) -> Follow:
    term = theirs.term
    if theirs.is_master:
        return Follow(
            answer.address, term, f"the broker at {answer.address} was promoted to term {term}"
        )
    return Follow(
        theirs.follows, term, f"the broker at {answer.address} has heard of a master of term {term}"
    )


def _is_rival(own: Standing, theirs: Standing) -> bool:
    return (
        theirs.is_master
        and not theirs.held
        and theirs.term == own.term
        and related(own.generations, theirs.generations)
    )


def _of_rival(address: str, term: int) -> str:
    return (
        f"the broker at {address} is a master of the same term {term}: demote one of the two "
        "(`stratamq replica demote`)"
    )


def _nobody(answers: Sequence[Answer]) -> str:
    told = ", ".join(f"{one.address} ({one.problem or 'not a peer'})" for one in answers)
    return (
        f"none of this master's peers says whether one of them was promoted: {told or 'none asked'}"
    )


def _of_slave(own: Standing, others: list[tuple[Answer, Standing]], connected: bool) -> Decision:
    empty = own.end == own.minimum
    for answer, theirs in others:
        if theirs.term <= own.term:
            break
        if not (empty or related(own.generations, theirs.generations)):
            continue
        if theirs.is_master:
            break
        itself = theirs.follows == theirs.replication_address
        address = answer.address if itself else theirs.follows
        if address and address != own.replication_address:
            reason = f"the broker at {address} is being promoted to term {theirs.term}"
            return Promise(address, theirs.term, reason)
    for answer, theirs in others:
        if not theirs.is_master or theirs.term < own.term:
            continue
        if not (empty or related(own.generations, theirs.generations)):
            continue
        if answer.address == own.follows:
            return Stay()
        if theirs.term > own.last_term or not connected:
            reason = f"the broker at {answer.address} is the master of term {theirs.term}"
            return Follow(answer.address, theirs.term, reason)
    return Stay()
