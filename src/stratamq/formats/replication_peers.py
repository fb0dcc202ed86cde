"""What one StrataMQ broker asks another on the replication port: what are you, and how far?

    asker → peer   4     ff 53 54 50
    peer → asker   4     the same; RocketMQ's master says nothing
    asker → peer   u32 n, then n bytes: how the asker stands
    peer → asker   u32 n, then n bytes: how the peer stands

    how it stands  u64 instance  u8 role  u8 held  u16 term  i64 minimum  i64 end
                   u8 name bytes  name  u16 bytes  where its log takes messages
                   u16 bytes  where its slaves connect  u16 bytes  whom it follows
                   u16 count, count × (i64 generation, i64 start)

Both learn the same, so that a master hears of a promotion from whoever speaks first.
"""

import enum
import struct
from dataclasses import dataclass

from stratamq.formats.generation_number import GREATEST_TERM, last_term
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
    "B"  # role
    "B"  # held
    "H"  # term
    "q"  # minimum
    "q"  # end
)


class StandingRole(enum.IntEnum):
    """The numbers are those of `BrokerRole`."""

    ASYNC_MASTER = 1
    SYNC_MASTER = 2
    SLAVE = 3


@dataclass(frozen=True, slots=True)
class Standing:
    """How a broker stands. `instance`: at random for each process, to know oneself by. `held`: a
    master that takes no messages yet. `term`: the highest it has or has heard of. Addresses are ""
    where there is none."""

    instance: int
    role: StandingRole
    held: bool
    term: int
    minimum: int
    end: int
    name: str
    log_address: str
    replication_address: str
    follows: str
    generations: Generations

    @property
    def is_master(self) -> bool:
        return self.role is not StandingRole.SLAVE

    @property
    def last_term(self) -> int:
        """Of the history it has."""
        return last_term(self.generations)

    @property
    def generation(self) -> int:
        return self.generations[-1][0] if self.generations else 0


def encode_standing(standing: Standing) -> bytes:
    """With its length before it."""
    return with_length(
        _STANDS.pack(
            standing.instance,
            standing.role,
            standing.held,
            standing.term,
            standing.minimum,
            standing.end,
        )
        + encode_text(standing.name, U8)
        + encode_text(standing.log_address)
        + encode_text(standing.replication_address)
        + encode_text(standing.follows)
        + encode_generations(standing.generations)
    )


def decode_standing(data: bytes) -> Standing:
    """Without its length. CorruptRecordError."""
    reader = Reader(data)
    instance, role, held, term, minimum, end = reader.take(_STANDS)
    name = reader.text(U8)
    log_address, replication_address, follows = reader.text(), reader.text(), reader.text()
    generations = reader.generations()
    if role not in list(StandingRole) or held > 1 or term > GREATEST_TERM:
        raise reader.bad(f"role {role}, held {held}, term {term}")
    if not 0 <= minimum <= end or any(number < 0 for number, _ in generations):
        raise reader.bad(f"a log of [{minimum}, {end})")
    return Standing(
        instance,
        StandingRole(role),
        bool(held),
        term,
        minimum,
        end,
        name,
        log_address,
        replication_address,
        follows,
        generations,
    )
