"""A pull whose records are checked against what was written before a consumer is given them.

    the first record of the pull is damaged, or another queue's    CorruptionError
    a later one is                                                  the records before it; where to
                                                                    go on is at that one
    no record is where its unit says                                it is missing: `Checked.missing`

A record with a checksum of its own is verified by it, others by that of the body
(`formats.frame_verify`). Whose it is says the record itself: its topic and its queue id.
"""

from dataclasses import dataclass

import numpy as np

from stratamq.errors import CorruptionError, CorruptRecordError
from stratamq.formats.columns import columns_at, windows
from stratamq.formats.frame_verify import first_damaged
from stratamq.formats.message_status import PullStatus
from stratamq.formats.text import decode_text, encode_text
from stratamq.tier.containers.queue import TierQueue
from stratamq.tier.driver.calls import Procedure
from stratamq.tier.reading.pull import TierPull, pull
from stratamq.tier.reading.records import TierRecords


@dataclass(frozen=True, slots=True)
class Checked:
    """`missing`: queue offsets below `pulled.next` for which the tier has a unit, and no record."""

    pulled: TierPull
    missing: int = 0


def pull_checked(
    queue: TierQueue, offset: int, count: int, max_bytes: int, place: str
) -> Procedure[Checked]:
    """`place`: of the queue in the storage, for errors. CorruptionError."""
    pulled = yield from pull(queue, offset, count, max_bytes)
    if pulled.status not in (PullStatus.FOUND, PullStatus.NO_MATCHED_MESSAGE):
        return Checked(pulled)
    begin, records = queue.behind_hole(offset), pulled.messages
    wrong = first_wrong(records, queue.topic, queue.queue_id)
    if wrong is not None:
        number, reason = wrong
        at = int(records.offsets[number])
        if at == begin:
            raise CorruptionError(
                f"{place}: the record of queue offset {at} is {reason}: `stratamq tier verify` "
                "lists all such records",
                place,
            )
        records = records.between(0, number)
        status = PullStatus.FOUND if number else PullStatus.NO_MATCHED_MESSAGE
        pulled = TierPull(status, at, records)
    return Checked(pulled, pulled.next - begin - len(records))


def first_wrong(records: TierRecords, topic: str, queue_id: int) -> tuple[int, str] | None:
    """The first record that is not as it was written, or is not of this queue; and what it is."""
    if not len(records):
        return None
    damaged = first_damaged(records.buffer, records.starts, records.sizes)
    sound = records if damaged is None else records.between(0, damaged[0])
    foreign = _first_foreign(sound, topic, queue_id)
    if foreign is not None:
        return foreign, "another queue's"
    return None if damaged is None else (damaged[0], f"damaged ({damaged[1]})")


def _first_foreign(records: TierRecords, topic: str, queue_id: int) -> int | None:
    if not len(records):
        return None
    raw, name = np.frombuffer(records.buffer, np.uint8), np.frombuffer(encode_text(topic), np.uint8)
    try:
        columns = columns_at(raw, records.starts, records.sizes)
    except CorruptRecordError as error:  # its own checksum holds, and its lengths do not
        return int(error.fields["frame"])  # type: ignore[call-overload]
    ours = (columns.queue_id == queue_id) & (columns.topic_length == len(name))
    candidates = np.flatnonzero(ours)
    same = windows(raw, max(1, len(name)))[columns.topic_start[candidates]] == name
    ours[candidates] = same.all(axis=1)
    for number in np.flatnonzero(~ours).tolist():
        start, length = int(columns.topic_start[number]), int(columns.topic_length[number])
        written = decode_text(bytes(records.buffer[start : start + length]))
        if written != topic or int(columns.queue_id[number]) != queue_id:  # not malformed alone
            return int(number)
    return None
