"""A slave beside a measured broker, and whether it holds every byte."""

import hashlib
import time
from pathlib import Path

from stratamq_bench.broker import Broker
from stratamq_bench.checks import Mismatch
from stratamq_bench.streaming import StreamedBroker

LOOK_S = 0.01
CATCH_UP_S = 120.0
PIECE_BYTES = 4 << 20


class Slave:
    """Follows `master`, a broker whose stream has a role. To be left by `with`."""

    def __init__(self, directory: Path, master: StreamedBroker, name: str = "slave") -> None:
        self._master = master
        with master.broker.client() as client:
            address = client.admin.replication_state().replication_address
        settings = master.stream.settings(master.segment_bytes) | {
            "commitlog.role": "SLAVE",
            "commitlog.broker_id": 1,
            "commitlog.followers": "",
            "ha.master": address,
        }
        self.broker = Broker(directory, ("commitlog", "ha"), settings, name)
        self.client = self.broker.client()

    @property
    def end(self) -> int:
        return self.client.log_state().appended_offset

    def catch_up(self) -> None:
        """Until it is as far as its master is now. Mismatch when that takes too long."""
        with self._master.broker.client() as client:
            end = client.log_state().appended_offset
        deadline = time.perf_counter() + CATCH_UP_S
        while self.end < end:
            if time.perf_counter() > deadline:
                raise Mismatch(f"the slave is at {self.end}, its master at {end}")
            time.sleep(LOOK_S)

    def check_bytes(self) -> None:
        """Every segment that both have is the same up to the slave's end. Mismatch."""
        with self._master.broker.client() as client:
            # A file below it may still be there, and go at any time.
            first = client.log_state().minimum_offset
        end, size = self.end, self._master.segment_bytes
        here = {path.name for path in (self.broker.root / "commitlog").iterdir()}
        both = {path.name for path in (self._master.broker.root / "commitlog").iterdir()} & here
        both = {name for name in both if first <= int(name) < end}  # and none that is made ahead
        for name in sorted(both):
            length = min(size, end - int(name))
            if _digest(self.broker.root, name, length) != _digest(
                self._master.broker.root, name, length
            ):
                raise Mismatch(f"segment {name} of the slave is not its master's")
        if not both:
            raise Mismatch("master and slave have no segment in common")

    def __enter__(self) -> "Slave":
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.broker.stop()


def _digest(root: Path, name: str, length: int) -> bytes:
    digest, left = hashlib.blake2b(), length
    with open(root / "commitlog" / name, "rb") as file:
        while left and (piece := file.read(min(left, PIECE_BYTES))):
            digest.update(piece)
            left -= len(piece)
    return digest.digest()
