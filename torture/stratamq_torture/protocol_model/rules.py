"""The rules of the protocol by name, each of which can be switched off, and a search's bounds."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

RULES = {
    "quorum": "a promotion needs n − k promises, the candidate's own included",
    "named_promises": "a promise counts for the candidate that it names, and for no other",
    "slot_terms": "a member opens only terms of its own residue: no two open the same",
    "fencing": "who promised a term acknowledges to no master of a lower one",
    "one_chain": "a slave follows no other chain of generations of a term that it has followed",
    "own_promise": "a term is opened only while the candidate's own promise is still for it",
    "reach": "a candidate is not opened below the reach of any that promised",
    "reach_of_empty": "a term counts in the reach once its start is reached, without a byte",
    "acknowledged_start": "an acknowledgement counts from the start of the master's generation on",
    "confirmed_travels": "a promotion below a known confirmed offset is refused",
    "one_member_once": "several connections of one member count once",
    "rejoining": "a new identity promises nothing and its acknowledgements do not count",
    "rejoining_hears": "it stays so until k + 1 others know no higher term than its master's",
    "rejoining_end": "and until it has its master's end, not only what was confirmed",
    "longer_history": "a master that learns of a longer history of its own holds and cuts no slave",
    "forgotten_generation": "an unknown generation of its own term is a longer history, too",
    "master_shows_confirmed": "consumers see on a master what k slaves have",
    "slave_shows_confirmed": "a slave shows at most what its master confirmed",
    "removal_at_master": "only a serving master removes a member",
    "removal_waits": "and only once all others have acknowledged everything that it has",
    "removal_in_two": "a member first stops counting, and the quorum shrinks by a later list",
    "removal_heard": "which is made once all that are left have the first, at no higher term",
    "joined_as": "a slave counts by what its directory joined as, against its master's list",
    "joining_agrees": "a member joins by answers of those that have the list that admits it",
}
"""Name and sentence."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Which rules hold."""

    quorum: bool = True
    named_promises: bool = True
    slot_terms: bool = True
    fencing: bool = True
    one_chain: bool = True
    own_promise: bool = True
    reach: bool = True
    reach_of_empty: bool = True
    acknowledged_start: bool = True
    confirmed_travels: bool = True
    one_member_once: bool = True
    rejoining: bool = True
    rejoining_hears: bool = True
    rejoining_end: bool = True
    longer_history: bool = True
    forgotten_generation: bool = True
    master_shows_confirmed: bool = True
    slave_shows_confirmed: bool = True
    removal_at_master: bool = True
    removal_waits: bool = True
    removal_in_two: bool = True
    removal_heard: bool = True
    joined_as: bool = True
    joining_agrees: bool = True

    def without(self, names: Iterable[str]) -> "Rules":
        """The same, with these switched off. TypeError for a name that is none."""
        return replace(self, **dict.fromkeys(names, False))


assert [each.name for each in fields(Rules)] == list(RULES)


@dataclass(frozen=True, slots=True)
class Scope:
    """What a search goes through: n members of which k acknowledge, and how often each thing may
    happen. A link that is cut needs no action of its own: whatever needs the other side may as
    well not happen."""

    members: int
    required: int
    entries: int = 1
    promotions: int = 2
    restarts: int = 0
    reconnects: int = 0
    losses: int = 0
    """Disks replaced by empty ones."""
    restores: int = 0
    """Disks put back to an earlier copy, with the command."""
    silent_restores: int = 0
    """The same without the command."""
    deaths: int = 0
    """Members that are gone for good, and may be removed."""
    removals: int = 0
    """Members that live and are removed: cut off, and taken for dead. Only where k + 1 of those
    that are left remain (k ≤ n − 2); else an operator has to know that it is dead."""
    admissions: int = 0
    """Members that are taken in again."""
    apart: int = 0
    """So many of the members, the last ones, were removed before, and do not know it; with
    k = n − 1, where one that lives would promote itself, their directories are new."""

    @property
    def title(self) -> str:
        parts = [f"n={self.members}, k={self.required}", f"log of {self.entries}"]
        for name in (
            "promotions",
            "restarts",
            "reconnects",
            "losses",
            "restores",
            "silent_restores",
            "deaths",
            "removals",
            "admissions",
            "apart",
        ):
            if getattr(self, name):
                parts.append(f"{name.replace('_', ' ')}: {getattr(self, name)}")
        return ", ".join(parts)
