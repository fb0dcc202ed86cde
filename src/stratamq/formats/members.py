"""The members of a cluster of brokers of one name, and what a quorum of them is. Pure.

    n members, k required acknowledgements    PUT_OK of a SYNC_MASTER is on k + 1 members
    a promotion has the promises of n − k      (k + 1) + (n − k) > n: one of those has the message

A member's *slot* is its place in the configured list. It never changes, also when the member is
removed: terms of a member are congruent to its slot (`generation_number.next_term`), so that no two
members can open the same term.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from stratamq.formats.generation_number import SLOTS


@dataclass(frozen=True, slots=True)
class Member:
    """`address`: where its slaves connect. `removed`: an operator declared it dead for good.
    `since`: the version that admitted it; a directory that joined before does not count. Later
    than the version of the members: it is being removed."""

    slot: int
    name: str
    address: str
    removed: bool = False
    since: int = 1


@dataclass(frozen=True, slots=True)
class Members:
    """`version` grows by one with each operator's word; `required` is k. `members` by slot, removed
    ones included."""

    version: int
    required: int
    members: tuple[Member, ...]

    @property
    def active(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if not member.removed)

    @property
    def count(self) -> int:
        """n"""
        return len(self.active)

    @property
    def quorum(self) -> int:
        """So many members, the candidate included, promise a term before it is opened."""
        return self.count - self.required

    @property
    def rejoining_answers(self) -> int:
        """So many others that count must answer before a rejoining member does: with fewer, all
        that have a record of its promises could be silent. All others are enough, too."""
        return max(0, min(self.required + 1, self.count - 1))

    @property
    def founding_answers(self) -> int:
        """So many others are heard, and have nothing, before a new master founds a cluster: all.
        Of k + 1 that have an acknowledged message k may have lost their disks."""
        return max(0, self.count - 1)

    def find(self, name: str) -> Member | None:
        """Removed ones, too."""
        return next((member for member in self.members if member.name == name), None)

    def is_active(self, name: str) -> bool:
        member = self.find(name)
        return member is not None and not member.removed

    def counts(self, name: str) -> bool:
        """It is active, and not being removed."""
        member = self.find(name)
        return member is not None and not member.removed and member.since <= self.version

    def others(self, name: str) -> tuple[Member, ...]:
        return tuple(member for member in self.active if member.name != name)

    def agrees(self, other: "Members") -> bool:
        """The same members by name and slot, and the same k; addresses may differ."""
        return self._agreed() == other._agreed()

    def same_names(self, other: "Members") -> bool:
        """Compare members by name and slot, including removed ones."""
        ours = [(member.slot, member.name) for member in self.members]
        return ours == [(member.slot, member.name) for member in other.members]

    def _agreed(self) -> tuple[object, ...]:
        listed = tuple((m.slot, m.name, m.removed, m.since) for m in self.members)
        return self.version, self.required, listed

    def with_addresses_of(self, configured: "Members") -> "Members":
        """Addresses are each broker's own setting: they decide nothing."""
        found = {member.name: member.address for member in configured.members}
        members = [replace(m, address=found.get(m.name, m.address)) for m in self.members]
        return replace(self, members=tuple(members))

    def leaving(self, name: str) -> "Members":
        """An operator begins to remove an active member: it counts no more, n and k stay."""
        version = self.version + 1
        members = tuple(
            replace(m, since=version + 1) if m.name == name else m for m in self.members
        )
        return Members(version, self.required, members)

    def without(self, name: str) -> "Members":
        """An operator removes an active member; k becomes at most n − 1."""
        members = tuple(replace(m, removed=m.removed or m.name == name) for m in self.members)
        left = sum(not member.removed for member in members)
        return Members(self.version + 1, min(self.required, max(0, left - 1)), members)

    def admitting(self, member: Member, required: int) -> "Members":
        """An operator takes a removed member in again, or adds a new one. k grows by at most one,
        up to `required`: with n it keeps n − k, so that older PUT_OKs still meet each quorum."""
        version = self.version + 1
        rest = [
            one if one.since <= self.version else replace(one, since=version + 1)
            for one in self.members
            if one.name != member.name
        ]
        coming = replace(member, removed=False, since=version)
        members = tuple(sorted([*rest, coming], key=lambda m: m.slot))
        count = sum(not one.removed for one in members)
        grown = max(self.required, min(required, self.required + 1, count - 1))
        return Members(version, grown, members)

    def encode(self) -> dict[str, object]:
        """Encode as a JSON object."""
        return {
            "version": self.version,
            "required": self.required,
            "members": [[m.slot, m.name, m.address, m.removed, m.since] for m in self.members],
        }


def configured_members(pairs: Iterable[tuple[str, str]], required: int) -> Members:
    """Build version 1 of the members from (name, address) pairs in the order of the slots."""
    members = tuple(Member(slot, name, address) for slot, (name, address) in enumerate(pairs))
    return Members(1, min(required, max(0, len(members) - 1)), members)


def decode_members(document: object) -> Members:
    """ValueError, KeyError or TypeError for what is none."""
    if not isinstance(document, dict):
        raise ValueError("expected an object")
    members = []
    for slot, name, address, removed, since in document["members"]:
        members.append(Member(int(slot), str(name), str(address), removed is True, int(since)))
    found = Members(int(document["version"]), int(document["required"]), tuple(members))
    fault = members_fault(found)
    if fault:
        raise ValueError(fault)
    return found


def members_fault(members: Members) -> str:
    """Why these cannot be members; "" if they can."""
    slots = [member.slot for member in members.members]
    names = [member.name for member in members.members]
    if slots != sorted(set(slots)) or not all(0 <= slot < SLOTS for slot in slots):
        return f"slots are distinct, in order and below {SLOTS}, and not {slots}"
    if len(set(names)) != len(names) or not all(names):
        return f"names are distinct and not empty, and not {names}"
    if not 0 <= members.required <= max(0, members.count - 1):
        return f"k = {members.required} of {members.count} members"
    return ""
