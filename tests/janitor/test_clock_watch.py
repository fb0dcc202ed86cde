"""A clock that is put forward expires nothing, whichever service ran then; one put back neither."""

import pytest
from stratamq_janitor.clock_watch import ClockWatch, Witness, unexplained_ms

from stratamq.files.metadata import MetadataFile
from stratamq.files.simulated import SimulatedDisk
from stratamq.files.simulated_time import SimulatedClock
from stratamq.formats.store_paths import JANITOR_STATE_PATH

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


class Machine:
    """One store, its clocks, and a watch that can be started again on either."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.disk = SimulatedDisk(1, clock=self.clock)
        self.files = self.disk.files()
        self.boot = "first"
        self.newest_ms: int | None = None
        self.start()

    def start(self) -> None:
        """The janitor, again."""
        file = MetadataFile(self.files, JANITOR_STATE_PATH)
        self.watch = ClockWatch(file, self.boot, 10 * MINUTE_MS, HOUR_MS, self.clock)

    def boot_again(self, off_ms: int) -> None:
        """The machine, after so long."""
        self.boot += "'"
        self.clock = SimulatedClock(self.clock.wall_ms() + off_ms, 5)
        self.disk.clock = self.clock
        self.start()

    def put(self, forward_ms: int) -> None:
        self.clock.set_wall_ms(self.clock.wall_ms() + forward_ms)

    @property
    def doubt(self) -> str:
        """What a reading now is judged to be, without a look."""
        return self.watch.read(self.newest_ms).doubt

    def doubts(self, after_ms: int = 10_000) -> bool:
        self.clock.advance_ms(after_ms)
        return bool(self.watch.see(self.newest_ms).doubt)


@pytest.fixture
def machine() -> Machine:
    machine = Machine()
    assert not machine.doubts()
    return machine


def test_time_that_passes_is_no_jump(machine):
    assert not machine.doubts(after_ms=9 * DAY_MS)


def test_a_clock_put_forward_is_doubted_for_the_grace(machine):
    machine.put(5 * HOUR_MS)
    assert machine.doubts()
    assert "by 5:00:00 (h:mm:ss) that is unaccounted for" in machine.doubt
    assert machine.doubts(after_ms=HOUR_MS - 1)
    assert not machine.doubts(after_ms=1)
    assert machine.doubt == ""


def test_the_tolerance_is_exact(machine):
    machine.put(10 * MINUTE_MS)
    assert not machine.doubts()
    machine.put(10 * MINUTE_MS + 1)
    assert machine.doubts()


def test_a_second_jump_begins_the_grace_again(machine):
    machine.put(HOUR_MS)
    assert machine.doubts()
    machine.clock.advance_ms(50 * MINUTE_MS)
    machine.put(HOUR_MS)
    assert machine.doubts()
    assert machine.doubts(after_ms=59 * MINUTE_MS)
    assert not machine.doubts(after_ms=MINUTE_MS)


def test_a_clock_put_back_is_not_doubted(machine):
    machine.put(-3 * DAY_MS)
    assert not machine.doubts()
    assert not machine.doubts()


def test_put_back_and_right_again_looks_like_put_forward(machine):
    machine.put(-3 * DAY_MS)
    assert not machine.doubts()
    machine.put(3 * DAY_MS)
    assert machine.doubts()


# --- while the janitor was down ---


def test_a_jump_while_the_janitor_was_down_is_seen_by_the_clock_that_ran_on(machine):
    machine.clock.advance_ms(2 * DAY_MS)
    machine.put(5 * HOUR_MS)
    machine.start()
    assert machine.doubts()


def test_a_janitor_that_was_down_for_long_doubts_nothing(machine):
    machine.clock.advance_ms(9 * DAY_MS)
    machine.start()
    assert not machine.doubts()


def test_a_restart_of_the_janitor_does_not_end_a_doubt(machine):
    machine.put(5 * HOUR_MS)
    assert machine.doubts()
    machine.start()
    assert machine.doubt != "", "before its first look, too"
    assert machine.doubts(after_ms=50 * MINUTE_MS)
    assert not machine.doubts(after_ms=10 * MINUTE_MS)


def test_what_the_wall_showed_at_the_last_look_is_remembered(machine):
    before = machine.clock.wall_ms()
    machine.start()
    assert machine.watch.previous_ms == before


# --- while the machine was off ---


def test_a_quick_start_of_the_machine_doubts_nothing(machine):
    machine.boot_again(5 * MINUTE_MS)
    assert not machine.doubts()


def test_a_machine_that_was_off_for_long_waits_for_the_grace(machine):
    machine.boot_again(2 * DAY_MS)
    assert machine.doubts()
    assert machine.doubts(after_ms=HOUR_MS - 1)
    assert not machine.doubts(after_ms=1)


def test_messages_that_were_stored_since_vouch_for_the_time_before_them(machine):
    machine.boot_again(2 * DAY_MS)
    machine.newest_ms = machine.clock.wall_ms() - MINUTE_MS
    assert not machine.doubts()


def test_a_start_of_the_machine_begins_a_grace_again(machine):
    machine.put(5 * HOUR_MS)
    assert machine.doubts()
    machine.clock.advance_ms(30 * MINUTE_MS)
    machine.boot_again(MINUTE_MS)
    assert machine.doubts()
    assert machine.doubts(after_ms=HOUR_MS - 11_000)
    assert not machine.doubts(after_ms=11_000)


@pytest.mark.parametrize(
    ("newest_ago_ms", "doubtful"), [(None, False), (10 * MINUTE_MS, False), (DAY_MS, True)]
)
def test_without_a_last_look_the_newest_message_is_what_there_is(newest_ago_ms, doubtful):
    machine = Machine()
    now_ms = machine.clock.wall_ms()
    machine.newest_ms = None if newest_ago_ms is None else now_ms - newest_ago_ms
    assert machine.doubts(after_ms=0) is doubtful


def test_a_message_from_the_future_explains_everything_and_harms_nothing():
    now = Witness(1_000, 5, "second")
    assert unexplained_ms(Witness(10, 5, "first"), now, 5_000) == 0


# --- an operator, and the disk ---


def test_an_operator_who_trusts_the_clock_ends_the_doubt_for_good(machine):
    machine.put(5 * HOUR_MS)
    assert machine.doubts()
    machine.watch.see(machine.newest_ms, trust=True)
    assert machine.doubt == ""
    machine.start()
    assert not machine.doubts()


def test_a_full_disk_does_not_stop_the_watch(machine, caplog):
    machine.put(5 * HOUR_MS)
    machine.disk.fail("create", "stratamq/*", nth=1, error=28)
    machine.disk.fail("write", "stratamq/*", nth=1, error=28)
    assert machine.doubts()
    assert "not saved" in caplog.text
    assert machine.doubts(after_ms=2 * MINUTE_MS)
    machine.start()
    assert machine.doubt != ""


@pytest.mark.parametrize("field", ["wallMs", "monotonicNs", "boot", "doubtNs"])
def test_a_file_that_holds_something_else_is_no_witness(field):
    document = Witness(1, 2, "x", 3, 4).document()
    assert Witness.parse(document) == Witness(1, 2, "x", 3, 4)
    assert Witness.parse({**document, field: [1]}) is None
    assert Witness.parse(None) is None


def test_the_file_is_written_once_a_minute_and_at_once_when_a_doubt_begins(machine):
    def writes() -> int:
        return sum(call.operation == "replace" for call in machine.disk.trace)

    machine.disk.trace = []
    for _ in range(12):
        machine.doubts(after_ms=10_000)
    quiet = writes()
    assert quiet == 4, "two stores of two renames"
    machine.put(HOUR_MS)
    machine.doubts(after_ms=1)
    assert writes() == quiet + 2
