"""What adopted queue files have and the log does not give is kept aside, and never only removed."""

import json
from pathlib import Path

import pytest

from stratamq.formats.file_names import offset_name
from stratamq.formats.store_paths import CONSUMER_OFFSETS_PATH
from tests.dispatcher.fixture_store import FixtureStore
from tests.dispatcher.running_service import RunningService
from tests.dispatcher.test_fixtures import check_all, queue_files
from tests.support import fixtures
from tests.support.disks import write_file

CLEAN = "4.9.8-small-clean"
UNIT = 20


@pytest.fixture
def root(tmp_path) -> Path:
    return fixtures.unpack(CLEAN, tmp_path)


def aside(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "stratamq" / "aside").glob("*")}


def last_queue_file(root: Path) -> tuple[Path, int]:
    """A queue's file with room behind its units, and where these end."""
    for path in sorted((root / "consumequeue").rglob("0*")):
        if path.is_file() and (used := len(path.read_bytes().rstrip(b"\0"))):
            used += -used % UNIT
            if path.stat().st_size - used >= 4 * UNIT:
                return path, used
    raise AssertionError("every queue file is full")


def unit(physical: int) -> bytes:
    return physical.to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(7) + b"\1"


def adopted(root: Path) -> FixtureStore:
    store = FixtureStore(CLEAN, root)
    store.follow()
    return store


def test_units_behind_the_logs_end_are_kept_where_they_lay(root, caplog):
    path, used = last_queue_file(root)
    before = path.read_bytes()
    (recovery,) = fixtures.expected(CLEAN, "recovery")
    ahead = unit(recovery["maxPhyOffset"]) + unit(recovery["maxPhyOffset"] + 100)
    path.write_bytes(before[:used] + ahead + before[used + len(ahead) :])
    caplog.set_level("INFO")
    store = adopted(root)
    check_all(store)
    assert path.read_bytes() == before
    (kept,) = aside(root).values()
    assert kept == bytes(used) + ahead + bytes(len(before) - used - len(ahead))
    assert caplog.text.count("queue units that the log does not give kept") == 1


def test_units_that_are_others_than_the_logs_are_kept(root):
    path, _ = last_queue_file(root)
    before = path.read_bytes()
    other = bytes(byte ^ 1 for byte in before[UNIT - 4 : UNIT])
    path.write_bytes(before[: UNIT - 4] + other + before[UNIT:])
    check_all(adopted(root))
    assert path.read_bytes() == before
    (kept,) = aside(root).values()
    assert other in kept


def test_a_queue_of_which_the_log_has_nothing_is_moved_and_named(root, caplog):
    directory = root / "consumequeue" / "made-by-a-plugin" / "0"
    directory.mkdir(parents=True)
    path, _ = last_queue_file(root)
    content = path.read_bytes()
    (directory / offset_name(0)).write_bytes(content)
    check_all(adopted(root))
    assert not (directory / offset_name(0)).exists()
    assert aside(root) == {f"consumequeue,made-by-a-plugin,0,{offset_name(0)}": content}
    assert "queue file without messages moved aside" in caplog.text


def test_a_directory_that_agrees_has_nothing_aside(root):
    before = queue_files(root)
    adopted(root)
    assert queue_files(root) == before
    assert not (root / "stratamq" / "aside").exists()


async def test_offsets_that_are_lowered_are_kept_as_they_were(tmp_path):
    table = {"offsetTable": {"t@g": {"0": 5}, "u@h": {"1": 7}}}
    async with RunningService(tmp_path) as service:
        service.log.put("t")
        write_file(service.files, CONSUMER_OFFSETS_PATH, json.dumps(table).encode())
        service.offsets.load()
        service.follow()
        service.bounds.tick()
        assert dict(service.offsets.queues_of(("g", "t"))) == {0: 1}
    (kept,) = (tmp_path / "stratamq" / "aside").glob("consumerOffset.json-*")
    assert json.loads(kept.read_bytes()) == table
