"""A few frames of a master, read one by one, are what columns make of them: the same values, and
what is not read so, or is wrong, is left to the columns."""

import random

import pytest
from stratamq_commitlog.write import replicated_frames as module
from stratamq_commitlog.write.replicated_frames import ReplicatedFrames

from stratamq.errors import StrataError
from stratamq.formats import sysflag
from stratamq.formats.frame import encode_blank
from stratamq.formats.frame_layout import MAGIC_V2
from stratamq.formats.topics import SCHEDULE_TOPIC
from tests.support.logs import raw_frame

OFFSET, REMAINING = 1 << 33, 1 << 20
KINDS = (0, sysflag.TRANSACTION_PREPARED, sysflag.TRANSACTION_COMMIT, sysflag.TRANSACTION_ROLLBACK)
VALUES = ("count", "last_frame", "newest_ms", "runs", "next_offsets")


def found(data: bytes, remaining: int) -> tuple[object, ...]:
    """What is made of the bytes, by whichever way; the error of bytes that are refused."""
    try:
        read = module.read_replicated_frames(data, OFFSET, remaining)
    except StrataError as error:
        return type(error), error.message, error.fields
    return read.lengths.tolist(), *(getattr(read, name) for name in VALUES)


def alike(monkeypatch, data: bytes, remaining: int = REMAINING) -> bool:
    """Hold both against each other; whether the frames were read one by one."""
    few = module._few_frames(data, OFFSET, remaining)
    whole = found(data, remaining)
    with monkeypatch.context() as columns_only:
        columns_only.setattr(module, "MAX_FEW", 0)
        assert found(data, remaining) == whole
    return isinstance(few, ReplicatedFrames)


def frames(chance: random.Random, count: int) -> bytes:
    data, offsets = b"", {}
    for _ in range(count):
        queue = chance.choice(["orders", "t", "x" * 127]), chance.randrange(2)
        offset = offsets.get(queue, chance.randrange(1 << 40)) + chance.choice([0, 0, 0, 5])
        offsets[queue] = offset + 1
        body = chance.randbytes(chance.randrange(200))
        data += raw_frame(
            body,
            queue[0],
            queue_id=queue[1],
            queue_offset=offset,
            physical_offset=OFFSET + len(data),
            sys_flag=chance.choice(KINDS),
            store_timestamp_ms=chance.randrange(1 << 41),
        )
    return data


@pytest.mark.parametrize("seed", range(60))
def test_what_a_master_sends_is_read_one_by_one_as_columns_read_it(monkeypatch, seed):
    chance = random.Random(seed)
    assert alike(monkeypatch, frames(chance, chance.randrange(1, module.MAX_FEW)))


def test_with_any_byte_changed_both_read_the_same_or_refuse_alike(monkeypatch):
    good = frames(random.Random(7), 2)
    refused = 0
    for at in range(len(good)):
        for xor in (0x01, 0x10, 0x80, good[at]):
            changed = bytearray(good)
            changed[at] ^= xor
            alike(monkeypatch, bytes(changed))
            refused += isinstance(found(bytes(changed), REMAINING)[0], type)
    assert refused


def test_every_prefix_is_read_or_refused_alike(monkeypatch):
    good = frames(random.Random(8), 3)
    whole = [alike(monkeypatch, good[:end]) for end in range(1, len(good) + 1)]
    assert sum(whole) == 3


@pytest.mark.parametrize("left", [0, 1, 7, 8, 9, 40])
def test_near_a_segments_end_both_decide_alike(monkeypatch, left):
    good = frames(random.Random(9), 2)
    alike(monkeypatch, good, len(good) + left)
    assert not alike(monkeypatch, good, len(good) - 1)
    if left >= 8:
        assert not alike(monkeypatch, good + encode_blank(left), len(good) + left)


def test_what_is_not_plain_is_left_to_the_columns(monkeypatch):
    many = frames(random.Random(3), module.MAX_FEW + 1)
    scheduled = raw_frame(b"a", SCHEDULE_TOPIC, physical_offset=OFFSET)
    version2 = raw_frame(b"a", physical_offset=OFFSET, magic=MAGIC_V2)
    large = raw_frame(b"a" * (1 << 16), physical_offset=OFFSET)
    for data in (many, scheduled, version2, large):
        assert not alike(monkeypatch, data)
