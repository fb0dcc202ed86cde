"""What goes wrong without a rule: the smallest scope in which the search finds it, or the steps.

Some rules are a second line behind another; they bite when that one fails too, and are switched off
together with it.
"""

from dataclasses import dataclass

from stratamq_torture.protocol_model.rules import Scope


@dataclass(frozen=True, slots=True)
class Counterexample:
    """`rule` switched off, with `others`, breaks `promise` in the scope; all of them but `rule` do
    not. `steps`: the way there where searching for it takes long; empty: the search finds it."""

    rule: str
    scope: Scope
    promise: str
    others: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()


_RIVALS = (
    "A appends",
    "B is to be promoted to 1",
    "C promises B term 1",
    "B opens term 1",
    "B appends",
)
"""A and B have a message each that no other member has, B's of the higher term."""

_REPLACED = (
    "A appends",
    "B copies from A",
    "A learns that B has 1",
    "B is to be promoted to 1",
    "C promises B term 1",
    "B opens term 1",
    "C follows B",
    "C copies from B",
    "B appends",
    "C copies from B",
    "B learns that C has 2",
)
"""B has replaced A, which does not know it, and has acknowledged with C."""

_PROMOTED_ALONE = (
    "B takes over A's list of members",
    "A learns of B",
    "A is to be promoted to 3",
    "A opens term 3",
)

COUNTEREXAMPLES = (
    Counterexample("quorum", Scope(3, 1, promotions=1), "lost"),
    Counterexample("named_promises", Scope(3, 1, promotions=2), "term", others=("slot_terms",)),
    Counterexample("slot_terms", Scope(3, 2, promotions=2), "term"),
    Counterexample("fencing", Scope(3, 1, promotions=1), "lost"),
    Counterexample(
        "one_chain",
        Scope(2, 1, entries=2, promotions=0, restarts=1, silent_restores=1),
        "cut",
        others=("longer_history", "forgotten_generation"),
        steps=(
            "A appends",
            "B copies from A",
            "A learns that B has 1",
            "A's disk is copied",
            "A restarts",
            "A learns of B",
            "B follows A",
            "A appends",
            "B copies from A",
            "A learns that B has 2",
            "A is restored to the copy, without the command",
            "B follows A",
        ),
    ),
    Counterexample("own_promise", Scope(3, 1, promotions=2), "lost"),
    Counterexample("reach", Scope(3, 1, promotions=1), "lost"),
    Counterexample(
        "reach_of_empty",
        Scope(3, 1, promotions=3),
        "lost",
        steps=(
            *_RIVALS,
            "A learns of B",
            "A is to be promoted to 3",
            "C promises A term 3",
            "A opens term 3",
            "C follows A",
            "C copies from A",
            "A learns that C has 1",
            "B learns of A",
            "B is to be promoted to 4",
            "C promises B term 4",
            "B opens term 4",
        ),
    ),
    Counterexample(
        "acknowledged_start",
        Scope(3, 1, entries=2, promotions=3),
        "lost",
        steps=(
            "A appends",
            *_RIVALS,
            "A learns of B",
            "A is to be promoted to 3",
            "C promises A term 3",
            "A opens term 3",
            "C follows A",
            "C copies from A",
            "A learns that C has 1",
            "B learns of A",
            "B is to be promoted to 4",
            "C promises B term 4",
            "B opens term 4",
        ),
    ),
    Counterexample(
        "confirmed_travels",
        Scope(2, 1, promotions=1, losses=1),
        "lost",
        others=("rejoining",),
        steps=(
            "A appends",
            "B copies from A",
            "A learns that B has 1",
            "B's disk is replaced by an empty one",
            "B follows A",
            "B is to be promoted to 1",
            "B opens term 1",
        ),
    ),
    Counterexample("one_member_once", Scope(3, 2, promotions=1, reconnects=1), "lost"),
    Counterexample("rejoining", Scope(2, 1, promotions=1, losses=1), "lost"),
    Counterexample("rejoining_hears", Scope(3, 1, promotions=1, losses=1), "lost"),
    Counterexample(
        "rejoining_end",
        Scope(3, 2, promotions=2, losses=1),
        "lost",
        steps=(
            "A appends",
            "B copies from A",
            "C copies from A",
            "A learns that B has 1",
            "A learns that C has 1",
            "C is to be promoted to 2",
            "C opens term 2",
            "B's disk is replaced by an empty one",
            "B follows C",
            "B learns of A",
            "B has rejoined",
            "B is to be promoted to 4",
            "B opens term 4",
        ),
    ),
    Counterexample("longer_history", Scope(2, 1, promotions=0, silent_restores=1), "lost"),
    Counterexample(
        "forgotten_generation", Scope(2, 1, promotions=0, restarts=1, silent_restores=1), "lost"
    ),
    Counterexample("master_shows_confirmed", Scope(2, 1, promotions=1), "lost"),
    Counterexample("slave_shows_confirmed", Scope(3, 2, promotions=1), "lost"),
    Counterexample("removal_at_master", Scope(3, 1, promotions=1, deaths=1), "lost"),
    Counterexample("removal_waits", Scope(3, 1, promotions=1, deaths=1), "lost"),
    Counterexample(
        "removal_in_two",
        Scope(3, 1, entries=2, promotions=2, removals=1),
        "lost",
        steps=(*_REPLACED, "C is removed at A", *_PROMOTED_ALONE),
    ),
    Counterexample(
        "removal_heard",
        Scope(3, 1, entries=2, promotions=2, removals=1),
        "lost",
        steps=(
            *_REPLACED,
            "C is to be removed at A",
            "C is removed at A",
            *_PROMOTED_ALONE,
        ),
    ),
    Counterexample("joined_as", Scope(3, 1, promotions=1, admissions=1, apart=1), "lost"),
    Counterexample("joining_agrees", Scope(3, 1, promotions=1, admissions=1, apart=1), "lost"),
)
