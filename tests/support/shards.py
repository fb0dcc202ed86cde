"""Two brokers of different names as real processes: what a client of several addresses reads."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from stratamq_bench.ports import free_port

from tests.support.brokers import COMMITLOG, DISPATCHER, Broker

NAMES = ("a", "b")
ROOMS = [COMMITLOG, DISPATCHER]


class Shards:
    """`with Shards(directory) as shards`: brokers `a` and `b`, each at ports that stay."""

    def __init__(
        self, directory: Path, rooms: Sequence[str] = ROOMS, settings: Sequence[str] = ()
    ) -> None:
        self._directory = directory
        self._rooms = rooms
        self._more = settings
        self.brokers: dict[str, Broker] = {}
        self._addresses = {name: f"127.0.0.1:{free_port()}" for name in NAMES}

    def __getitem__(self, name: str) -> Broker:
        return self.brokers[name]

    def __enter__(self) -> "Shards":
        for name in NAMES:
            self.brokers[name] = Broker(
                self._directory / name, self._directory / f"logs-of-{name}", self._settings(name)
            )
            self.brokers[name].start(self._rooms)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for broker in self.brokers.values():
            broker.__exit__(kind, error, traceback)

    def _settings(self, name: str) -> list[str]:
        return [
            f"commitlog.broker_name={name}",
            "commitlog.segment_bytes=1048576",
            f"commitlog.followers={','.join(one for one in self._rooms if one != COMMITLOG)}",
            f"commitlog.address={self._addresses[name]}",
            *self._more,
        ]

    @property
    def address(self) -> str:
        return ",".join(self._addresses[name] for name in NAMES)

    def kill(self, name: str) -> None:
        self.brokers[name].kill_all()

    def start_again(self, name: str) -> None:
        """Its log service where it was."""
        old = self.brokers[name]
        self.brokers[name] = Broker(
            old.root, self._directory / f"logs-of-{name}", self._settings(name)
        )
        old.__exit__(None, None, None)
        self.brokers[name].start(ROOMS)
