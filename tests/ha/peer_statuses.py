"""The peer status of brokers, as lines of text.

broker   role [held] [new] T<term> [<generations>] minimum–end [for=<promised to>] [confirmed=<n>]

A broker's member name is the host of its address; new: its directory is rejoining. The own one is
x:1, of slot 0; a, b, c and m are of slots 1 to 4. Members and k are "xac 1", or "" for none.
"""

import itertools

from stratamq_ha.peer_decisions import PeerAnswer

from stratamq.formats.generation_number import make_number
from stratamq.formats.log_state import Role
from stratamq.formats.members import Member, Members
from stratamq.formats.replication_peers import PeerStatus

ROLES = {"async": Role.ASYNC_MASTER, "sync": Role.SYNC_MASTER}
SLOTS = {"x": 0, "a": 1, "b": 2, "c": 3, "m": 4}
_instances = itertools.count(1)


def among(text: str, version: int = 1, removed: str = "") -> Members | None:
    """`xac 1`: three members, one required acknowledgement."""
    if not text:
        return None
    names, _, required = text.partition(" ")
    members = [Member(SLOTS[name], name, f"{name}:1", name in removed) for name in names]
    members.sort(key=lambda member: member.slot)
    return Members(version, int(required), tuple(members))


def broker(
    text: str, address: str = "x:1", name: str = "b", members: Members | None = None
) -> PeerStatus:
    """`async held T1 [0.1@0 1.1@500] 0–600`: 0.1@0 is the first start of term 0, at log offset
    0."""
    words = text.replace("[", "").replace("]", "").split()
    role = ROLES.get(words[0], Role.SLAVE)
    generations, term, minimum, end, follows, promised_to = [], 0, 0, 0, "", ""
    confirmed = 0
    for word in words[1:]:
        if word.startswith("T"):
            term = int(word[1:])
        elif "@" in word:
            number, _, start = word.partition("@")
            numbered = make_number(*map(int, number.split(".")), int(number.partition(".")[2]))
            generations.append((numbered, int(start)))
        elif word.startswith("follows="):
            follows = word.removeprefix("follows=")
        elif word.startswith("for="):
            promised_to = word.removeprefix("for=")
        elif word.startswith("confirmed="):
            confirmed = int(word.removeprefix("confirmed="))
        elif "–" in word:
            minimum, end = map(int, word.split("–"))
    return PeerStatus(
        next(_instances), role, "held" in words, term, minimum, end, name, "", address, follows,
        generations, 7, address.partition(":")[0] if members else "", promised_to,
        "new" in words, confirmed, members,
    )  # fmt: skip


def answers(*others: str, members: Members | None = None) -> list[PeerAnswer]:
    """`a:1 slave T0 …`, or `a:1 Connection refused`."""
    found = []
    for text in others:
        address, _, rest = text.partition(" ")
        is_status = rest.split()[0] in ("async", "sync", "slave")
        peer_status = broker(rest, address, members=members) if is_status else None
        found.append(PeerAnswer(address, peer_status, "" if is_status else rest))
    return found


SLAVE = "slave T0 [0.1@0 0.2@500] 0–600 follows=m:1"
