"""Recovery as a table: what is seen at one place of the log selects exactly one lettered case.

The walk goes from a known good place frame by frame. At each place `judge` is asked, and `ENDS`
holds whether the log ends there. `tests/commitlog/test_recovery_cases.py` enumerates all inputs.

A  ACCEPT. A whole frame: lengths agree, the body matches, PHYSICALOFFSET is the place, the record
   checksum fits or there is none. The walk continues behind it.
B  NEXT_SEGMENT. A blank, and the segment after it exists: the walk continues there.
C  END_AT_BLANK. A blank, and nothing after it: the log ends where the blank begins, as RocketMQ's
   does. The next append writes the same blank again.
D  END_CLEAN. Zeros: nothing was ever written here, or recovery zeroed it.
E  END_TORN. The beginning of a frame that goes beyond the segment, or a length that is impossible:
   a write that did not finish, or garbage.
F  END_FOREIGN. No magic number of RocketMQ's, and not zero.
G  END_BODY. The body does not match BODYCRC.
H  END_MISPLACED. A frame whose PHYSICALOFFSET is another: bytes of an earlier use of the file.
I  END_RECORD. The checksum over the whole record does not fit.
J  END_SECTOR. Above our last durable position, without a record checksum: a whole 512-byte sector
   of the properties is zero, or the last byte of them (without properties: of the topic). The disk
   did not finish; RocketMQ would serve such a frame. A tear takes the checksum's name away, too.
K  END_QUEUE. Above our last durable position, of a queue that is in the snapshot: QUEUEOFFSET is
   not the next one. A frame from a history that was cut.
L  END_SEGMENT. The segment is used to its last byte and there is no next one.
"""

import enum
from dataclasses import dataclass

from stratamq.formats.frame_check import FrameOutcome


class WalkCase(enum.Enum):
    """The letter of the table above."""

    ACCEPT = "A"
    NEXT_SEGMENT = "B"
    END_AT_BLANK = "C"
    END_CLEAN = "D"
    END_TORN = "E"
    END_FOREIGN = "F"
    END_BODY = "G"
    END_MISPLACED = "H"
    END_RECORD = "I"
    END_SECTOR = "J"
    END_QUEUE = "K"
    END_SEGMENT = "L"


@dataclass(frozen=True, slots=True)
class WalkFacts:
    """What is seen at one place. The last four are looked at only for a whole frame."""

    outcome: FrameOutcome
    blank_fills_segment: bool = False
    """A blank declares exactly the bytes that are left."""
    next_segment_exists: bool = False
    in_place: bool = True
    """PHYSICALOFFSET is the place."""
    record_checksum: bool | None = None
    """Whether the property checksum fits; None: there is none."""
    zero_sector: bool = False
    """A sector or the end of the text is zero, and the place is above our durable position."""
    queue_in_order: bool = True
    """QUEUEOFFSET is the next, or nothing is known, or the place is below our durable position."""


_BY_OUTCOME = {
    FrameOutcome.ZERO: WalkCase.END_CLEAN,
    FrameOutcome.INCOMPLETE: WalkCase.END_TORN,
    FrameOutcome.BAD_MAGIC: WalkCase.END_FOREIGN,
    FrameOutcome.BAD_LENGTH: WalkCase.END_TORN,
    FrameOutcome.BODY_CRC: WalkCase.END_BODY,
    FrameOutcome.STRUCTURE: WalkCase.END_TORN,
}

DAMAGE = frozenset(
    {
        WalkCase.END_TORN,
        WalkCase.END_FOREIGN,
        WalkCase.END_BODY,
        WalkCase.END_MISPLACED,
        WalkCase.END_RECORD,
        WalkCase.END_SECTOR,
        WalkCase.END_QUEUE,
    }
)
"""Cases in which bytes that look written are cut; they are copied aside first."""

ENDS = frozenset(WalkCase) - {WalkCase.ACCEPT, WalkCase.NEXT_SEGMENT}


def judge(facts: WalkFacts) -> WalkCase:
    """The one case of these facts."""
    if facts.outcome is FrameOutcome.GOOD:
        return _judge_frame(facts)
    if facts.outcome is FrameOutcome.BLANK:
        if not facts.blank_fills_segment:
            return WalkCase.END_TORN
        return WalkCase.NEXT_SEGMENT if facts.next_segment_exists else WalkCase.END_AT_BLANK
    return _BY_OUTCOME[facts.outcome]


def _judge_frame(facts: WalkFacts) -> WalkCase:
    if not facts.in_place:
        return WalkCase.END_MISPLACED
    if facts.record_checksum is False:
        return WalkCase.END_RECORD
    if facts.record_checksum is None and facts.zero_sector:
        return WalkCase.END_SECTOR
    if not facts.queue_in_order:
        return WalkCase.END_QUEUE
    return WalkCase.ACCEPT
