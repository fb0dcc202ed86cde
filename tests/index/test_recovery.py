"""What a start finds, and what it makes of it: every case, and every kind of damage."""

import itertools
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stratamq_index.persistence import EngineSettings
from stratamq_index.recovery import DirectoryFacts, StartCase, decide
from stratamq_index.watermark import Watermark, decode_watermark, encode_watermark

from stratamq.errors import StoreRefusedError
from stratamq.files.port import EntryKind
from stratamq.files.simulated import SimulatedDisk
from stratamq.formats.index_layout import index_file_bytes
from tests.index.harness import GENERATION, ITEMS, SLOTS, Follower, TestLog, contents, names
from tests.support.disks import read_file, write_file
from tests.support.sampling import few

FILE_BYTES = index_file_bytes(SLOTS, ITEMS)


def test_every_combination_of_facts_has_the_case_of_the_table():
    seen = set()
    for watermark, closed, exact in itertools.product((True, False), repeat=3):
        for listed, present in itertools.product(range(3), repeat=2):
            for intact in range(listed + 1):
                facts = DirectoryFacts(watermark, closed, listed, intact, present, exact)
                seen.add(decide(facts))
                assert decide(facts) is by_the_table(facts), facts
    assert seen == set(StartCase)


def by_the_table(facts: DirectoryFacts) -> StartCase:
    """The module's table, once more and otherwise."""
    if not facts.watermark:
        return [StartCase.EMPTY, StartCase.FOREIGN][facts.present > 0]
    if facts.present == 0 and facts.listed > 0:
        return StartCase.LOST
    right = facts.intact == facts.listed
    if facts.closed:
        return (
            StartCase.CLOSED if right and (facts.exact or facts.present == 0) else StartCase.CHANGED
        )
    return StartCase.CRASHED if right else StartCase.DAMAGED


def followed(log: TestLog, count: int = 60) -> Follower:
    log.fill(count)
    return Follower(log).start()


def mended(log: TestLog, settings_: EngineSettings | None = None) -> Follower:
    """Start again, catch up, stop: everything must be as if nothing had happened."""
    follower = Follower(log, settings_ or EngineSettings(SLOTS, ITEMS)).start()
    follower.assert_answers_like_the_log()
    assert follower.engine.followed.durable == log.end
    follower.stop()
    assert contents(log.files) == log.index_files()
    return follower


def test_closed_and_untouched_continues_at_the_watermark(log):
    follower = followed(log)
    follower.stop()
    again = Follower(log).load()
    assert again.engine.fold.resume_point() == (GENERATION, log.end)
    assert again.engine.report_lines == []


def test_after_a_kill_items_above_the_watermark_are_cut(log):
    follower = followed(log)
    durable = follower.engine.followed.durable
    log.fill(10, seed=3)
    follower.apply()
    follower.sync()
    # The watermark of before, and the files of after: as a power loss may leave them.
    previous = read_file(log.files, "stratamq/index.json.previous")
    replace_file(log, "stratamq/index.json", previous)
    again = Follower(log).load()
    assert again.engine.fold.resume_point()[1] == durable
    assert again.engine.report_lines
    mended(log)


def replace_file(log: TestLog, path: str, data: bytes) -> None:
    log.files.unlink(path)
    write_file(log.files, path, data)


@pytest.mark.parametrize("which", [0, 2, -2, -1])
@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
def test_a_file_that_is_gone_is_built_anew(log, which, clean):
    follower = followed(log)
    if clean:
        follower.stop()
    log.files.unlink(f"index/{names(log.files)[which]}")
    assert mended(log).engine.report_lines


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
def test_an_index_that_is_gone_is_built_anew(log, clean):
    follower = followed(log)
    if clean:
        follower.stop()
    for name in names(log.files):
        log.files.unlink(f"index/{name}")
    log.files.remove_directory("index")
    mended(log)


DAMAGES = {
    "empty": lambda raw: b"",
    "short": lambda raw: raw[:-1],
    "half": lambda raw: raw[: len(raw) // 2],
    "long": lambda raw: raw + b"\0",
    "zeros": lambda raw: bytes(len(raw)),
    "ones": lambda raw: b"\xff" * len(raw),
    "header": lambda raw: b"\x80" * 40 + raw[40:],
    "count": lambda raw: raw[:36] + (10**9).to_bytes(4, "big") + raw[40:],
}


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize(("which", "damage"), few(itertools.product((0, 3, -1), DAMAGES), 8))
def test_a_damaged_file_is_built_anew(log, clean, which, damage):
    follower = followed(log)
    if clean:
        follower.stop()
    path = f"index/{names(log.files)[which]}"
    replace_file(log, path, DAMAGES[damage](read_file(log.files, path)))
    mended(log)


def test_strays_are_moved_aside_and_reported(place, log):
    follower = followed(log)
    follower.stop()
    write_file(log.files, "index/notes.txt", b"hello")
    write_file(log.files, "index/20261121", b"short name")
    log.files.make_directory("index/20261121000000000")
    place.make_link("index/20261122000000000")
    follower = Follower(log).load()
    lines = follower.engine.report_lines
    assert [line.partition(":")[0] for line in lines] == [
        "index/20261121",
        "index/20261121000000000",
        "index/20261122000000000",
        "index/notes.txt",
    ]
    assert [entry.name for entry in log.files.list("stratamq/aside/index")] == [
        "20261121",
        "20261121000000000",
        "20261122000000000",
        "notes.txt",
    ]
    assert read_file(log.files, "stratamq/aside/index/notes.txt") == b"hello"
    mended(log)


def test_what_is_put_aside_twice_gets_another_name(log):
    followed(log).stop()
    for _ in range(2):
        write_file(log.files, "index/notes.txt", b"hello")
        Follower(log).load()
    kept = [entry.name for entry in log.files.list("stratamq/aside/index")]
    assert kept == ["notes.txt", "notes.txt.2"]


def test_a_file_in_the_directorys_place_is_moved_aside(log):
    log.fill(20)
    write_file(log.files, "index", b"not a directory")
    follower = mended(log)
    assert follower.engine.report_lines[0].startswith("index: a file, no directory")
    assert read_file(log.files, "stratamq/aside/index/index") == b"not a directory"


def test_a_link_in_the_directorys_place_is_refused(place, log):
    log.files.make_directory("stratamq")
    place.make_link("index")
    with pytest.raises(StoreRefusedError, match="link"):
        Follower(log).load()


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("text", [b"", b"{", b"null", b'{"version":1}', b"\xff" * 100])
def test_a_damaged_watermark_costs_at_most_a_rebuild(log, clean, text):
    follower = followed(log)
    if clean:
        follower.stop()
    for path in ("stratamq/index.json", "stratamq/index.json.previous"):
        replace_file(log, path, text)
    mended(log)


@pytest.mark.parametrize("path", ["stratamq/index.json", "stratamq/geometry.json"])
def test_a_directory_in_place_of_our_own_files_is_mended(log, path):
    followed(log).stop()
    log.files.unlink(path)
    log.files.make_directory(path)
    mended(log)


def test_left_overs_of_a_rebuild_are_removed(log):
    followed(log).stop()
    write_file(log.files, "stratamq/tmp/index-20261121000000000", bytes(FILE_BYTES))
    Follower(log).load()
    assert log.files.list("stratamq/tmp") == []


def test_a_lost_record_of_the_geometry_is_found_again_by_the_settings(log):
    followed(log).stop()
    log.files.unlink("stratamq/geometry.json")
    mended(log)


def test_without_settings_the_store_keeps_its_geometry(log):
    followed(log).stop()
    mended(log, EngineSettings())
    data = json.loads(read_file(log.files, "stratamq/geometry.json"))["data"]
    assert data == {"index_slots": SLOTS, "index_items": ITEMS}


@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, FILE_BYTES - 1), st.integers(1, 255)),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
)
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_flipped_bytes_never_stop_a_start_and_never_bring_a_wrong_message(flips, clean):
    disk = SimulatedDisk(1)
    log = TestLog(disk.files())
    follower = followed(log, 40)
    if clean:
        follower.stop()
    present = names(log.files)
    for which, position, bits in flips:
        path = f"index/{present[which % len(present)]}"
        before = disk.contents(path)[position]
        disk.rot(path, position, bytes([before ^ bits]))
    again = Follower(log).start()
    for topic, key in log.questions():
        found = again.offsets(topic, key)
        expected = [m.offset for m in log.messages if matches(m.frame, topic, key)]
        assert set(found) <= set(expected)
        assert len(found) == len(set(found))
    again.rebuild()
    again.assert_answers_like_the_log()
    again.stop()
    assert contents(log.files) == log.index_files()


def matches(frame, topic, key) -> bool:
    words = frame.properties.get("KEYS", "").split(" ")
    return frame.topic == topic and key in (frame.properties.get("UNIQ_KEY"), *words)


def test_starting_twice_finds_nothing_more_to_mend(log):
    follower = followed(log)
    log.files.unlink(f"index/{names(log.files)[2]}")
    Follower(log).load()
    after = names(log.files), contents(log.files)
    second = Follower(log).load()
    assert (names(log.files), contents(log.files)) == after
    assert second.engine.fold.resume_point()[1] < follower.engine.followed.durable


def test_a_watermark_comes_back_as_it_was_written(log):
    follower = followed(log)
    stored = follower.engine.writer.stored
    assert stored is not None
    assert decode_watermark(encode_watermark(stored)) == stored
    for broken in ({}, {"generation": 1}, {**encode_watermark(stored), "position": "x"}):
        assert decode_watermark(broken) is None
    assert decode_watermark(encode_watermark(Watermark(1, 2, True, ()))) is not None


def test_a_device_in_the_directory_is_moved_aside():
    disk = SimulatedDisk(1)
    log = TestLog(disk.files())
    followed(log).stop()
    disk.plant("index/20261121000000000", EntryKind.OTHER)
    mended(log)
