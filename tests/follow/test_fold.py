"""The fold over a log, with a state that lists where each message begins."""

import errno
import random
from collections.abc import Iterator

import pytest

from stratamq.errors import UnavailableError
from stratamq.files.metadata import MetadataFile
from stratamq.files.simulated import SimulatedClock, SimulatedDisk, SimulatedScheduler
from stratamq.follow.fold import Fold, FoldPlace, SnapshotFile
from stratamq.follow.protocol import Event, FollowError, Opened
from stratamq.store.log_pieces import LogPiece
from tests.index.harness import SEGMENT_BYTES, TestLog

PATH = "stratamq/places.json"
INTERVAL_MS = 100
ACTS = ("append", "append", "flush", "apply", "apply", "tick", "delete", "kill", "power", "cut")


class Places:
    """The log offset of every message that is there; wants a segment that is cut from its start."""

    def __init__(self) -> None:
        self.found: list[int] = []

    def restore(self, document: dict) -> None:
        self.found = list(document.get("found", ()))

    def snapshot(self) -> dict:
        return {"found": list(self.found)}

    def apply(self, piece: LogPiece) -> None:
        self.found += piece.columns.physical_offset.tolist()

    def cut(self, offset: int) -> int:
        start = offset - offset % SEGMENT_BYTES
        self.found = [place for place in self.found if place < start]
        return start

    def forget_below(self, minimum: int) -> None:
        self.found = [place for place in self.found if place >= minimum]


class Scene:
    """A log, its follower, and what the log would answer."""

    def __init__(self, seed: int = 1) -> None:
        self.disk = SimulatedDisk(seed)
        self.log = TestLog(self.disk.files())
        self.flushed = 0
        self.generations = [(1, 0)]
        self.clock = SimulatedClock()
        self.start()

    def start(self) -> None:
        """A process that has loaded what is on the disk."""
        self.lanes = SimulatedScheduler(random.Random(1))
        self.files = self.disk.files()
        self.followed, self.state = FoldPlace(), Places()
        worker = self.lanes.worker()
        self.file = SnapshotFile(
            PATH, self.state, self.followed, self.files, worker, self.clock, INTERVAL_MS
        )
        self.file.load()
        self.fold = Fold("places", self.file, self.followed, self.files, step_messages=3)

    def connect(self) -> None:
        generation, position = self.fold.resume_point()
        later = [start for number, start in self.generations if number > generation]
        cut_to = max(self.log.minimum, min([position, self.log.end, *later]))
        number, start = self.generations[-1]
        self.fold.opened(
            Opened(
                generation=number,
                generation_start=start,
                cut_to=cut_to,
                minimum=self.log.minimum,
                confirmed=self.log.end,
                flushed=self.flushed,
                segment_bytes=SEGMENT_BYTES,
            )
        )
        self.position = cut_to

    def events(self) -> Iterator[Event]:
        """What the log has and the follower was not sent yet; at least how far it is."""
        number = self.generations[-1][0]
        for event in self.log.events(self.position, number, flushed=self.flushed):
            self.position = event.end
            yield event
        yield Event(
            number, self.position, self.position, self.log.end, self.flushed, self.log.minimum
        )

    def apply(self) -> None:
        for event in self.events():
            list(self.fold.apply(event))

    def tick(self) -> None:
        self.clock.advance_ms(INTERVAL_MS)
        self.file.tick()
        self.lanes.run_until_idle()

    def lose(self, offset: int) -> None:
        """The log goes back to `offset` and begins a generation there."""
        self.log.cut(offset)
        self.flushed = min(self.flushed, offset)
        self.generations = [(number, min(at, offset)) for number, at in self.generations]
        self.generations.append((self.generations[-1][0] + 1, offset))

    @property
    def expected(self) -> list[int]:
        minimum = self.log.minimum
        return [one.offset for one in self.log.messages if one.offset >= minimum]

    def stored(self) -> dict:
        return MetadataFile(self.disk.files(), PATH).load() or {}


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    scene.log.fill(60)
    scene.flushed = scene.log.end
    scene.connect()
    return scene


def test_it_serves_from_where_the_log_was_when_it_connected(scene):
    with pytest.raises(UnavailableError, match=f"applied 0 of {scene.log.end}"):
        scene.followed.require_serving("places")
    *first, last, _ = scene.events()
    for event in first:
        list(scene.fold.apply(event))
        assert not scene.followed.serving
    list(scene.fold.apply(last))
    scene.followed.require_serving("places")
    assert scene.state.found == scene.expected


def test_after_a_cut_nothing_above_it_is_there_and_no_question_is_answered(scene):
    scene.apply()
    scene.tick()
    cut_to = scene.log.messages[20].offset
    scene.lose(cut_to)
    scene.log.fill(10, seed=2)
    scene.connect()
    assert all(place < cut_to for place in scene.state.found)
    assert scene.fold.report().durable <= cut_to
    with pytest.raises(UnavailableError):
        scene.followed.require_serving("places")
    scene.apply()
    assert scene.state.found == scene.expected
    assert scene.followed.serving


def test_a_reconnection_to_the_same_log_goes_on_serving(scene):
    scene.apply()
    scene.connect()
    assert scene.followed.serving


def test_a_snapshot_waits_until_the_log_has_flushed_it_and_is_stored_as_it_was(scene):
    scene.flushed = scene.log.messages[5].offset
    scene.connect()
    scene.apply()
    end, found = scene.log.end, list(scene.state.found)
    scene.tick()
    assert scene.stored() == {}
    scene.log.fill(5, seed=2)
    scene.flushed = end
    scene.apply()
    assert scene.state.found != found
    scene.tick()
    assert scene.stored() == {"generation": 1, "position": end, "found": found}
    assert scene.fold.report().durable == end


def test_a_snapshot_that_was_written_before_a_cut_makes_nothing_durable(scene):
    scene.apply()
    scene.clock.advance_ms(INTERVAL_MS)
    scene.file.tick()
    assert scene.lanes.pending
    cut_to = scene.log.messages[3].offset
    scene.lose(cut_to)
    scene.log.fill(10, seed=2)
    scene.flushed = scene.log.end
    scene.connect()
    scene.apply()
    scene.lanes.run_until_idle()
    assert scene.fold.report().durable == 0
    scene.tick()
    assert scene.fold.report().durable == scene.log.end


def test_a_snapshot_that_waits_is_dropped_when_the_log_is_cut(scene):
    scene.flushed = 0
    scene.start()
    scene.connect()
    scene.apply()
    scene.tick()
    lost_end = scene.log.end
    scene.lose(scene.log.messages[3].offset)
    scene.log.fill(80, seed=2)
    scene.flushed = scene.log.end
    assert scene.flushed > lost_end
    scene.connect()
    scene.apply()
    scene.tick()
    assert scene.stored()["found"] == scene.expected


def test_what_the_log_deleted_before_it_was_applied_is_passed_over(scene):
    scene.log.delete_below(3 * SEGMENT_BYTES)
    assert scene.log.minimum > 0
    scene.connect()
    scene.apply()
    assert scene.state.found == scene.expected
    assert scene.followed.serving


def test_an_event_that_does_not_follow_is_refused(scene):
    first, second, *_ = scene.events()
    with pytest.raises(FollowError, match="expected 0"):
        list(scene.fold.apply(second))
    list(scene.fold.apply(first))
    with pytest.raises(FollowError, match=f"expected {first.end}"):
        list(scene.fold.apply(first))


def test_when_the_log_stops_everything_is_durable_before_the_end_is_reported(scene):
    scene.flushed = 0
    scene.connect()
    scene.apply()
    done: list[int] = []
    scene.fold.close_at(scene.log.end, lambda: done.append(scene.fold.report().durable))
    scene.lanes.run_until_idle()
    assert done == [scene.log.end]
    assert scene.stored()["found"] == scene.expected


def test_a_close_writes_nothing_that_the_log_has_not_flushed(scene):
    scene.flushed = 0
    scene.start()
    scene.connect()
    scene.apply()
    done: list[bool] = []
    scene.file.close(lambda: done.append(True))
    scene.lanes.run_until_idle()
    assert done == [True]
    assert scene.stored() == {}


def test_a_snapshot_for_which_the_disk_has_no_room_is_tried_again_and_nothing_stops(scene, caplog):
    scene.apply()
    scene.disk.fail("write", error=errno.ENOSPC, repeat=True)
    for _ in range(3):
        scene.tick()
    assert scene.stored() == {} and scene.fold.report().durable == 0
    assert [one.reason for one in caplog.records] == ["No space left on device"], "it is said once"
    done: list[bool] = []
    scene.fold.close_at(scene.log.end, lambda: done.append(True))
    scene.lanes.run_until_idle()
    assert done == [True], "a stop does not wait for room"
    scene.disk.clear_faults()
    scene.tick()
    assert scene.stored()["found"] == scene.expected
    assert scene.fold.report().durable == scene.log.end


def test_a_state_that_has_failed_serves_no_more(scene):
    scene.fold.stopped(ValueError("the log is damaged"))
    scene.apply()
    with pytest.raises(UnavailableError, match="the log is damaged"):
        scene.followed.require_serving("places")


@pytest.mark.parametrize("seed", range(12))
def test_the_state_is_the_logs_after_crashes_power_failures_cuts_and_deletions(seed):
    chance = random.Random(seed)
    scene = Scene(seed)
    scene.connect()
    flushed_in: dict[int, int] = {}
    """By generation, how far the log had flushed at most."""
    for turn in range(60):
        act = chance.choice(ACTS)
        if act == "append":
            scene.log.fill(chance.randrange(1, 20), seed=turn)
        elif act == "flush":
            scene.flushed = scene.log.end
        elif act == "apply":
            scene.apply()
        elif act == "tick":
            scene.clock.advance_ms(INTERVAL_MS)
            scene.file.tick()
            if chance.random() < 0.7:
                scene.lanes.run_until_idle()
        elif act == "delete":
            scene.log.delete_below(min(scene.flushed, scene.followed.durable))
        else:
            if act in ("kill", "power"):
                scene.lanes.discard()
                scene.disk.crash(chance) if act == "power" else scene.disk.kill()
                scene.log.files = scene.disk.files()
            if act == "power":
                scene.lose(max(scene.log.minimum, scene.flushed))
            if act in ("kill", "power"):
                scene.start()
            if act == "cut" and scene.expected:
                scene.lose(chance.choice(scene.expected))
            scene.connect()
        number, stored = scene.generations[-1][0], scene.stored()
        flushed_in[number] = max(flushed_in.get(number, 0), scene.flushed)
        assert scene.followed.durable <= scene.flushed
        assert stored.get("position", 0) <= flushed_in[stored.get("generation", number)]
    scene.apply()
    scene.flushed = scene.log.end
    scene.apply()
    assert scene.state.found == scene.expected
    scene.tick()
    scene.tick()
    assert scene.fold.report().durable == scene.log.end
