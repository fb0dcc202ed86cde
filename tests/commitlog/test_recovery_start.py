"""Where recovery begins in RocketMQ's directories, and where the log ends at blanks and edges."""

import pytest
from stratamq_commitlog.recovery.inspection import Evidence, WalkStart, choose_start, inspect

from stratamq.errors import StoreRefusedError
from stratamq.formats.checkpoint import SAFETY_MARGIN_MS, Checkpoint
from stratamq.formats.frame import encode_blank
from stratamq.formats.frame_layout import MAGIC_V2
from stratamq.formats.hosts import encode_host
from stratamq.formats.message_status import SendStatus
from tests.support.disks import write_file
from tests.support.logs import BORN_V6, FIXED, Store, body_for, raw_frame, segment_path

pytestmark = pytest.mark.usefixtures("walked_both_ways")

SEGMENT = 256
T0 = 1_700_000_000_000


def log_of(*first_frames: dict) -> Store:
    """A directory that RocketMQ could have written: one frame in each segment, and a blank."""
    store = Store(SEGMENT)
    files = store.disk.files()
    for number, fields in enumerate(first_frames):
        frame = raw_frame(
            **{
                "physical_offset": number * SEGMENT,
                "queue_offset": number,
                "store_timestamp_ms": T0 + number,
            }
            | fields
        )
        content = frame + encode_blank(SEGMENT - len(frame))
        write_file(files, segment_path(number * SEGMENT), content.ljust(SEGMENT, b"\0"))
    return store


def start_of(store: Store, minimum_ms: int, *, unclean: bool = True) -> tuple[WalkStart, int]:
    files = store.disk.files()
    covered = minimum_ms + SAFETY_MARGIN_MS if minimum_ms else 0
    evidence = Evidence(None, unclean, Checkpoint(covered, covered, covered), 0)
    start, offset = choose_start(files, inspect(files, SEGMENT, None), evidence)
    return start, offset // SEGMENT


# --- the first file of an abnormal recovery (acceptance, part C 4 and 5) ---


def test_a_first_message_of_exactly_the_minimum_is_early_enough_and_a_millisecond_later_is_not():
    store = log_of({}, {}, {}, {})
    assert start_of(store, T0 + 2) == (WalkStart.ROCKETMQ_ABNORMAL, 2)
    assert start_of(store, T0 + 1) == (WalkStart.ROCKETMQ_ABNORMAL, 1)
    assert start_of(store, T0 + 9) == (WalkStart.ROCKETMQ_ABNORMAL, 3)


def test_a_lost_checkpoint_means_the_first_file():
    assert start_of(log_of({}, {}, {}), 0) == (WalkStart.ROCKETMQ_ABNORMAL, 0)


def test_when_no_file_is_early_enough_the_first_is_taken():
    assert start_of(log_of({}, {}, {}), T0 - 1) == (WalkStart.ROCKETMQ_ABNORMAL, 0)


@pytest.mark.parametrize(
    "passed_over", [{"store_timestamp_ms": 0}, {"magic": MAGIC_V2}], ids=["no time", "V2"]
)
def test_a_file_that_does_not_begin_like_a_message_of_4x_is_passed_over(passed_over):
    store = log_of({}, {}, passed_over, passed_over)
    assert start_of(store, T0 + 9) == (WalkStart.ROCKETMQ_ABNORMAL, 1)


def test_an_unused_file_is_passed_over():
    store = log_of({}, {})
    store.disk.files().create(segment_path(2 * SEGMENT), SEGMENT)
    assert start_of(store, T0 + 9) == (WalkStart.ROCKETMQ_ABNORMAL, 1)


def test_an_ipv6_born_host_moves_the_store_time_by_twelve_bytes_and_an_ipv6_store_host_does_not():
    v6 = encode_host(BORN_V6)
    for fields in ({"born_host": v6}, {"store_host": v6}, {"born_host": v6, "store_host": v6}):
        store = log_of({}, {}, fields)
        assert start_of(store, T0 + 2)[1] == 2
        assert start_of(store, T0 + 1)[1] == 1


def test_the_minimum_is_three_seconds_before_the_earlier_of_log_and_queues():
    store = log_of({}, {}, {})
    files = store.disk.files()
    late, early = T0 + 2 + SAFETY_MARGIN_MS, T0 + 1 + SAFETY_MARGIN_MS
    for checkpoint in (Checkpoint(late, early), Checkpoint(early, late)):
        evidence = Evidence(None, True, checkpoint, 0)
        assert choose_start(files, inspect(files, SEGMENT, None), evidence)[1] == SEGMENT


# --- normal recovery ---


def test_a_clean_directory_is_read_from_its_third_last_file():
    assert start_of(log_of({}, {}, {}, {}, {}), 0, unclean=False) == (WalkStart.ROCKETMQ_NORMAL, 2)
    assert start_of(log_of({}, {}), 0, unclean=False) == (WalkStart.ROCKETMQ_NORMAL, 0)


@pytest.mark.parametrize("unclean", [False, True])
def test_an_empty_directory_starts_at_zero(unclean):
    assert start_of(Store(SEGMENT), 0, unclean=unclean) == (WalkStart.EMPTY, 0)


def test_the_first_segment_needs_no_zero_for_a_name():
    store = log_of({}, {}, {})
    for base in (0, SEGMENT):
        store.disk.files().unlink(segment_path(base))
    store.disk.tree.sync_all()
    store.start()
    assert store.log.status().minimum_offset == 2 * SEGMENT
    # It ends in a blank, and there is no next segment: the end is where the blank begins.
    assert store.end() == 2 * SEGMENT + FIXED + len("orders") + len("body")
    assert store.queues() == {("orders", 0): 3}


# --- a damaged last frame (DefaultMessageStoreTest.testRecover) ---


@pytest.mark.parametrize("abort", [False, True])
@pytest.mark.parametrize("ours", [False, True])
def test_a_last_frame_with_a_damaged_topic_length_is_dropped_and_nothing_else(abort, ours):
    store = Store(4096)
    store.start()
    for number in range(20):
        store.put(b"%02d" % number)
    store.stop()
    if not ours:
        store.disk.files().lock("lock", b"lock").close()
    at, raw, last = store.members()[-1]
    topic_length_at = at + FIXED - 3 + len(last.body)
    store.edit(segment_path(0), topic_length_at, bytes(16))
    if abort:
        store.disk.files().create("abort", 0)
    store.start()
    assert [frame.body for frame in store.frames()] == [b"%02d" % number for number in range(19)]
    assert store.end() == at
    assert store.put(b"goes on").queue_offset == 19
    assert len(raw) > 16


# --- blanks at the end (part C 3) ---


@pytest.mark.parametrize("abort", [False, True])
def test_a_log_that_ends_in_a_blank_without_a_next_file_ends_where_the_blank_begins(abort):
    store = log_of({}, {})
    if abort:
        store.disk.files().create("abort", 0)
    frame = FIXED + len("orders") + len("body")
    before = store.disk.contents(segment_path(SEGMENT))
    store.start()
    assert store.end() == SEGMENT + frame
    # What does not fit writes the same blank again.
    assert store.put(body_for(SEGMENT - 8)).physical_offset == 2 * SEGMENT
    assert store.disk.contents(segment_path(SEGMENT)) == before
    # And what fits takes its place.
    store = log_of({}, {})
    store.start()
    assert store.put(body_for(SEGMENT - frame - 8)).physical_offset == SEGMENT + frame
    assert len(store.frames()) == 3


def test_a_log_that_ends_in_a_blank_before_an_unused_file_ends_in_that_file():
    store = log_of({}, {})
    store.disk.files().create(segment_path(2 * SEGMENT), SEGMENT)
    store.start()
    assert store.end() == 2 * SEGMENT
    assert store.put(b"x").physical_offset == 2 * SEGMENT


def test_garbage_behind_a_blank_stays_where_it_is():
    store = log_of({}, {})
    frame = FIXED + len("orders") + len("body")
    store.edit(segment_path(0), frame + 8, raw_frame(b"stale")[:90])
    before = store.segments()[0]
    store.start()
    assert store.segments()[0] == before
    assert store.queues() == {("orders", 0): 2}


@pytest.mark.parametrize("left", range(1, 8))
def test_a_message_that_leaves_no_room_for_a_blank_refuses_the_store(left):
    """No writer leaves that. RocketMQ serves it, and then fails at every put."""
    for following in (False, True):
        store = Store(SEGMENT)
        files = store.disk.files()
        frame = raw_frame(body_for(SEGMENT - left))
        write_file(files, segment_path(0), frame.ljust(SEGMENT, b"\0"))
        if following:
            write_file(files, segment_path(SEGMENT), bytes(SEGMENT))
        before = store.segments()
        with pytest.raises(StoreRefusedError, match=f"leaves {left} bytes"):
            store.start()
        assert store.segments() == before


def test_a_segment_that_is_full_to_its_last_byte_is_served():
    store = Store(SEGMENT)
    write_file(store.disk.files(), segment_path(0), raw_frame(body_for(SEGMENT)))
    store.start()
    assert store.end() == SEGMENT
    assert store.put(b"x").physical_offset == SEGMENT


# --- the segment size ---


@pytest.mark.parametrize("size", [200, 1000, 4097])
def test_segments_need_not_be_powers_of_two_and_an_existing_directory_keeps_its_own(size):
    store = Store(size)
    store.start()
    for number in range(40):
        assert store.put(b"%d" % number).status is SendStatus.PUT_OK
    assert all(base % size == 0 for base in store.segments())
    store.stop()
    store.start(segment_bytes=1 << 20)
    assert store.log.status().segment_bytes == size
    assert [frame.body for frame in store.frames()] == [b"%d" % number for number in range(40)]


def test_the_files_of_a_foreign_directory_determine_how_long_segments_are():
    store = log_of({}, {})
    store.start(segment_bytes=1 << 30)
    assert store.log.status().segment_bytes == SEGMENT


def test_bodies_are_not_verified_when_the_setting_is_off():
    store = log_of({}, {})
    store.edit(segment_path(SEGMENT), FIXED - 3, b"?")
    copy = Store(SEGMENT, disk=store.disk.image(lambda item: True))
    copy.start()
    assert copy.end() == SEGMENT
    store.start(check_crc_on_recover=False)
    assert store.end() > SEGMENT


def test_progress_is_reported_and_ends_at_the_logs_end():
    store = Store(4096)
    store.start()
    for _ in range(60):
        store.put(b"x" * 300)
    end = store.end()
    store.kill()
    progress: list[tuple[int, int]] = []
    store.prepare().open(lambda done, total: progress.append((done, total)))
    assert [done for done, _ in progress] == sorted(done for done, _ in progress)
    assert all(0 <= done <= total for done, total in progress)
    assert progress[-1][0] == end


def test_a_log_that_starts_removes_what_it_left_and_not_what_the_index_is_making():
    """All services of a killed broker are started at once, and the index recovers first."""
    store = log_of({})
    for name in ("00000000000000000000.whole", "index-20261121000000000"):
        write_file(store.disk.files(), f"stratamq/tmp/{name}", b"x")
    store.start()
    left = [entry.name for entry in store.disk.files().list("stratamq/tmp")]
    assert left == ["index-20261121000000000"]


@pytest.mark.parametrize("left", [8, 9, 2048])
def test_a_log_whose_last_message_leaves_just_room_for_a_blank_starts_and_continues(left):
    """The appender makes such ends: a frame fits when eight bytes stay free behind it."""
    store = Store(2048)
    store.start()
    size = 2048 - left
    if size:
        store.put(body_for(size))
    assert store.end() == size
    store.kill()
    store.start()
    assert store.end() == size
    assert store.put(b"and on").status is SendStatus.PUT_OK
    store.restart()
    assert [frame.body for frame in store.frames()][-1] == b"and on"
