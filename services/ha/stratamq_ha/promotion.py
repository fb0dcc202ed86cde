"""What speaks against a promotion, and what will be missing after it. Pure.

The broker to promote is the one with the greatest (generation, end): it has everything that any
other slave has. What the lost master had and shipped to nobody is known as far as it was heard of.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from stratamq.formats.replication_peers import Standing
from stratamq_ha.history import History
from stratamq_ha.peer_policy import Answer, related, usable


@dataclass(frozen=True, slots=True)
class Heard:
    """What this slave knows of its master. `end`: how far the master's log went when it last said
    so, −1 if it never did; `minimum`: where it begins, −1 likewise. `received`: up to here its
    bytes have come. `stranger`: the two logs have no history in common."""

    address: str = ""
    minimum: int = -1
    end: int = -1
    received: int = -1
    stranger: bool = False
    rocketmq: bool = False


@dataclass(frozen=True, slots=True)
class Assessment:
    """`against`: why not, unless it is forced; `missing`: what nobody can bring back. Sentences."""

    against: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def assess(own: Standing, answers: Sequence[Answer], heard: Heard, promised: int = 0) -> Assessment:
    """Before `own` is promoted. `answers`: of its peers and of the master it follows; `promised`:
    the term that they have been asked to promise, 0 before that."""
    against: list[str] = []
    others = usable(own, answers)
    if own.is_master and not own.held:
        against.append(f"this broker is the master already, of term {own.term}")
    if own.end == own.minimum:
        against.append("this log is empty: what the lost master had would be gone")
    if heard.stranger:
        against.append("this log has nothing of its master's history: it would replace it")
    for answer, theirs in others:
        if theirs.is_master and not theirs.held and not own.is_master:
            against.append(
                f"the broker at {answer.address} is a master and answers: demote it first "
                "(`stratamq replica demote` there), so that nothing is lost"
            )
        elif _has_more(own, theirs):
            against.append(
                f"the broker at {answer.address} has more, up to {theirs.end} of generation "
                f"{reach(theirs)[0]}: promote that one"
            )
        elif theirs.term < promised and related(own.generations, theirs.generations):
            against.append(
                f"the broker at {answer.address} has not promised term {promised} in time: it may "
                "go on acknowledging what the old master sends"
            )
        elif theirs.term > promised > 0:
            against.append(
                f"the broker at {answer.address} has promised term {theirs.term} to another: try "
                "again, if that one is not the master now"
            )
    return Assessment(against, _missing(own, others, answers, heard))


def next_term(own: Standing, answers: Sequence[Answer]) -> int:
    """Higher than any that is known of this history."""
    terms = [
        theirs.term
        for _, theirs in usable(own, answers)
        if related(own.generations, theirs.generations)
    ]
    return max([own.term, *terms]) + 1


def _has_more(own: Standing, theirs: Standing) -> bool:
    """By (generation, end), of the same history; a generation without a byte does not count."""
    return related(own.generations, theirs.generations) and reach(theirs) > reach(own)


def reach(standing: Standing) -> tuple[int, int]:
    """(the last generation that is not empty, the end): who has the greatest has the most."""
    history = History(standing.generations, standing.minimum, standing.end)
    numbers = [number for number, _, _ in history.stretches()]
    return (numbers[-1] if numbers else 0), standing.end


def _missing(
    own: Standing,
    others: Sequence[tuple[Answer, Standing]],
    answers: Sequence[Answer],
    heard: Heard,
) -> list[str]:
    missing: list[str] = []
    if heard.minimum >= 0 and heard.minimum < own.minimum:
        missing.append(
            f"the log begins at {own.minimum}, and the master's began at {heard.minimum}: these "
            f"{own.minimum - heard.minimum} bytes were never shipped (ha.sync_from=LAST)"
        )
    elif own.minimum > 0 and heard.minimum < 0:
        rule = (
            "a RocketMQ master ships the last segment only to a new slave"
            if heard.rocketmq
            else "its retention deleted it, or it was never shipped"
        )
        missing.append(
            f"the log begins at {own.minimum}: what the master had before that is not here ({rule})"
        )
    if own.is_master:
        return missing
    known = max(heard.end, heard.received)
    if known > own.end:
        missing.append(
            f"the master had at least {known} bytes of log, and this one ends at {own.end}: the "
            f"last {known - own.end} bytes are on the master only"
        )
    elif heard.end < 0:
        missing.append(
            "this broker's replication service has not heard how far the master's log went: "
            "whether all of it is here is not known"
        )
    silent = [one.address for one in answers if one.standing is None]
    if silent:
        missing.append(
            f"{', '.join(silent)} did not answer: what is there, and was acknowledged there, is "
            "not known"
        )
    return missing
