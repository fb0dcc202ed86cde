"""Slots and items: the settings, our own record, or the defaults; only what fits is taken."""

import itertools
import json

import pytest
from stratamq_index.config import IndexConfig
from stratamq_index.geometry import DEFAULT_GEOMETRY, Choice, Fit, Geometry, choose
from stratamq_index.persistence import EngineSettings

from stratamq.errors import ConfigurationError, StoreRefusedError
from stratamq.files.simulated import SimulatedDisk
from stratamq.service.config import load
from tests.index.harness import ITEMS, SLOTS, Follower, TestLog, contents
from tests.support.disks import read_file, write_file

CONFIGURED, RECORDED = Geometry(7, 30), Geometry(8, 16)


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
                with pytest.raises(StoreRefusedError, match=r"index\.index_slots"):
                    choose(slots, items, recorded, table.__getitem__)
                continue
            choice = choose(slots, items, recorded, table.__getitem__)
            assert choice.geometry == (certain or perhaps or [recorded])[0]
            passed_over = configured is not None and choice.geometry != configured
            assert bool(choice.report) == passed_over


def test_an_empty_directory_takes_the_settings_then_the_record_then_the_defaults():
    assert choose(7, 30, RECORDED, None) == Choice(CONFIGURED)
    assert choose(7, None, RECORDED, None) == Choice(Geometry(7, 16))
    assert choose(None, None, RECORDED, None) == Choice(RECORDED)
    assert choose(None, None, None, None) == Choice(DEFAULT_GEOMETRY)


def test_settings_that_fit_no_file_are_reported_and_passed_over():
    log = TestLog(SimulatedDisk(1).files())
    log.fill(40)
    Follower(log).start().stop()
    follower = Follower(log, EngineSettings(SLOTS + 1, ITEMS)).start()
    assert any("do not fit" in line for line in follower.engine.report_lines)
    follower.assert_answers_like_the_log()
    follower.stop()
    assert contents(log.files) == log.index_files()


def test_a_directory_of_another_geometry_is_refused_and_untouched():
    log = TestLog(SimulatedDisk(1).files())
    log.fill(40)
    Follower(log).start().stop()
    for path in ("stratamq/geometry.json", "stratamq/index.json"):
        log.files.unlink(path)
        log.files.unlink(f"{path}.previous") if log.files.entry(f"{path}.previous") else None
    before = contents(log.files)
    with pytest.raises(StoreRefusedError, match=r"index\.index_slots and index\.index_items"):
        Follower(log, EngineSettings()).load()
    assert contents(log.files) == before
    assert log.files.list("stratamq/aside") == []
    Follower(log).start().assert_answers_like_the_log()


def test_the_same_length_with_other_slots_is_not_taken():
    """5 more slots take the bytes of one item: only the items show the difference."""
    log = TestLog(SimulatedDisk(1).files())
    log.fill(60)
    Follower(log).start().stop()
    wrong = Geometry(SLOTS + 5, ITEMS - 1)
    assert wrong.file_bytes == Geometry(SLOTS, ITEMS).file_bytes
    log.files.unlink("stratamq/geometry.json")
    log.files.unlink("stratamq/index.json")
    log.files.unlink("stratamq/index.json.previous")
    with pytest.raises(StoreRefusedError):
        Follower(log, EngineSettings(wrong.slots, wrong.items)).load()


def test_our_own_record_needs_no_slots_on_disk():
    """After a crash the slots of the only file may all be zero."""
    log = TestLog(SimulatedDisk(1).files())
    follower = Follower(log, EngineSettings(SLOTS, ITEMS, slot_interval_ms=10**9)).start()
    log.append("alpha")
    follower.apply()
    follower.sync()
    again = Follower(log, EngineSettings()).start()
    assert again.engine.geometry == Geometry(SLOTS, ITEMS)
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
