"""Slots and items: the settings, our own record, or the defaults; only what fits is taken."""

import itertools
import json

import pytest
from stratamq_index.config import IndexConfig
from stratamq_index.geometry import DEFAULT_GEOMETRY, FileGeometry, Fit, GeometryChoice, choose
from stratamq_index.persistence import EngineSettings

from stratamq.errors import ConfigurationError
from stratamq.files.simulated import SimulatedDisk
from stratamq.formats.checkpoint import Checkpoint, encode_checkpoint
from stratamq.service.config import load
from tests.index.harness import ITEMS, SLOTS, Follower, TestLog, contents
from tests.support.disks import read_file, write_file

CONFIGURED, RECORDED = FileGeometry(7, 30), FileGeometry(8, 16)
SHOWN = FileGeometry(9, 20)


def not_asked() -> None:
    raise AssertionError("a candidate fits")


def forget_state(log: TestLog) -> None:
    """The store without our files, like one that RocketMQ wrote."""
    for path in ("stratamq/geometry.json", "stratamq/index.json"):
        for name in (path, f"{path}.previous"):
            if log.files.entry(name) is not None:
                log.files.unlink(name)


def test_every_combination_of_fits_takes_the_first_that_fits():
    for configured, recorded in itertools.product((None, CONFIGURED), (None, RECORDED)):
        candidates = [g for g in (configured, recorded, DEFAULT_GEOMETRY) if g]
        for fits in itertools.product(Fit, repeat=len(candidates)):
            table = dict(zip(candidates, fits, strict=True))
            slots, items = (configured.slots, configured.items) if configured else (None, None)
            certain = [
                g
                for g in candidates
                if table[g] is Fit.ITEMS or (g == recorded and table[g] is Fit.LENGTH)
            ]
            perhaps = [g for g in candidates if table[g] is Fit.LENGTH]
            if not certain and not perhaps and not recorded:
                inferred = choose(slots, items, recorded, table.__getitem__, lambda: SHOWN)
                assert inferred.geometry == SHOWN and inferred.fits
                unknown = choose(slots, items, recorded, table.__getitem__, lambda: None)
                assert unknown.geometry == candidates[0] and not unknown.fits
                assert "built from the log" in unknown.report[0]
                continue
            choice = choose(slots, items, recorded, table.__getitem__, not_asked)
            assert choice.fits
            assert choice.geometry == (certain or perhaps or [recorded])[0]
            passed_over = configured is not None and choice.geometry != configured
            assert bool(choice.report) == passed_over


def test_an_empty_directory_takes_the_settings_then_the_record_then_the_defaults():
    assert choose(7, 30, RECORDED, None, not_asked) == GeometryChoice(CONFIGURED)
    assert choose(7, None, RECORDED, None, not_asked) == GeometryChoice(FileGeometry(7, 16))
    assert choose(None, None, RECORDED, None, not_asked) == GeometryChoice(RECORDED)
    assert choose(None, None, None, None, not_asked) == GeometryChoice(DEFAULT_GEOMETRY)


def test_settings_that_fit_no_file_are_reported_and_passed_over():
    log = TestLog(SimulatedDisk(1).files())
    log.fill(40)
    Follower(log).start().stop()
    follower = Follower(log, EngineSettings(SLOTS + 1, ITEMS)).start()
    assert any("do not fit" in line for line in follower.engine.report_lines)
    follower.assert_answers_like_the_log()
    follower.stop()
    assert contents(log.files) == log.index_files()


@pytest.mark.parametrize("settings", [(None, None), (SLOTS + 5, ITEMS - 1), (SLOTS + 1, ITEMS)])
def test_slots_and_items_of_an_adopted_index_are_inferred(settings):
    """5 more slots take the bytes of one item: only the items show the difference."""
    log = TestLog(SimulatedDisk(1).files())
    log.fill(60)
    Follower(log).start().stop()
    before = contents(log.files)
    forget_state(log)
    follower = Follower(log, EngineSettings(*settings)).start()
    assert follower.engine.geometry == FileGeometry(SLOTS, ITEMS)
    assert contents(log.files) == before
    assert log.files.list("stratamq/aside") == []
    log.fill(30)
    follower.apply()
    follower.assert_answers_like_the_log()
    follower.stop()
    assert contents(log.files) == log.index_files()


def test_a_geometry_is_inferred_although_the_last_offset_stands_among_the_slots_too():
    """A slot is a number of an item: two side by side may have the bytes of any small offset."""
    log = TestLog(SimulatedDisk(1).files())
    log.fill(60)
    Follower(log, EngineSettings(200, ITEMS)).start().stop()
    forget_state(log)
    for entry in log.files.list("index"):
        file = log.files.open(f"index/{entry.name}", writable=True)
        slots, last = file.read(40, 4 * 200), file.read(24, 8)
        free = next(at for at in range(0, 792, 4) if not any(slots[at : at + 8]))
        file.write(40 + free, last)
        file.flush()
        file.close()
    follower = Follower(log, EngineSettings()).start()
    assert follower.engine.geometry == FileGeometry(200, ITEMS)


@pytest.mark.parametrize("settings", [(9, 20), (SLOTS - 5, ITEMS + 1)], ids=["other", "as long"])
def test_an_index_that_shows_no_geometry_goes_aside_and_is_built_again(settings):
    log = TestLog(SimulatedDisk(1).files())
    log.fill(60)
    Follower(log).start().stop()
    forget_state(log)
    for entry in log.files.list("index"):
        file = log.files.open(f"index/{entry.name}", writable=True)
        file.write(40, bytes(4 * SLOTS))  # no slot leads to an item
        file.flush()
        file.close()
    moved = [entry.name for entry in log.files.list("index")]
    # RocketMQ says of all of them that they are whole: nothing else looks at older ones.
    late = 1 << 45
    write_file(log.files, "checkpoint", encode_checkpoint(Checkpoint(late, late, late)))
    follower = Follower(log, EngineSettings(*settings)).start()
    assert any("built from the log" in line for line in follower.engine.report_lines)
    assert [entry.name for entry in log.files.list("stratamq/aside/index")] == moved
    assert follower.engine.geometry == FileGeometry(*settings)
    follower.assert_answers_like_the_log()


def test_our_own_record_needs_no_slots_on_disk():
    """After a crash the slots of the only file may all be zero."""
    log = TestLog(SimulatedDisk(1).files())
    follower = Follower(log, EngineSettings(SLOTS, ITEMS, slot_interval_ms=10**9)).start()
    log.append("alpha")
    follower.apply()
    follower.sync()
    again = Follower(log, EngineSettings()).start()
    assert again.engine.geometry == FileGeometry(SLOTS, ITEMS)
    again.assert_answers_like_the_log()


def test_the_geometry_is_recorded_before_the_first_file():
    log = TestLog(SimulatedDisk(1).files())
    Follower(log, EngineSettings(9, 20)).load()
    data = json.loads(read_file(log.files, "stratamq/geometry.json"))["data"]
    assert data == {"index_slots": 9, "index_items": 20}


def test_a_record_of_nonsense_is_passed_over():
    log = TestLog(SimulatedDisk(1).files())
    write_file(log.files, "stratamq/geometry.json", b'{"index_slots":-1}')
    assert Follower(log, EngineSettings()).load().engine.geometry == DEFAULT_GEOMETRY


def test_files_that_rocketmq_could_not_map_are_refused_by_the_settings(tmp_path):
    overrides = [f"index.root={tmp_path}", "index.index_items=107374181"]
    with pytest.raises(ConfigurationError, match="maps at most"):
        load(IndexConfig, "index", environ={}, overrides=overrides)
    config = load(IndexConfig, "index", environ={}, overrides=overrides[:1])
    assert config.engine_settings == EngineSettings()


def test_rocketmqs_defaults_make_rocketmqs_length():
    assert DEFAULT_GEOMETRY.file_bytes == 420_000_040
