"""What was synced is there after the repair of a volume whose journal was aborted meanwhile.

Without `WriteProbe` about a tenth of these rounds loses what a sync had reported as durable.
"""

import random
import threading

import pytest
from stratamq_torture.disks.volume import Volume, obstacle

from stratamq.files.real import RealFiles

ROUNDS = 25
FILE_BYTES = 8 << 20
pytestmark = pytest.mark.skipif(bool(obstacle()), reason=obstacle() or "it can run here")


def test_no_sync_reports_success_for_what_an_aborted_journal_takes_away(tmp_path):
    chance = random.Random(1)
    for number in range(ROUNDS):
        with Volume(tmp_path / str(number), 32 << 20) as volume:
            writer = Writer(volume, chance.choice((1_000, 5_000, 20_000)))
            writer.start()
            assert writer.has_begun.wait(60)
            threading.Event().wait(chance.uniform(0, 0.03))
            volume.break_down()
            writer.join(60)
            assert writer.has_failed, "the file was full before the volume broke"
            volume.repair()
            synced = (volume.path / "segment").read_bytes()[: writer.synced]
            assert b"\0" not in synced, f"round {number}"


class Writer(threading.Thread):
    """Appends to an allocated file, and syncs, until a call fails."""

    def __init__(self, volume: Volume, size: int) -> None:
        super().__init__()
        files = RealFiles(volume.path)
        files.create("segment", FILE_BYTES)
        self._file = files.open("segment", writable=True)
        self._file.allocate()
        self._file.flush()
        self._size = size
        self.synced = 0
        self.has_begun = threading.Event()
        self.has_failed = False

    def run(self) -> None:
        try:
            while self.synced + self._size <= FILE_BYTES:
                self._file.write(self.synced, b"x" * self._size)
                self._file.flush()
                self.synced += self._size
                self.has_begun.set()
        except OSError:
            self.has_failed = True
        finally:
            self._file.close()
            del self._file  # what it holds open would keep the volume mounted
