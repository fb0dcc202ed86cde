"""Ways to open a store that RocketMQ wrote: as it was left, or with something done to it first."""

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.support.fixtures import ALL_STORES, CLEAN_STORES


def untouched(root: Path) -> None:
    """As RocketMQ left it."""


def abort(root: Path) -> None:
    """As if RocketMQ had not stopped cleanly."""
    (root / "abort").touch()


def no_queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def one_queue(root: Path) -> None:
    """One queue of several files is gone, the others are there."""
    queues = [
        path for path in sorted(root.glob("consumequeue/*/*")) if len(list(path.iterdir())) > 1
    ]
    shutil.rmtree(queues[len(queues) // 2])


def no_index(root: Path) -> None:
    shutil.rmtree(root / "index")


CHANGES: dict[str, Callable[[Path], None]] = {
    "abort": abort,
    "no-queues": no_queues,
    "one-queue": one_queue,
    "no-index": no_index,
}


CHANGED = [f"{store}+{change}" for store in CLEAN_STORES for change in CHANGES]
OPENINGS = [*ALL_STORES, *CHANGED]


def split(opening: str) -> tuple[str, Callable[[Path], None]]:
    """The store and what is done to it, of `store` or `store+change`."""
    store, _, change = opening.partition("+")
    return store, CHANGES[change] if change else untouched
