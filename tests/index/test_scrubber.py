"""Full files are compared with their checksums; a file that differs is rebuilt during queries."""

import random

import pytest
from stratamq_index.scrubber import PASS_INTERVAL_NS, PIECE_BYTES, IndexScrubber

from stratamq.files.simulated import SimulatedDisk
from stratamq.formats.store_paths import INDEX_CHECKSUMS_PATH
from tests.index.harness import Follower, TestLog, contents, names

TICKS = 2_000


class Scrubbed:
    """A follower with its scrubber, over a disk that can be damaged."""

    def __init__(self, disk: SimulatedDisk, log: TestLog, bytes_per_second: int = 1 << 40) -> None:
        self.disk = disk
        self.files = disk.files()
        self.follower = Follower(log, files=self.files)
        engine = self.follower.load().engine
        self.scrubber = IndexScrubber(
            engine,
            self.files,
            self.follower.clock,
            engine.worker,
            engine._query_worker,
            bytes_per_second,
        )
        self.scrubber.load()
        self.follower.connect()
        self.follower.settle()
        self.follower.apply()
        self.follower.sync()

    def scrub(self) -> None:
        """Until nothing moves any more."""
        for _ in range(TICKS):
            before = self.scrubber.state
            for _ in range(3):
                self.scrubber.tick()
                self.follower.settle()
                self.follower.clock.advance_ms(1)
            if self.scrubber.state == before:
                return
        raise AssertionError("the scrubber does not come to an end")

    @property
    def findings(self) -> str:
        return "\n".join(self.follower.engine.findings())

    def stop(self) -> None:
        self.scrubber.close()
        self.follower.stop()
        self.files.kill()


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def log(disk) -> TestLog:
    log = TestLog(disk.files())
    log.fill(100)
    first = Scrubbed(disk, log)
    first.scrub()
    assert first.scrubber.verified == first.scrubber.damaged == 0
    first.stop()
    return log


def test_files_that_are_as_they_were_written_are_found_right_at_every_start(disk, log):
    again = Scrubbed(disk, log)
    again.scrub()
    assert again.scrubber.verified == len(again.follower.engine.series.sealed) > 2
    assert (again.scrubber.damaged, again.findings) == (0, "")


@pytest.mark.parametrize("seed", range(6))
def test_a_damaged_byte_anywhere_is_found_and_mended(disk, log, seed):
    chance = random.Random(seed)
    before = contents(disk.files())
    name = chance.choice(names(disk.files())[:-1])
    index = names(disk.files()).index(name)
    at = chance.randrange(40, len(before[index]))
    disk.rot(f"index/{name}", at, bytes([before[index][at] ^ 0x20]))
    again = Scrubbed(disk, log)
    again.scrub()
    assert f"index/{name} is damaged" in again.findings
    again.follower.assert_answers_like_the_log()
    again.scrub()
    assert again.scrubber.damaged == 1
    again.stop()
    assert contents(disk.files()) == before


def test_one_that_cannot_be_read_is_built_anew(disk, log):
    again = Scrubbed(disk, log)
    name = names(disk.files())[0]
    disk.fail("read", f"index/{name}")
    again.scrub()
    assert f"index/{name} is damaged" in again.findings
    again.follower.assert_answers_like_the_log()


def test_what_an_operator_has_rebuilt_gets_a_new_checksum(disk, log):
    again = Scrubbed(disk, log)
    again.scrub()
    again.follower.rebuild()
    again.scrub()
    assert again.scrubber.damaged == 0
    again.stop()
    last = Scrubbed(disk, log)
    last.scrub()
    assert (last.scrubber.verified, last.scrubber.damaged) == (
        len(last.follower.engine.series.sealed),
        0,
    )


def test_damaged_checksums_are_taken_anew(disk, log):
    for path in (INDEX_CHECKSUMS_PATH, f"{INDEX_CHECKSUMS_PATH}.previous"):
        disk.rot(path, 30, b"????")
    again = Scrubbed(disk, log)
    again.scrub()
    assert (again.scrubber.verified, again.scrubber.damaged) == (0, 0)
    assert INDEX_CHECKSUMS_PATH in again.findings


def test_it_looks_again_after_a_day(disk, log):
    again = Scrubbed(disk, log)
    again.scrub()
    count = again.scrubber.verified
    again.follower.clock.advance_ms(PASS_INTERVAL_NS // 1_000_000 + 1)
    again.scrub()
    assert again.scrubber.verified == 2 * count


def test_it_keeps_to_its_budget_and_may_be_switched_off(disk, log):
    slow = Scrubbed(disk, log, PIECE_BYTES)
    for _ in range(10):
        slow.scrubber.tick()
        slow.follower.settle()
    assert slow.scrubber.verified == 0, "a second has not passed since the first piece"
    slow.follower.clock.advance_ms(1_001)
    slow.scrubber.tick()
    slow.follower.settle()
    slow.scrubber.tick()
    assert slow.scrubber.verified == 1, "the second piece was the end of the first file"
    slow.stop()
    off = Scrubbed(disk, log, 0)
    off.scrub()
    assert off.scrubber.verified == 0
