"""The reasons against a promotion, and what will be missing after it. Pure.

The broker to promote is the one with the greatest (generation, end) of n − k members that have
promised the term to it: among them is one that has each acknowledged message (`formats.members`),
and each of them has stopped acknowledging to an older master. What the lost master had and shipped
to no member is known up to the end that it last reported.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from stratamq.formats.generation_number import LARGEST_TERM_STEP, next_term
from stratamq.formats.replication_peers import PeerStatus
from stratamq_ha.history import related
from stratamq_ha.peer_decisions import PeerAnswer
from stratamq_ha.peer_policy import history_of, usable


@dataclass(frozen=True, slots=True)
class MasterView:
    """This slave's last view of its master. `end`: the end of the master's log by its last report,
    −1 without one; `minimum`: where it begins, −1 likewise. `received`: up to here its
    bytes have come. `unrelated`: the two logs have no history in common."""

    address: str = ""
    minimum: int = -1
    end: int = -1
    received: int = -1
    unrelated: bool = False
    rocketmq: bool = False


@dataclass(frozen=True, slots=True)
class Assessment:
    """`against`: why not, unless it is forced; `missing`: what cannot be recovered. Sentences."""

    against: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def assess(
    own: PeerStatus,
    answers: Sequence[PeerAnswer],
    heard: MasterView,
    promised: int = 0,
    succeeds: str = "",
    asynchronous: bool = False,
) -> Assessment:
    """Before `own` is promoted. `answers`: of the other members and of the master it follows;
    `promised`: the term that they have been asked to promise, 0 before that. `succeeds`: the master
    that has ended its lead for this one. It counts for no quorum, so that what it has more, and did
    not acknowledge, is not needed. `asynchronous`: the lost master was an ASYNC_MASTER, so that it
    may have acknowledged what no other member has: that must not keep its slaves from leading,
    unless it is there, and `succeeds` names it."""
    others = usable(own, answers)
    candidacy = _Candidacy(own, others, promised, succeeds)
    against = [*_of_itself(own, heard), *candidacy.against()]
    for answer, theirs in others:
        if theirs.is_master and not theirs.held and not own.is_master:
            against.append(
                f"the broker at {answer.address} is a master and answers: demote it first "
                "(`stratamq replica demote` there), so that nothing is lost"
            )
        elif theirs.member == succeeds != "":
            continue
        elif not theirs.rejoining and _has_more(own, theirs):
            against.append(
                f"the broker at {answer.address} has more, up to {theirs.end} of term "
                f"{reach(theirs)[0]}: promote that one"
            )
    confirmed = [
        theirs.confirmed for _, theirs in others if related(own.generations, theirs.generations)
    ]
    known = max([own.confirmed, *confirmed])
    missing = [*_missing(own, answers, heard), *candidacy.uncovered()]
    if known > own.end:
        acknowledged = f"messages up to {known} were acknowledged, and this log ends at {own.end}"
        if asynchronous and not succeeds:
            missing.append(f"{acknowledged}: only the lost ASYNC_MASTER had them")
        else:
            against.append(f"{acknowledged}: promote one that has them")
    return Assessment(against, missing)


def _of_itself(own: PeerStatus, heard: MasterView) -> list[str]:
    against: list[str] = []
    if own.is_master and not own.held:
        against.append(f"this broker is the master already, of term {own.term}")
    if own.members is None:
        against.append(
            "members are not configured (ha.members): which brokers acknowledged messages "
            "that are not here is unknown, and nothing stops the old master"
        )
    elif not own.members.counts(own.member):
        against.append(f"this broker, {own.member}, was removed from its cluster")
    elif own.rejoining:
        against.append(
            "this directory is new in its cluster, or was put back from a backup, and has not "
            "joined: what it promised and acknowledged is not known"
        )
    if own.is_empty:
        against.append("this log is empty: what the lost master had would be gone")
    if heard.unrelated:
        against.append("this log has nothing of its master's history: it would replace it")
    return against


@dataclass(frozen=True, slots=True)
class _Candidacy:
    """n − k members, the candidate among them, must promise the term to it."""

    own: PeerStatus
    others: Sequence[tuple[PeerAnswer, PeerStatus]]
    promised: int
    """The term that they have been asked to promise; 0 before that."""
    succeeds: str
    """Counts for no candidate that succeeds it."""

    def against(self) -> list[str]:
        own, promised = self.own, self.promised
        members = own.members
        if members is None:
            return []
        against: list[str] = []
        for answer, theirs in self.others:
            if theirs.members is not None and not members.agrees(theirs.members):
                against.append(
                    f"the broker at {answer.address} has other members in force, of version "
                    f"{theirs.members.version}: they are {members.version} here"
                )
            if theirs.term > max(own.term, promised) + LARGEST_TERM_STEP:
                against.append(
                    f"the broker at {answer.address} reports term {theirs.term}: too high"
                )
            elif theirs.term > promised > 0 and theirs.promised_to:
                against.append(
                    f"the broker at {answer.address} has promised term {theirs.term} to "
                    f"{theirs.promised_to}: try again, if that one is not the master now"
                )
        have = self._have()
        if have < members.quorum:
            what = f"promised term {promised}" if promised else "answer"
            against.append(
                f"{have} of {members.count} members {what}, and {members.quorum} must: messages "
                f"that were acknowledged (PUT_OK) may be only at {self._lacking()}, and silent "
                "members may continue to acknowledge for the old master"
            )
        return against

    def uncovered(self) -> list[str]:
        """What a forced promotion without enough promises may lose."""
        members, have = self.own.members, self._have()
        if members is None or have >= members.quorum:
            return []
        return [
            f"only {have} of the {members.quorum} members that must promise have: acknowledged "
            f"messages (PUT_OK) that are only at {self._lacking()} are lost, and so is what the "
            "old master continues to acknowledge through them"
        ]

    def _have(self) -> int:
        return 1 + len(self._behind())

    def _behind(self) -> set[str]:
        """Members that count for this candidate, or can: exactly this term, to it alone."""
        own, promised = self.own, self.promised
        return {
            theirs.member
            for _, theirs in self.others
            if not (theirs.rejoining or (self.succeeds and theirs.member == self.succeeds))
            and (not promised or (theirs.term, theirs.promised_to) == (promised, own.member))
        }

    def _lacking(self) -> str:
        """The members that do not count for it."""
        own, counted = self.own, self._behind()
        members = own.members.others(own.member) if own.members is not None else ()
        return ", ".join(
            f"{one.name} ({one.address})" for one in members if one.name not in counted
        )


def candidate_term(own: PeerStatus, answers: Sequence[PeerAnswer]) -> int:
    """The term of a promotion: this member's next above all that are known of this history."""
    terms = [
        theirs.term
        for _, theirs in usable(own, answers)
        if related(own.generations, theirs.generations)
        and theirs.term <= own.term + LARGEST_TERM_STEP
    ]
    member = own.members.find(own.member) if own.members is not None else None
    return next_term(max([own.term, *terms]), member.slot if member is not None else None)


def _has_more(own: PeerStatus, theirs: PeerStatus) -> bool:
    """Whether their log has more of the same history."""
    return related(own.generations, theirs.generations) and reach(theirs) > reach(own)


def reach(peer_status: PeerStatus) -> tuple[int, int, int]:
    """See `History.reach`."""
    return history_of(peer_status).reach


def _missing(own: PeerStatus, answers: Sequence[PeerAnswer], heard: MasterView) -> list[str]:
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
    silent = [one.address for one in answers if one.peer_status is None]
    if silent:
        missing.append(
            f"{', '.join(silent)} did not answer: what is there, and was acknowledged there, is "
            "not known"
        )
    return missing
