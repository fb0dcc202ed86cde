"""What a master answers a slave that opens with its history. Pure.

The master's side carries it out: it sends the answer, and an `Obstacle` goes to its keeper.
"""

from dataclasses import dataclass, replace

from stratamq.formats.generation_number import LARGEST_TERM_STEP, last_term
from stratamq.formats.log_state import LogState
from stratamq.formats.replication_opening import MasterAnswer, SlaveOpening, Verdict
from stratamq_ha.history import History, judge, longer_end, longer_sentence, related
from stratamq_ha.master_connection import MasterLogView


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a slave is not served, by something that concerns the master itself."""

    sentence: str
    term: int | None = None
    """The slave is at this higher term of the master's history: the master steps down."""
    is_longer: bool = False
    """The slave has more of the master's history than the master."""


def obstacle(
    facts: LogState, ours: History, has: SlaveOpening, source: str = ""
) -> Obstacle | None:
    """Why the master with these facts does not serve the slave at `source`; None: there is an
    answer, `served`."""
    if has.name != facts.broker_name:
        return None
    if facts.rejoining and not facts.taking_back:
        return Obstacle("this master's directory is new in its cluster: it serves no slave")
    if not related(ours.generations, has.generations):
        return None
    if facts.taking_back:
        return Obstacle("this master first recovers from its slaves what it has lost")
    term = last_term(has.generations)
    if term > facts.term:
        sentence = f"this master is of term {facts.term}, and the slave is at term {term}"
        return Obstacle(sentence, term=term if term <= facts.term + LARGEST_TERM_STEP else None)
    theirs = History(has.generations, has.minimum, has.end)
    longer = longer_end(ours, theirs, own_terms=facts.members is not None)
    if longer is None:
        return None
    sentence = longer_sentence(f"the slave {has.member or source}", longer, ours)
    return Obstacle(sentence, is_longer=True)


def refused(sentence: str) -> MasterAnswer:
    return MasterAnswer(Verdict.REFUSED, 0, 0, 0, 0, sentence, "", ())


def served(
    facts: LogState,
    address: str,
    ours: History,
    has: SlaveOpening,
    view: MasterLogView,
    acknowledged: int,
) -> MasterAnswer:
    """The answer to a slave without an obstacle. `address`: where producers reach this log;
    `acknowledged`: how much the slave's directory has acknowledged to this master, −1: nothing."""
    answer = judge(
        ours,
        has,
        shippable=view.shippable,
        confirmed=view.confirmed,
        segment_bytes=view.segment_bytes,
        name=facts.broker_name,
        address=address,
        own_terms=facts.members is not None,
    )
    forgot = not has.rejoining and has.end < acknowledged
    return replace(answer, member=facts.member, forgot=forgot)
