"""The storages of the tier, each by a maker: what it returns opens one and the same place."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.storage import Storage

Opening: TypeAlias = Callable[[], Storage]


def memory(positions: bool) -> Callable[[pytest.FixtureRequest, Path], Opening]:
    def make(request: pytest.FixtureRequest, directory: Path) -> Opening:
        storage = MemoryStorage(positions=positions)
        return lambda: storage

    return make


MAKERS: dict[str, Callable[[pytest.FixtureRequest, Path], Opening]] = {
    "memory": memory(positions=False),
    "memory-positions": memory(positions=True),
}
