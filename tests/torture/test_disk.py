"""A slice of `stratamq torture disk`: real services on a volume that is full, broken or read-only.

Needs root, loop devices and strace; see `why_not`.
"""

import os
from pathlib import Path

import pytest
from stratamq_torture.disks.acts import ACTS
from stratamq_torture.disks.trial import run_disks, why_not
from stratamq_torture.disks.volume import Volume
from stratamq_torture.trial import Options

pytestmark = pytest.mark.skipif(bool(why_not()), reason=f"torture disk {why_not()}")


@pytest.mark.parametrize(
    "act, flush",
    [
        ("filled-by-others", "SYNC_FLUSH"),
        ("started-when-full", "ASYNC_FLUSH"),
        ("read-only", "SYNC_FLUSH"),
        ("log-flush-fails", "SYNC_FLUSH"),
        ("index-flush-fails", "SYNC_FLUSH"),
    ],
)
def test_a_bad_disk_is_a_level_or_the_end_and_loses_nothing(act: str, flush: str):
    report = run_disks(Options(), act=act, flush=flush)
    assert (report.failures, report.lost, report.skipped) == ([], 0, "")
    assert report.acknowledged_messages > 0


def test_every_act_states_what_it_demands():
    assert all(act.__doc__ for act in ACTS.values())


def test_a_volume_is_filled_to_its_last_block_broken_repaired_and_gone(tmp_path: Path):
    with Volume(tmp_path, 32 << 20) as volume:
        volume.fill(0.5)
        assert 0.49 < volume.used_ratio < 0.52
        volume.fill(1.0)
        with pytest.raises(OSError, match="No space left"):
            (volume.path / "one-more").write_bytes(bytes(4096))
        volume.free()
        (volume.path / "kept").write_bytes(b"kept")
        os.sync()
        volume.break_down()
        with pytest.raises(OSError, match="Read-only"):
            (volume.path / "another").write_bytes(b"?")
        volume.repair()
        assert (volume.path / "kept").read_bytes() == b"kept"
    assert not volume.path.is_mount()
