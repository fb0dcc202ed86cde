"""A store without its log is refused unchanged; a new root and an emptied log are not."""

import json
import os
import shutil
from pathlib import Path

import pytest

from stratamq.errors import StoreRefusedError
from stratamq.files.metadata import MetadataFile
from stratamq.files.real import RealFiles
from stratamq.files.simulated import SimulatedClock
from stratamq.formats.checkpoint import Checkpoint, encode_checkpoint
from stratamq.service.store_root import require_root, store_files
from stratamq.store.lost_log import begin_new_log, require_log
from tests.support.fixtures import ALL_STORES, unpack


def everything(root: Path) -> dict[str, bytes]:
    """Every file and directory below `root`."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else b""
        for path in sorted(root.rglob("*"))
    }


def put(root: Path, path: str, content: bytes | dict) -> None:
    if path.startswith("stratamq/") and isinstance(content, dict):
        MetadataFile(RealFiles(root), path).store(content)
        return
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())


@pytest.fixture
def root(tmp_path) -> Path:
    made = tmp_path / "store"
    made.mkdir()
    return made


EVIDENCE = {
    "checkpoint": encode_checkpoint(Checkpoint(physic_msg_timestamp_ms=1)),
    "consumequeue/t/0/00000000000000000000": b"\0" * 20,
    "index/20200101000000000": b"\0",
    "config/consumerOffset.json": b'{"offsetTable":{"t@g":{0:0,1:5}}}',
    "config/lmqConsumerOffset.json": b'{"offsetTable":{"%LMQ%a@g":5}}',
    "config/delayOffset.json": b'{"offsetTable":{3:12}}',
    "stratamq/generations.json": {"segment_bytes": 4096, "generations": [[1, 0], [2, 700]]},
    "stratamq/dispatcher.json": {"generation": 1, "position": 700},
    "stratamq/index.json": {"generation": 1, "position": 700},
    "dledger-n0/data/00000000000000000000": b"\0" * 20,
}


@pytest.mark.parametrize("path", EVIDENCE)
@pytest.mark.parametrize("log", ["missing", "empty", "lost+found"])
def test_each_part_of_a_store_shows_that_there_was_a_log(root, path, log):
    put(root, path, EVIDENCE[path])
    if log != "missing":
        (root / "commitlog").mkdir()
    if log == "lost+found":
        (root / "commitlog/lost+found").mkdir()
    before = everything(root)
    with pytest.raises(StoreRefusedError) as refused:
        require_log(RealFiles(root))
    assert path.split("/")[0] in str(refused.value) or "generations" in str(refused.value)
    assert everything(root) == before


NOTHING = {
    "checkpoint": encode_checkpoint(Checkpoint(confirm_phy_offset=0)),
    "consumequeue/t/0/.keep": b"",
    "config/consumerOffset.json": {"dataVersion": {"counter": 9}, "offsetTable": {"t@g": {"0": 0}}},
    "config/topics.json": {"topicConfigTable": {"t": {"writeQueueNums": 4}}},
    "stratamq/generations.json": {"segment_bytes": 4096, "generations": [[1, 0]]},
    "stratamq/dispatcher.json": {"generation": 0, "position": 0},
    "stratamq/run/index.json": {"address": "127.0.0.1:1"},
    "stratamq/role.json": {"role": "SLAVE", "term": 7},
    "lost+found/x": b"1",
}


@pytest.mark.parametrize("path", NOTHING)
def test_a_new_store_is_not_refused(root, path):
    put(root, path, NOTHING[path])
    require_log(RealFiles(root))


def test_a_root_that_is_not_there_is_a_new_store(root):
    require_root(root / "later")
    require_log(RealFiles(root / "later"))
    assert not (root / "later").exists()


@pytest.mark.parametrize("name", ALL_STORES)
def test_rocketmqs_store_is_taken_with_its_log_and_refused_without(name, tmp_path):
    store = unpack(name, tmp_path)
    require_root(store)
    require_log(RealFiles(store))
    shutil.rmtree(store / "commitlog")
    before = everything(store)
    with pytest.raises(StoreRefusedError, match=r"files in consumequeue.*mount.*new-log"):
        require_log(RealFiles(store))
    assert everything(store) == before


@pytest.mark.parametrize("path", ["config/topics.json", "config/consumerOffset.json"])
def test_a_store_whose_own_tables_are_gone_is_refused_unchanged(root, path):
    MetadataFile(RealFiles(root), path).store({"n": 1})
    put(root, "commitlog/00000000000000000000", b"\0" * 4096)
    store_files(root)
    (root / path).unlink()
    before = everything(root)
    with pytest.raises(StoreRefusedError, match=rf"{path} missing.*remove stratamq/checksums/"):
        store_files(root)
    assert everything(root) == before
    (root / "stratamq/checksums" / path).unlink()
    store_files(root)
    again = MetadataFile(RealFiles(root), path)
    again.store({"n": 2})
    again.store({"n": 3})
    (root / path).unlink()
    store_files(root)  # the content before the last is there, and the load tells


@pytest.mark.parametrize("part", ["commitlog", "consumequeue", "index"])
def test_a_part_of_a_store_is_not_taken_for_a_root(part, tmp_path):
    store = unpack("4.9.8-small-clean", tmp_path)
    with pytest.raises(StoreRefusedError, match="the directory above"):
        require_root(store / part)
    # Mounted alone elsewhere, its files still name it.
    if part != "consumequeue":
        shutil.move(store / part, tmp_path / "volume")
        with pytest.raises(StoreRefusedError, match="it holds"):
            require_root(tmp_path / "volume")


def test_a_root_of_any_name_beside_other_directories_is_a_root(tmp_path):
    for name in ("stratamq", "config", "data"):
        (tmp_path / name).mkdir()
    require_root(tmp_path / "stratamq")


def test_what_a_lost_log_left_is_moved_aside_and_nothing_is_deleted(tmp_path):
    store = unpack("4.9.8-small-clean", tmp_path)
    put(store, "config/topics.json", NOTHING["config/topics.json"])
    put(store, "config/consumerOffset.json", EVIDENCE["config/consumerOffset.json"])
    put(store, "stratamq/identity.json", {"identity": 5, "joined_as": "a"})
    put(store, "stratamq/run/index.json", {"address": "127.0.0.1:1"})
    with pytest.raises(StoreRefusedError, match="has segments"):
        begin_new_log(RealFiles(store), SimulatedClock())
    shutil.rmtree(store / "commitlog")
    before = everything(store)
    target, moved = begin_new_log(RealFiles(store), SimulatedClock())
    require_log(RealFiles(store))
    after = everything(store)
    assert moved[0] == "stratamq/identity.json"
    assert {"consumequeue", "index", "checkpoint", "config/consumerOffset.json"} <= set(moved)
    assert "stratamq/run/index.json" in after and "config/topics.json" in after
    for path, content in before.items():
        assert content in (after.get(path), after.get(f"{target}/{path}")), path
    assert begin_new_log(RealFiles(store), SimulatedClock())[1] == []


@pytest.mark.parametrize("shown_by", ["everything", "stratamq/generations.json"])
def test_an_interrupted_move_never_leaves_a_directory_that_counts_and_looks_new(root, shown_by):
    """Each step fails in turn; what is left is refused, or has no identity."""
    for path, content in {**EVIDENCE, "stratamq/identity.json": {"identity": 5}}.items():
        wanted = path in (shown_by, "stratamq/identity.json") or shown_by == "everything"
        if wanted and not path.startswith("dledger"):
            put(root, path, content)
    steps = 0
    while True:
        again = root.with_name(f"copy{steps}")
        shutil.copytree(root, again)

        class Failing(RealFiles):
            left = steps

            def replace(self, source: str, target: str) -> None:
                if not self.left:
                    raise OSError(5, os.strerror(5), source)
                self.left -= 1
                super().replace(source, target)

        files = Failing(again)
        try:
            begin_new_log(files, SimulatedClock())
        except OSError:
            steps += 1
            if (again / "stratamq/identity.json").exists():
                with pytest.raises(StoreRefusedError):
                    require_log(RealFiles(again))
            begin_new_log(RealFiles(again), SimulatedClock())
            require_log(RealFiles(again))
            continue
        break
    assert steps > 1
