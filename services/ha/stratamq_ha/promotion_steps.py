"""The steps of a promotion, in order, without a log, a network or a clock.

    ask ──► assess ──► this log promises the term ──► ask until the others have ──► assess ──► open

The driver of `promote` carries out each step that it yields, and sends back the result of an `Ask`;
a step that fails ends the promotion.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from stratamq.formats.replication_peers import PeerStatus
from stratamq_ha.peer_decisions import PeerAnswer
from stratamq_ha.peer_policy import usable
from stratamq_ha.promotion import Assessment, MasterView, assess, candidate_term

PROMISE_ATTEMPTS = 15
"""How often the others are asked whether they have promised the term."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the other members for their peer status; `promises`: whether they promise the term.
    `Asked` is sent back."""

    promises: bool


@dataclass(frozen=True, slots=True)
class Asked:
    """`own`: this broker's peer status; `heard`: what is known of its master. Both as they are
    once the answers are there."""

    own: PeerStatus
    answers: Sequence[PeerAnswer]
    heard: MasterView


@dataclass(frozen=True, slots=True)
class Join:
    """This directory counts as a member, durably: the operator takes responsibility for what it
    has forgotten."""


@dataclass(frozen=True, slots=True)
class Promise:
    """Leave the master, and promise `term` to `candidate`, this member, durably as a slave."""

    term: int
    candidate: str
    reason: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait until the others may have done what they were asked for."""


@dataclass(frozen=True, slots=True)
class Open:
    """The log becomes a master of `term`, durably."""

    term: int
    reason: str


Step = Ask | Join | Promise | Pause | Open


@dataclass(frozen=True, slots=True)
class PromotionOutcome:
    """`refused`: for the reasons in the assessment; `promised`: this log has promised the term."""

    term: int
    assessment: Assessment
    refused: bool
    promised: bool


Promotion = Generator[Step, Asked | None, PromotionOutcome]


def promote(*, force: bool, succeeds: str = "", asynchronous: bool = False) -> Promotion:
    """`force`: reasons against it are no obstacle. `succeeds`, `asynchronous`: see `assess`."""
    asked = yield from _ask(promises=False)
    own = asked.own
    assessment = assess(
        own, asked.answers, asked.heard, succeeds=succeeds, asynchronous=asynchronous
    )
    term = candidate_term(own, asked.answers)
    if assessment.against and not force:
        return PromotionOutcome(term, assessment, refused=True, promised=False)
    if own.members is not None:
        if own.rejoining:
            yield Join()
        yield Promise(term, own.member, f"it is being promoted to term {term}")
        asked = yield from _ask_for_promises(succeeds)
        # Those who promised have left an older master: their ends are final.
        assessment = assess(asked.own, asked.answers, asked.heard, term, succeeds, asynchronous)
        if assessment.against and not force:
            return PromotionOutcome(term, assessment, refused=True, promised=True)
    yield Open(term, f"it was promoted to term {term}")
    return PromotionOutcome(term, assessment, refused=False, promised=own.members is not None)


def _ask_for_promises(succeeds: str) -> Generator[Step, Asked | None, Asked]:
    """Until all members that answer have promised the term, or after the last attempt. The one that
    it succeeds, whose disk may hang, is not waited for."""
    for attempt in range(PROMISE_ATTEMPTS):
        if attempt:
            yield Pause()
        asked = yield from _ask(promises=True)
        others = [theirs for _, theirs in usable(asked.own, asked.answers)]
        if all(one.promised_to == asked.own.member for one in others if one.member != succeeds):
            break
    return asked


def _ask(*, promises: bool) -> Generator[Step, Asked | None, Asked]:
    asked = yield Ask(promises)
    assert asked is not None
    return asked
