"""Status exchange between two StrataMQ brokers on the replication port: role, term and offsets.

    asker → peer   4     ff 53 54 50
    peer → asker   4     the same; RocketMQ's master sends nothing
    asker → peer   u32 n, then n bytes: how the asker stands
    peer → asker   u32 n, then n bytes: how the peer stands

    how it stands  u64 instance  u64 identity  u8 role  u8 held  u8 rejoining  u16 term
                   i64 minimum  i64 end  i64 confirmed
                   u8 name bytes  name  u8 bytes  member  u8 bytes  promised to
                   u16 bytes  where its log takes messages
                   u16 bytes  where its slaves connect  u16 bytes  its master
                   members in force: u32 version  u8 k  u8 count, count × (u8 slot  u8 removed
                                     u32 since  u8 bytes  name  u16 bytes  address); version 0: none
                   u16 count, count × (i64 generation, i64 start)

Both learn the same, so that a master receives a promotion whichever side asks first.
"""

import struct
from dataclasses import dataclass

from stratamq.formats.generation_number import GREATEST_TERM, last_term
from stratamq.formats.log_state import LogState, Role
from stratamq.formats.members import Member, Members, members_fault
from stratamq.formats.replication_fields import (
    U8,
    Generations,
    Reader,
    encode_generations,
    encode_text,
    with_length,
)

PEER_MARK = b"\xffSTP"
_STANDS = struct.Struct(
    ">"
    "Q"  # instance
    "Q"  # identity
    "B"  # role
    "B"  # held
    "B"  # rejoining
    "H"  # term
    "q"  # minimum
    "q"  # end
    "q"  # confirmed
)
_MEMBERS = struct.Struct(
    ">"
    "I"  # version
    "B"  # k
    "B"  # count
)
_MEMBER = struct.Struct(
    ">"
    "B"  # slot
    "B"  # removed
    "I"  # since
)


_ROLES = frozenset(role.value for role in Role)


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """A broker's state. `instance`: random for each process, so that a broker recognises itself.
    `held`: a master that takes no messages yet. `term`: the highest that the broker has or has
    heard of. Unknown addresses are "".

    `identity`: the directory's. `member`: the broker's name among `members`, "" without them.
    `promised_to`: the member to which `term` is durably promised; "": none. `rejoining`: the
    directory is new in the cluster and not counted in the quorum yet. `confirmed`: the offset up to
    which the log is known to be acknowledged.
    """

    instance: int
    role: Role
    held: bool
    term: int
    minimum: int
    end: int
    name: str
    log_address: str
    replication_address: str
    follows: str
    generations: Generations
    identity: int = 0
    member: str = ""
    promised_to: str = ""
    rejoining: bool = False
    confirmed: int = 0
    members: Members | None = None

    @property
    def is_empty(self) -> bool:
        """Its log holds nothing."""
        return self.end == self.minimum

    @property
    def is_master(self) -> bool:
        return self.role is not Role.SLAVE

    @property
    def last_term(self) -> int:
        """Return the last term in the broker's history."""
        return last_term(self.generations)

    @property
    def generation(self) -> int:
        return self.generations[-1][0] if self.generations else 0


def peer_status_of(
    facts: LogState,
    instance: int,
    end: int,
    log_address: str,
    replication_address: str,
    follows: str,
) -> PeerStatus:
    """How the broker with this log stands. `end`: of the log; `follows`: a slave's master."""
    assert facts.role is not None
    return PeerStatus(
        instance=instance,
        role=facts.role,
        held=bool(facts.held_reason),
        term=facts.term,
        minimum=facts.minimum_offset,
        end=end,
        name=facts.broker_name,
        log_address=log_address,
        replication_address=replication_address,
        follows=follows if facts.role is Role.SLAVE else "",
        generations=facts.generations,
        identity=facts.identity,
        member=facts.member,
        promised_to=facts.promised_to,
        rejoining=facts.rejoining,
        confirmed=max(facts.confirmed_offset, facts.master_confirmed_offset or 0),
        members=facts.members,
    )


def encode_peer_status(peer_status: PeerStatus) -> bytes:
    """With its length before it."""
    return with_length(
        _STANDS.pack(
            peer_status.instance,
            peer_status.identity,
            peer_status.role.value,
            peer_status.held,
            peer_status.rejoining,
            peer_status.term,
            peer_status.minimum,
            peer_status.end,
            peer_status.confirmed,
        )
        + encode_text(peer_status.name, U8)
        + encode_text(peer_status.member, U8)
        + encode_text(peer_status.promised_to, U8)
        + encode_text(peer_status.log_address)
        + encode_text(peer_status.replication_address)
        + encode_text(peer_status.follows)
        + _encode_members(peer_status.members)
        + encode_generations(peer_status.generations)
    )


def decode_peer_status(data: bytes) -> PeerStatus:
    """Without its length. CorruptRecordError."""
    reader = Reader(data)
    instance, identity, role, held, rejoining, term, minimum, end, confirmed = reader.take(_STANDS)
    name, member, promised_to = reader.text(U8), reader.text(U8), reader.text(U8)
    log_address, replication_address, follows = reader.text(), reader.text(), reader.text()
    members = _decode_members(reader)
    generations = reader.generations()
    if role not in _ROLES or max(held, rejoining) > 1 or term > GREATEST_TERM:
        raise reader.bad(f"role {role}, held {held}, rejoining {rejoining}, term {term}")
    if not 0 <= minimum <= end or confirmed < 0 or any(number < 0 for number, _ in generations):
        raise reader.bad(f"a log of [{minimum}, {end}), confirmed up to {confirmed}")
    return PeerStatus(
        instance,
        Role(role),
        bool(held),
        term,
        minimum,
        end,
        name,
        log_address,
        replication_address,
        follows,
        generations,
        identity,
        member,
        promised_to,
        bool(rejoining),
        confirmed,
        members,
    )


def _encode_members(members: Members | None) -> bytes:
    if members is None:
        return _MEMBERS.pack(0, 0, 0)
    return _MEMBERS.pack(members.version, members.required, len(members.members)) + b"".join(
        _MEMBER.pack(one.slot, one.removed, one.since)
        + encode_text(one.name, U8)
        + encode_text(one.address)
        for one in members.members
    )


def _decode_members(reader: Reader) -> Members | None:
    version, required, count = reader.take(_MEMBERS)
    found = []
    for _ in range(count):
        slot, removed, since = reader.take(_MEMBER)
        found.append(Member(slot, reader.text(U8), reader.text(), bool(removed), since))
    if not version:
        return None
    members = Members(version, required, tuple(found))
    fault = members_fault(members)
    if fault:
        raise reader.bad(fault)
    return members
