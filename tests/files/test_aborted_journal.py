"""What was synced is there after the repair of a volume whose journal was aborted meanwhile.

Without `WriteProbe` about a tenth of these rounds loses what a sync had reported as durable.
"""

import random
import threading

import pytest
from stratamq_torture.disks.volume import Volume, obstacle

from stratamq.files.real import RealFile, RealFiles

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
            assert not writer.is_alive(), "no call failed on a volume that is read-only"
            volume.repair()
            synced = (volume.path / writer.segment).read_bytes()[: writer.synced]
            assert b"\0" not in synced, f"round {number}"


class Writer(threading.Thread):
    """Appends to allocated files, one after the other, and syncs, until a call fails."""

    def __init__(self, volume: Volume, size: int) -> None:
        super().__init__()
        self._files = RealFiles(volume.path)
        self._size = size
        self._number = 0
        self._file = self._allocated(0)
        self.synced = 0
        """Bytes of `segment` that a sync has reported."""
        self.has_begun = threading.Event()

    @property
    def segment(self) -> str:
        return f"segment{self._number}"

    def run(self) -> None:
        try:
            while True:
                self._fill()
                self._begin_next()
        except OSError:
            pass  # the volume is read-only
        finally:
            self._file.close()
            del self._file, self._files  # what they hold open would keep the volume mounted

    def _fill(self) -> None:
        while self.synced + self._size <= FILE_BYTES:
            self._file.write(self.synced, b"x" * self._size)
            self._file.flush()
            self.synced += self._size
            self.has_begun.set()

    def _begin_next(self) -> None:
        following, full = self._allocated(self._number + 1), self.segment
        self._file.close()
        self._file, self._number, self.synced = following, self._number + 1, 0
        self._files.unlink(full)

    def _allocated(self, number: int) -> RealFile:
        self._files.create(f"segment{number}", FILE_BYTES)
        file = self._files.open(f"segment{number}", writable=True)
        file.allocate()
        file.flush()
        return file
