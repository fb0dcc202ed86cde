"""A power loss under the real services, on a disk that discards what was not synced."""

import pytest
from stratamq_torture.processes.harness import Stage
from stratamq_torture.processes.power import ForgetfulDisk, missing, run_power_losses
from stratamq_torture.trial import Options

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no forgetful disk: {missing()}")


def test_sync_flush_loses_nothing_with_the_power():
    report = run_power_losses(Options(2, 5))
    assert (report.failures, report.lost) == ([], 0)
    assert report.power_losses >= 2
    assert report.acknowledged_messages > 400


def test_async_flush_loses_only_what_is_newer_than_its_interval():
    report = run_power_losses(Options(1, 6), flush="ASYNC_FLUSH")
    assert (report.failures, report.lost) == ([], 0)
    assert any("lost with the power, as promised" in note for note in report.notes)


def test_what_was_acknowledged_before_its_flush_is_seen_to_be_lost():
    """The trial itself: a log that answers before it flushes does not pass."""
    late = ("commitlog.flush_disk_type=ASYNC_FLUSH", "commitlog.flush_interval_ms=600000")
    with (
        ForgetfulDisk() as disk,
        Stage(1, late, disk.mountpoint / "store", consumers=False) as stage,
    ):
        stage.grow(200)
        stage.workload.pause()
        stage.services.kill_all()
        disk.lose_power("nothing", 0)
        stage.restore()
        stage.checker.forget()
        assert len(stage.check().lost) >= 100
