"""The walk over one segment, held against the scalar codec: prefixes, flips, stale bytes."""

import random

import pytest
from stratamq_commitlog.recovery import log_walk
from stratamq_commitlog.recovery.log_walk import SegmentWalk, Strictness, Walked, survey
from stratamq_commitlog.recovery.recovery_cases import DAMAGE, ENDS, WalkCase

from stratamq.files.simulated import SimulatedDisk
from stratamq.formats.frame import Frame, encode_blank
from stratamq.formats.property_crc import fill_property_crc, reserve
from tests.support.logs import FIXED, Store, batch, message, queue_table, raw_frame, read_members

SEGMENT = 2048


def small_log(**settings) -> bytes:
    """One segment with puts, a batch, a delayed message and a half one; its end is zeros."""
    store = Store(SEGMENT, **settings)
    store.start()
    store.put(b"first", properties={"TAGS": "a", "KEYS": "k1 k2"})
    store.put(b"", topic="empty")
    store.put(b"later", delay_level=3)
    if not settings.get("property_checksum"):
        store.put_batch(batch([b"one", b"two" * 20], queue_id=1))
    store.put(b"half", half=True)
    store.put(b"last", properties={"note": "é" * 5})
    return store.segments()[0]


def walk(content: bytes, *, base: int = 0, next_exists: bool = False, **strict) -> tuple:
    disk = SimulatedDisk()
    files = disk.files()
    files.create("s", len(content))
    file = files.open("s", writable=True)
    file.write(0, content)
    walked = Walked(base, {})
    steps = SegmentWalk(file, base, walked, Strictness(**strict), next_exists)
    while (case := steps.step()) is None:
        pass
    return case, walked


def expected_end(content: bytes) -> int:
    """Where the scalar codec stops, a blank counted as an end."""
    ends = [0] + [
        at + len(raw) for at, raw, value in read_members({0: content}) if isinstance(value, Frame)
    ]
    return ends[-1]


def boundaries(content: bytes) -> list[int]:
    return [at for at, _, _ in read_members({0: content})] + [expected_end(content)]


@pytest.fixture(scope="module")
def plain() -> bytes:
    return small_log()


@pytest.fixture(scope="module")
def sealed() -> bytes:
    """Every frame ends in a checksum of the whole record."""
    return small_log(property_checksum=True)


def test_the_walk_reads_a_whole_log_to_its_end_and_learns_its_queues(plain):
    case, walked = walk(plain)
    frames = [value for _, _, value in read_members({0: plain})]
    assert (case, walked.end) == (WalkCase.END_CLEAN, expected_end(plain))
    assert walked.frames == len(frames) == 7
    assert walked.queues == queue_table(frames)
    assert walked.last_frame == (frames[-1].physical_offset, frames[-1].total_size)
    assert walked.store_timestamp_ms == frames[-1].store_timestamp_ms


@pytest.mark.parametrize("kind", ["plain", "sealed"])
def test_every_prefix_of_our_own_log_ends_at_its_last_whole_frame(kind, request):
    content = request.getfixturevalue(kind)
    whole = boundaries(content)
    for size in range(whole[-1] + 1):
        torn = content[:size].ljust(SEGMENT, b"\0")
        case, walked = walk(torn, durable=0)
        assert walked.end == max(end for end in whole if torn[:end] == content[:end]), size
        assert case in ENDS


def test_every_prefix_of_a_foreign_log_ends_where_rocketmq_would(plain):
    """A frame torn in its properties alone is accepted: no field shows that it is torn."""
    for size in range(expected_end(plain) + 1):
        torn = plain[:size].ljust(SEGMENT, b"\0")
        assert walk(torn)[1].end == expected_end(torn), size


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_every_flipped_byte_of_a_checksummed_log_ends_it_at_that_frame(sealed, mask):
    """All but those of the checksum's name: without it a frame is one without a checksum."""
    members = read_members({0: sealed})
    for start, raw, _ in members:
        end = start + len(raw)
        for at in {*range(start, end - 20), *range(end - 11, end - 1)}:
            flipped = bytearray(sealed)
            flipped[at] ^= mask
            case, walked = walk(bytes(flipped))
            assert (walked.end, case in DAMAGE) == (start, True), at


@pytest.mark.parametrize("mask", [0x01, 0x04, 0x80, 0xFF])
def test_every_flipped_byte_of_a_plain_log_is_judged_as_the_scalar_codec_does(plain, mask):
    for at in range(expected_end(plain) + 8):
        flipped = bytearray(plain)
        flipped[at] ^= mask
        content = bytes(flipped)
        assert walk(content)[1].end == expected_end(content), at


def test_random_damage_never_raises_and_never_passes_the_scalar_end(plain):
    chance = random.Random(5)
    for _ in range(600):
        damaged = bytearray(plain)
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(SEGMENT)
            damaged[at : at + chance.randrange(1, 9)] = chance.randbytes(chance.randrange(1, 9))
        content = bytes(damaged[:SEGMENT]).ljust(SEGMENT, b"\0")
        assert walk(content)[1].end == expected_end(content)


@pytest.mark.parametrize("chunk", [128, 300, 700])
def test_the_walk_does_not_depend_on_the_size_of_its_chunks(plain, chunk, monkeypatch):
    monkeypatch.setattr(log_walk, "MIN_CHUNK_BYTES", chunk)
    monkeypatch.setattr(log_walk, "MAX_CHUNK_BYTES", chunk)
    reference = walk(plain)
    assert reference[1].end == expected_end(plain)
    for at in range(0, SEGMENT, 3):
        flipped = bytearray(plain)
        flipped[at] ^= 0xFF
        content = bytes(flipped)
        assert walk(content)[1].end == expected_end(content)


@pytest.fixture(scope="module")
def alike() -> tuple[bytes, list[int]]:
    """More frames of one size than are looked at one by one, then others; where each begins."""
    content, starts = bytearray(), []
    for number, body in enumerate([b"same"] * 90 + [b"a longer one"] * 3 + [b"same"] * 40):
        starts.append(len(content))
        frame = raw_frame(body, physical_offset=len(content), queue_offset=number)
        content += frame
    return bytes(content), starts


def test_many_frames_of_one_size_are_walked_one_by_one_or_together(alike):
    content, starts = alike
    case, walked = walk(content + bytes(SEGMENT))
    assert (case, walked.end, walked.frames) == (WalkCase.END_CLEAN, len(content), len(starts))


@pytest.mark.parametrize("byte", [0, 3, 4, 7, 8, 30, 90])
def test_among_frames_of_one_size_the_first_bad_one_ends_the_log(alike, byte):
    content, starts = alike
    for number, start in enumerate(starts):
        damaged = bytearray(content + bytes(SEGMENT))
        damaged[start + byte] ^= 0xFF
        case, walked = walk(bytes(damaged))
        assert case in DAMAGE
        assert (walked.end, walked.frames) == (start, number)


def test_among_frames_of_one_size_zeros_end_the_log_at_any_frame(alike):
    content, starts = alike
    for number, start in enumerate(starts):
        case, walked = walk(content[:start].ljust(len(content), b"\0"))
        assert (case, walked.end, walked.frames) == (WalkCase.END_CLEAN, start, number)


# --- blanks ---


def blank_behind(frames: int, garbage: bytes = b"") -> bytes:
    content = b"".join(
        raw_frame(b"x", physical_offset=at * (FIXED + 7), queue_offset=at) for at in range(frames)
    )
    left = SEGMENT - len(content)
    return (content + encode_blank(left) + garbage).ljust(SEGMENT, b"\0")


def test_a_blank_leads_to_the_next_segment_if_there_is_one():
    content = blank_behind(3)
    assert walk(content, next_exists=True)[0] is WalkCase.NEXT_SEGMENT
    assert walk(content, next_exists=True)[1].end == SEGMENT
    case, walked = walk(content)
    assert (case, walked.end) == (WalkCase.END_AT_BLANK, 3 * (FIXED + 7))


def test_garbage_behind_a_blank_is_not_looked_at():
    garbage = raw_frame(b"a stale frame") * 3
    assert walk(blank_behind(2, garbage), next_exists=True)[0] is WalkCase.NEXT_SEGMENT


def test_a_blank_that_does_not_fill_its_segment_is_torn():
    for wrong in (-1, 1, -100):
        content = bytearray(blank_behind(2))
        at = 2 * (FIXED + 7)
        content[at : at + 8] = encode_blank(SEGMENT - at + wrong)
        assert walk(bytes(content), next_exists=True)[0] is WalkCase.END_TORN


def test_a_blank_of_exactly_eight_bytes_is_a_blank():
    body = b"." * (SEGMENT - 8 - FIXED - 6)
    content = raw_frame(body) + encode_blank(8)
    assert len(content) == SEGMENT
    assert walk(content, next_exists=True)[0] is WalkCase.NEXT_SEGMENT
    assert walk(content)[0] is WalkCase.END_AT_BLANK


def test_a_segment_used_to_its_last_byte_continues_in_the_next():
    content = raw_frame(b"." * (SEGMENT - FIXED - 6))
    assert len(content) == SEGMENT
    assert walk(content, next_exists=True)[0] is WalkCase.NEXT_SEGMENT
    assert walk(content)[0] is WalkCase.END_SEGMENT


# --- what is checked beyond RocketMQ ---


def test_a_frame_with_another_physical_offset_ends_the_log():
    good = raw_frame(b"x")
    stale = raw_frame(b"x", physical_offset=len(good) + 1, queue_offset=1)
    case, walked = walk((good + stale).ljust(SEGMENT, b"\0"))
    assert (case, walked.end) == (WalkCase.END_MISPLACED, len(good))


def test_a_wrong_record_checksum_ends_the_log_and_a_right_one_does_not():
    frame = bytearray(raw_frame(b"x", properties=reserve(b"")))
    fill_property_crc(frame)
    assert walk(bytes(frame).ljust(SEGMENT, b"\0"))[0] is WalkCase.END_CLEAN
    frame[-3] ^= 1
    case, walked = walk(bytes(frame).ljust(SEGMENT, b"\0"))
    assert (case, walked.end) == (WalkCase.END_RECORD, 0)


def sector_zeroed() -> tuple[bytes, int]:
    """A frame whose properties hold one zeroed sector; its end."""
    frame = bytearray(raw_frame(b"x", properties=b"k\x01" + b"v" * 1400))
    frame[512:1024] = bytes(512)
    return bytes(frame).ljust(SEGMENT, b"\0"), len(frame)


def test_a_zero_sector_in_properties_ends_the_log_only_above_the_durable_position():
    content, end = sector_zeroed()
    assert walk(content, durable=0)[:1] == (WalkCase.END_SECTOR,)
    assert walk(content, durable=None)[1].end == end
    assert walk(content, durable=end)[1].end == end


@pytest.mark.parametrize("properties", [b"k\x01value", b""])
def test_text_that_ends_in_a_zero_byte_is_torn_above_the_durable_position(properties):
    whole = raw_frame(b"x", properties=properties)
    frame = bytearray(whole)
    frame[-1 if properties else -3] = 0
    content = bytes(frame).ljust(SEGMENT, b"\0")
    assert walk(content, durable=0)[0] is WalkCase.END_SECTOR
    assert walk(content, durable=len(frame))[1].end == len(frame)
    assert walk(content, durable=None)[1].end == len(frame)
    assert walk(whole.ljust(SEGMENT, b"\0"), durable=0)[1].end == len(frame)


def test_zeros_that_do_not_fill_a_sector_of_the_file_are_no_sign_of_a_tear():
    frame = bytearray(raw_frame(b"x", properties=b"k\x01" + b"v" * 1400))
    frame[513:1024] = bytes(511)
    content = bytes(frame).ljust(SEGMENT, b"\0")
    assert walk(content, durable=0)[1].end == len(frame)


def test_sectors_are_those_of_the_file_wherever_a_chunk_begins():
    first = raw_frame(b"y" * 77)
    frame = bytearray(
        raw_frame(
            b"x", properties=b"k\x01" + b"v" * 1400, physical_offset=len(first), queue_offset=1
        )
    )
    start = 1024 - len(first)
    frame[start : start + 512] = bytes(512)
    content = (first + bytes(frame)).ljust(SEGMENT, b"\0")
    assert walk(content, durable=0) == (WalkCase.END_SECTOR, walk(content, durable=0)[1])
    assert walk(content, durable=0)[1].end == len(first)
    # The same frame met at the beginning of a chunk.
    disk = SimulatedDisk()
    files = disk.files()
    files.create("s", SEGMENT)
    file = files.open("s", writable=True)
    file.write(0, content)
    walked = Walked(len(first), {})
    assert SegmentWalk(file, 0, walked, Strictness(durable=0), False).step() is WalkCase.END_SECTOR


def queue_jump() -> tuple[bytes, int]:
    first = raw_frame(b"x", queue_offset=0)
    second = raw_frame(b"x", queue_offset=5, physical_offset=len(first))
    return (first + second).ljust(SEGMENT, b"\0"), len(first)


def test_a_queue_offset_out_of_order_ends_the_log_only_for_queues_the_snapshot_knows():
    content, first = queue_jump()
    known = frozenset({("orders", 0)})
    assert walk(content, durable=0, known=known)[1].end == first
    assert walk(content, durable=0, known=known)[0] is WalkCase.END_QUEUE
    for kept in (
        walk(content, durable=None, known=known),
        walk(content, durable=0, known=frozenset({("orders", 1)})),
        walk(content, durable=first + 1, known=known),
    ):
        assert kept[1].end == 2 * first
        assert kept[1].queue_jumps == 1
        assert kept[1].queues == {("orders", 0): 6}


def test_prepared_and_rollback_frames_do_not_move_the_queue():
    frames, offset = b"", 0
    for kind in (0x4, 0xC, 0x0, 0x8):
        frame = raw_frame(
            b"x",
            sys_flag=kind,
            physical_offset=offset,
            queue_offset=offset // 98 if kind in (0, 8) else 0,
        )
        frames += frame
        offset += len(frame)
    _, walked = walk(frames.ljust(SEGMENT, b"\0"))
    assert walked.frames == 4
    assert walked.queues == {("orders", 0): 98 * 3 // 98 + 1}


def test_an_unreadable_delay_ends_the_log_as_in_rocketmq():
    frame = raw_frame(b"x", topic="SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x01soon")
    assert walk(frame.ljust(SEGMENT, b"\0"))[0] is WalkCase.END_TORN
    other = raw_frame(b"x", topic="orders", properties=b"DELAY\x01soon")
    assert walk(other.ljust(SEGMENT, b"\0"))[0] is WalkCase.END_CLEAN


def test_bodies_are_not_verified_when_switched_off():
    frame = bytearray(raw_frame(b"xxxx"))
    frame[90] ^= 1
    content = bytes(frame).ljust(SEGMENT, b"\0")
    assert walk(content)[0] is WalkCase.END_BODY
    assert walk(content, verify_bodies=False)[1].end == len(frame)


def test_a_survey_passes_over_what_it_cannot_read_and_reports_it():
    store = Store(SEGMENT)
    store.start()
    for _ in range(3):
        store.put_all(message(b"x" * 300, queue_id=1))
    content = bytearray(store.segments()[0])
    disk = store.disk
    file = disk.files().open("commitlog/" + "0" * 20)
    walked = Walked(0, {})
    assert survey(file, 0, walked) is WalkCase.END_CLEAN
    assert walked.end == SEGMENT
    assert walked.queues == {("orders", 1): 3}
    second = len(raw_frame(b"x" * 300))
    disk.rot("commitlog/" + "0" * 20, second + 4, b"\0\0\0\1")
    walked = Walked(0, {})
    assert survey(file, 0, walked) is WalkCase.END_FOREIGN
    assert (walked.end, walked.queues) == (SEGMENT, {("orders", 1): 1})
    assert len(content) == SEGMENT
