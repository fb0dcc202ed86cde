"""Stores for the jobs: RocketMQ's, what our engines make of them, and arguments of jobs."""

import shutil
from pathlib import Path

from stratamq_index.persistence import EngineSettings
from stratamq_pipeline.jobs.geometry import GeometryOptions
from stratamq_pipeline.jobs.session import SparkOptions

from stratamq.files.real import RealFiles
from tests.dispatcher.fixture_store import FixtureStore
from tests.index.harness import Follower, TestLog
from tests.support import fixtures

PART_BYTES = 40_000
"""Several parts in each of the fixtures' segments."""
HERE = SparkOptions("local[2]")
"""The jobs find the session of the tests, which is this."""


def sizes(root: Path) -> GeometryOptions:
    geometry = fixtures.geometry(root)
    return GeometryOptions(geometry.queue_units * 20, geometry.slots, geometry.items)


def files_below(root: Path, *directories: str) -> dict[str, bytes]:
    """Content by path relative to the root."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for directory in directories
        for path in sorted((root / directory).rglob("*"))
        if path.is_file()
    }


def built_by_services(name: str, into: Path) -> dict[str, bytes]:
    """Queue and index files that the dispatcher's and the index's engines make of the log alone."""
    root = fixtures.unpack(name, into)
    for derived in ("consumequeue", "index"):
        shutil.rmtree(root / derived)
    store = FixtureStore(name, root)
    store.follow()
    log = TestLog(RealFiles(root), store.geometry.log_bytes)
    log.minimum, log.end = store.minimum, store.end
    settings = EngineSettings(index_slots=store.geometry.slots, index_items=store.geometry.items)
    follower = Follower(log, settings).start()
    follower.stop()
    return files_below(root, "consumequeue", "index")
