"""What two StrataMQ brokers exchange before RocketMQ's protocol begins, on the same port.

    slave → master    4     ff 53 54 51
    master → slave    4     the same; RocketMQ's master sends nothing, having read no whole report
    slave → master    u32 n, then n bytes: what it has
    master → slave    u32 n, then n bytes: what it shall keep
                      from here on the 8+4+N frames of `replication`

    what it has         i64 end  i64 minimum  i64 segment bytes  u64 identity  u8 flags
                        u8 name bytes  name  u8 bytes  member
                        with flag 2 only: u16 bytes  problem
                        u16 count, count × (i64 generation, i64 start)
    what it shall keep  u8 verdict  u8 forgot  i64 cut to  i64 minimum  i64 end
                        i64 confirmed
                        u16 sentence bytes  sentence  u16 address bytes  address
                        u8 bytes  member
                        u16 count, count × (i64 generation, i64 start)

A master that lost what it had not flushed takes it back from a slave of its own: it opens with
ff 53 54 42, is answered with the same, and continues as a slave does.

Big-endian. The first byte of the mark makes an offset negative, which no peer sends.
"""

import enum
import struct
from dataclasses import dataclass

from stratamq.formats.replication_fields import (
    U8,
    Generations,
    Reader,
    encode_generations,
    encode_text,
    with_length,
)

MARK = b"\xffSTQ"
BACK_MARK = b"\xffSTB"
_HAS = struct.Struct(
    ">"
    "q"  # end of the slave's log
    "q"  # its minimum
    "q"  # bytes of a segment
    "Q"  # identity
    "B"  # flags
)
_REJOINING, _HAS_PROBLEM = 1, 2
_KEEPS = struct.Struct(
    ">"
    "B"  # verdict
    "B"  # forgot
    "q"  # cut to
    "q"  # the master's minimum
    "q"  # up to where it ships now
    "q"  # what it has confirmed
)


class Verdict(enum.IntEnum):
    """What a slave has to do before it gets anything."""

    KEEP = 0
    """Cut at `cut_to`, which may be its end, and go on from there."""
    BEGIN = 1
    """Empty its log: what it has ends below the master's minimum, or it has nothing."""
    UNRELATED = 2
    """It has something, and nothing of it is of the master's history: an operator must decide."""
    REFUSED = 3
    """The master does not take it; the sentence has the reason."""


@dataclass(frozen=True, slots=True)
class SlaveOpening:
    """A slave's report of its log. `name` is its broker's, `member` its own among the members, ""
    without them; `identity` is its directory's. `rejoining`: it does not count yet. `problem`:
    why its log did not take what it was sent; an earlier version refuses an opening with one."""

    end: int
    minimum: int
    segment_bytes: int
    name: str
    generations: Generations
    member: str = ""
    identity: int = 0
    rejoining: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class MasterAnswer:
    """The master's answer. `confirmed`: what its consumers may see. `address`: where its log takes
    messages, "" if that is not known. `member`: the master's name among the members. `forgot`: the
    slave's directory has less than it acknowledged to this master before."""

    verdict: Verdict
    cut_to: int
    minimum: int
    end: int
    confirmed: int
    sentence: str
    address: str
    generations: Generations
    member: str = ""
    forgot: bool = False


def encode_slave_opening(has: SlaveOpening) -> bytes:
    """With its length before it."""
    flags = _REJOINING * has.rejoining + _HAS_PROBLEM * bool(has.problem)
    return with_length(
        _HAS.pack(has.end, has.minimum, has.segment_bytes, has.identity, flags)
        + encode_text(has.name, U8)
        + encode_text(has.member, U8)
        + (encode_text(has.problem) if has.problem else b"")
        + encode_generations(has.generations)
    )


def encode_master_answer(keeps: MasterAnswer) -> bytes:
    """With its length before it."""
    return with_length(
        _KEEPS.pack(
            keeps.verdict,
            keeps.forgot,
            keeps.cut_to,
            keeps.minimum,
            keeps.end,
            keeps.confirmed,
        )
        + encode_text(keeps.sentence)
        + encode_text(keeps.address)
        + encode_text(keeps.member, U8)
        + encode_generations(keeps.generations)
    )


def decode_slave_opening(data: bytes) -> SlaveOpening:
    """Without its length. CorruptRecordError."""
    reader = Reader(data)
    end, minimum, segment_bytes, identity, flags = reader.take(_HAS)
    name, member = reader.text(U8), reader.text(U8)
    problem = reader.text() if flags & _HAS_PROBLEM else ""
    generations = reader.generations()
    if end < minimum or minimum < 0 or segment_bytes <= 0 or flags > _REJOINING + _HAS_PROBLEM:
        raise reader.bad(f"a log of [{minimum}, {end})")
    return SlaveOpening(
        end,
        minimum,
        segment_bytes,
        name,
        generations,
        member,
        identity,
        bool(flags & _REJOINING),
        problem,
    )


def decode_master_answer(data: bytes) -> MasterAnswer:
    """Without its length. CorruptRecordError."""
    reader = Reader(data)
    number, forgot, cut_to, minimum, end, confirmed = reader.take(_KEEPS)
    sentence, address, member = reader.text(), reader.text(), reader.text(U8)
    generations = reader.generations()
    if number not in list(Verdict) or forgot > 1 or min(cut_to, confirmed) < 0:
        raise reader.bad(f"verdict {number}, forgot {forgot}, cut to {cut_to}")
    if not 0 <= minimum <= end:
        raise reader.bad(f"a log of [{minimum}, {end})")
    return MasterAnswer(
        Verdict(number),
        cut_to,
        minimum,
        end,
        confirmed,
        sentence,
        address,
        generations,
        member,
        bool(forgot),
    )
