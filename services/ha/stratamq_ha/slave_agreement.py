"""What a slave does after its master's response to its opening. Pure.

The owner of the connection carries it out: it cuts the log, or leaves the master.
"""

from dataclasses import dataclass, replace

from stratamq.formats.log_state import LogState
from stratamq.formats.replication_opening import MasterAnswer, SlaveOpening, Verdict
from stratamq_ha.history import History, refusal_to_follow
from stratamq_ha.promotion import MasterView


@dataclass(frozen=True, slots=True)
class Agreed:
    """The log is cut to `offset`, or emptied to begin there."""

    offset: int
    empty: bool


@dataclass(frozen=True, slots=True)
class NotAgreed:
    """The master is left. `reason` is one constant word, `sentence` for people."""

    reason: str
    sentence: str
    rejoins: bool = False
    """First mark the directory as rejoining, durably."""
    needs_resync: bool = False
    """Only an operator's `replica resync` continues from here."""


def learned(view: MasterView, keeps: MasterAnswer) -> MasterView:
    """What is known of the master after its answer."""
    return replace(
        view,
        minimum=keeps.minimum,
        end=max(view.end, keeps.end),
        unrelated=keeps.verdict is Verdict.UNRELATED and keeps.end > keeps.minimum,
    )


def opening_of(facts: LogState) -> SlaveOpening:
    """What the slave with this log reports when it connects."""
    return SlaveOpening(
        facts.appended_offset,
        facts.minimum_offset,
        facts.segment_bytes,
        facts.broker_name,
        facts.generations,
        facts.member,
        facts.identity,
        facts.rejoining,
    )


def agree(
    facts: LogState,
    keeps: MasterAnswer,
    address: str,
    *,
    may_begin_anew: bool = False,
    from_last_segment: bool = False,
) -> Agreed | NotAgreed:
    """Whether the slave that opened with `opening_of(facts)` follows the master at `address`, and
    from where. `may_begin_anew`: an operator gave up what its log has; `from_last_segment`: it
    begins at the master's last segment, not at its minimum (`ha.sync_from`)."""
    has, has_members = opening_of(facts), facts.members is not None
    if keeps.verdict is Verdict.REFUSED:
        return NotAgreed("refused", f"the master refuses this slave: {keeps.sentence}")
    ours = History(has.generations, has.minimum, has.end)
    is_empty = has.end == has.minimum
    new = has.rejoining or is_empty
    refusal = refusal_to_follow(ours, facts.term, facts.promised_to, keeps, new)
    if refusal:
        return NotAgreed("term", f"{address}: {refusal}")
    if keeps.forgot and has_members:
        return NotAgreed(
            "forgot",
            f"this directory ends at {has.end}, and acknowledged more to {address} "
            "before: rejoining, not counted in the quorum until it has that again",
            rejoins=True,
        )
    if keeps.verdict is Verdict.UNRELATED and not may_begin_anew:
        return NotAgreed("stranger", keeps.sentence, needs_resync=True)
    if keeps.verdict is Verdict.UNRELATED and has_members and not has.rejoining:
        # What it promised and acknowledged goes aside with its log.
        sentence = "this broker starts over: rejoining, not counted in the quorum"
        return NotAgreed("anew", sentence, rejoins=True)
    if keeps.verdict is Verdict.KEEP:
        return Agreed(keeps.cut_to, empty=False)
    if from_last_segment:
        return Agreed(keeps.end - keeps.end % has.segment_bytes, empty=True)
    return Agreed(keeps.minimum, empty=True)
