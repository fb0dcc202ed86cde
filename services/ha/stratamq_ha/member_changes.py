"""What a master requires before its members change.

remove    it neither answers nor is connected ──► the first list: it stops counting, n and k stay
          ──► all that are left have this list, confirm this master and have everything
          ──► the second list: it is removed, n and k shrink
admit     k others that count confirm this master ──► it counts once it has joined by this list

To confirm a master is to report the same members and no higher term. Two lists that differ by one
change have quorums that meet: a promotion by the list before needs a member that has the one after.
Example of what one list less would lose, n = 3, k = 1:
1. b is promoted with the promise of c; b and c acknowledge. a, which is cut off, hears of neither.
2. a removes c: b had acknowledged everything that a has. By this list one promise is enough.
3. b takes the list over, and a promotes itself alone, without what b and c have.

NotWritableError with the reason against it; InvalidRequestError for what is no change.
"""

from collections.abc import Sequence

from stratamq.errors import InvalidRequestError, NotWritableError
from stratamq.formats.members import Member, Members
from stratamq.formats.replication_peers import PeerStatus
from stratamq_ha.peer_decisions import PeerAnswer
from stratamq_ha.peer_policy import usable
from stratamq_ha.slaves import SlaveState

_FORCE = "(--force removes it all the same)"


def check_removal(own: PeerStatus, name: str) -> Members:
    """The members in force, of which `name` can be removed here."""
    members = _members(own)
    if not own.is_master or own.held:
        raise NotWritableError(
            "a member is removed at the master, while it takes messages: when it is the master "
            "that is dead, promote another first",
            "members",
        )
    if not members.is_active(name):
        raise InvalidRequestError(f"{name!r} is no active member")
    if name == own.member:
        raise InvalidRequestError("a member is removed at another one")
    return members


def check_gone(
    members: Members, name: str, answers: Sequence[PeerAnswer], slaves: Sequence[SlaveState]
) -> None:
    """`name` acknowledges nothing from now on."""
    member = members.find(name)
    assert member is not None
    found = next((one for one in answers if one.address == member.address), None)
    if found is not None and found.peer_status is not None:
        raise NotWritableError(
            f"the member {name} answers at {member.address}: it is not dead. Stop it first "
            f"{_FORCE}",
            "members",
        )
    slave = next((one for one in slaves if one.connected and one.member == name), None)
    if slave is not None:
        raise NotWritableError(
            f"the member {name} is connected as a slave from {slave.address}: it is not dead. Stop "
            f"it first {_FORCE}",
            "members",
        )


def lacking(own: PeerStatus, name: str, slaves: Sequence[SlaveState]) -> list[str]:
    """Those that are left without `name` and do not count with everything that this master has."""
    whole = {one.member for one in slaves if one.counts and one.acknowledged >= own.end}
    return sorted({one.name for one in _members(own).others(own.member)} - whole - {name})


def check_whole(name: str, missing: Sequence[str]) -> None:
    if missing:
        raise NotWritableError(
            f"{', '.join(missing)} must be connected and have everything first: what only {name} "
            f"guaranteed would be lost {_FORCE}",
            "members",
        )


def unconfirmed(own: PeerStatus, name: str, answers: Sequence[PeerAnswer]) -> list[str]:
    """Those that are left without `name` and do not confirm this master."""
    others = {one.name for one in _members(own).others(own.member)}
    return sorted(others - _confirming(own, answers) - {name})


def check_confirmed(own: PeerStatus, name: str, missing: Sequence[str]) -> Members:
    """The first list, in force and confirmed by all that are left: the second may come."""
    if missing or not own.is_master or own.held:
        raise NotWritableError(
            f"{name} no longer counts, and its removal is not complete: "
            f"{', '.join(missing) or own.member} did not confirm that this broker is the master, "
            "by the new list of members. Start or reach them, and remove it again",
            "members",
        )
    return _members(own)


def with_member(
    own: PeerStatus,
    name: str,
    answers: Sequence[PeerAnswer],
    configured: Members | None,
    required: int,
) -> Members:
    """The members once `name` is taken in, again or for the first time. `configured`: `ha.members`.
    `required`: `commitlog.required_replicas`."""
    members = _members(own)
    if not own.is_master or own.held:
        # One that waits may have been replaced: two lists would have one version.
        raise NotWritableError(
            "a member is admitted at the master, while it takes messages", "members"
        )
    if members.counts(name):
        raise InvalidRequestError(f"{name!r} is a member")
    heard = _confirming(own, answers)
    others = [one for one in members.others(own.member) if members.counts(one.name)]
    needed = min(members.required, len(others))
    if len(heard) < needed:
        silent = [f"{one.name} ({one.address})" for one in others if one.name not in heard]
        raise NotWritableError(
            f"{needed} other members must confirm that this broker is the master, and these did "
            f"not: {', '.join(silent)}. One of them may have been promoted: start or reach them "
            "first",
            "members",
        )
    wanted = configured.find(name) if configured is not None else None
    member = members.find(name) or wanted
    if member is None:
        raise InvalidRequestError(f"{name!r} is not among ha.members")
    if wanted is not None:
        member = Member(member.slot, name, wanted.address)
    if any(one.slot == member.slot and one.name != name for one in members.members):
        raise InvalidRequestError(
            f"slot {member.slot} belonged to another member: new ones come last in ha.members, "
            "removed ones stay in it"
        )
    return members.admitting(member, required)


def cost_of_removal(before: Members, after: Members, name: str) -> list[str]:
    return [
        f"{after.count} of {before.count} members are left, and {after.required} acknowledgements "
        f"of slaves are required instead of {before.required}",
        f"if {name} lives, and others take it for a member, it may have acknowledged messages that "
        "the rest does not have, or be the master: stop it for good, or take it in again "
        f"(`stratamq replica admit {name}`)",
    ]


def _members(own: PeerStatus) -> Members:
    if own.members is None:
        raise InvalidRequestError("this broker has no members (ha.members)")
    return own.members


def _confirming(own: PeerStatus, answers: Sequence[PeerAnswer]) -> set[str]:
    """Every promotion has the promises of n − k members: one of k + 1 would have promised, so that
    a master that k others confirm is not replaced."""
    members = _members(own)
    return {
        theirs.member
        for _, theirs in usable(own, answers)
        if theirs.members is not None
        and members.agrees(theirs.members)
        and not theirs.rejoining
        and theirs.term <= own.term
    }
