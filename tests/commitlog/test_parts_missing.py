"""A directory of which a part is missing: nothing is changed before its log agrees with the rest,
and what goes is moved aside."""

import shutil
from pathlib import Path

import pytest
from stratamq_commitlog.recovery.inspection import WalkStart

from stratamq.errors import StoreRefusedError
from tests.support.fixtures import ALL_STORES, CLEAN_STORES, expected, unpack
from tests.support.logs import Store

SEGMENT = 65536
OWN = ("generations.json", "queue-offsets.journal")


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


@pytest.fixture
def ours(tmp_path) -> Store:
    """A store that was stopped cleanly, of several segments."""
    store = Store(4096, root=tmp_path / "store")
    store.start()
    for _ in range(40):
        store.put(bytes(300))
    store.stop()
    return store


@pytest.mark.parametrize("name", CLEAN_STORES)
def test_rocketmqs_store_without_its_newest_segment_is_refused_unchanged(tmp_path, name):
    root = unpack(name, tmp_path)
    (recovery,) = expected(name, "recovery")
    last = recovery["maxPhyOffset"] // SEGMENT * SEGMENT
    for segment in (root / "commitlog").iterdir():
        if int(segment.name) >= last:
            segment.rename(tmp_path / segment.name)
    before = contents(root)
    with pytest.raises(StoreRefusedError, match=f"{last:020} is missing"):
        Store(SEGMENT, root=root).start()
    assert contents(root) == before
    shutil.move(root / "consumequeue", tmp_path / "given-up")
    store = Store(SEGMENT, root=root)
    store.start()
    assert store.end() <= last
    store.stop()


@pytest.mark.parametrize("name", ALL_STORES)
def test_a_whole_store_of_rocketmqs_is_taken_whose_queues_are_ahead_of_the_last_bytes(
    tmp_path, name
):
    """A power failure lost the end of the log's last segment, and not that of the queues."""
    root = unpack(name, tmp_path)
    last = max(line["cqPhyOffset"] for line in expected(name, "message"))
    path = root / "commitlog" / f"{last // SEGMENT * SEGMENT:020}"
    content = path.read_bytes()
    path.write_bytes(content[: last % SEGMENT] + bytes(SEGMENT - last % SEGMENT))
    store = Store(SEGMENT, root=root)
    store.start()
    assert store.end() == last


def test_a_lock_file_that_alone_is_missing_costs_no_history(ours):
    before = {name: (ours.root / "stratamq" / name).read_bytes() for name in OWN}
    (ours.root / "lock").unlink()
    log = ours.start()
    assert len(log.state.generations) == 2
    assert any(WalkStart.SNAPSHOT.value in line for line in log.report)
    assert before["generations.json"] != (ours.root / "stratamq" / OWN[0]).read_bytes()
    assert not list((ours.root / "stratamq").glob("aside/own-state-*"))


def test_without_the_lock_file_and_with_more_in_the_log_our_state_is_kept_aside(ours):
    """Another program may have written since: what it wrote has no checksum of ours."""
    kept = {name: (ours.root / "stratamq" / name).read_bytes() for name in OWN}
    end = max(int(path.name) for path in (ours.root / "commitlog").iterdir())
    path = ours.root / "commitlog" / f"{end:020}"
    content = path.read_bytes()
    used = len(content.rstrip(b"\0"))
    path.write_bytes(content[: used + 60] + b"\1" + content[used + 61 :])
    (ours.root / "lock").unlink()
    log = ours.start()
    (aside,) = (ours.root / "stratamq" / "aside").glob("own-state-*")
    assert {name: (aside / name).read_bytes() for name in OWN} == kept
    assert any("kept in stratamq/aside/own-state-" in line for line in log.report)


def test_our_state_of_a_store_that_rocketmq_held_since_is_kept_aside(ours):
    kept = {name: (ours.root / "stratamq" / name).read_bytes() for name in OWN}
    (ours.root / "lock").write_bytes(b"lock")
    ours.start()
    (aside,) = (ours.root / "stratamq" / "aside").glob("own-state-*")
    assert {name: (aside / name).read_bytes() for name in OWN} == kept


def test_a_first_segment_that_was_not_deleted_by_us_is_named_as_lost(ours, caplog):
    first = min((ours.root / "commitlog").iterdir())
    first.rename(ours.root.parent / first.name)
    log = ours.start()
    assert any("messages are missing: the log begins at 4096" in line for line in log.report)
    assert "segments are missing" in caplog.text


def test_a_file_with_bytes_in_the_place_of_a_segment_is_moved_and_not_removed(tmp_path, caplog):
    store = Store(4096, root=tmp_path / "store")
    store.start()
    store.put()
    in_the_way = store.root / "commitlog" / f"{8192:020}"
    in_the_way.write_bytes(b"someone's")
    while store.end() < 12_000:
        store.put(bytes(300))
    (aside,) = (store.root / "stratamq" / "aside").iterdir()
    assert aside.read_bytes() == b"someone's"
    assert "file in a segment's place moved" in caplog.text


@pytest.mark.parametrize("size", [0, 4096])
def test_an_empty_file_in_the_place_of_a_segment_is_an_attempt_of_ours(tmp_path, size):
    store = Store(4096, root=tmp_path / "store")
    store.start()
    store.put()
    (store.root / "commitlog" / f"{8192:020}").write_bytes(bytes(size))
    while store.end() < 12_000:
        store.put(bytes(300))
    assert not (store.root / "stratamq" / "aside").exists()


@pytest.mark.parametrize("field", range(3))
def test_a_checkpoint_that_has_more_than_the_log_is_kept_before_it_is_lowered(
    tmp_path, caplog, field
):
    root = unpack("4.9.8-small-clean", tmp_path)
    before = bytearray((root / "checkpoint").read_bytes())
    before[8 * field : 8 * field + 8] = (1 << 42).to_bytes(8, "big")
    (root / "checkpoint").write_bytes(before)
    caplog.set_level("INFO")
    Store(SEGMENT, root=root).start()
    (kept,) = (root / "stratamq" / "aside").glob("checkpoint-*")
    assert kept.read_bytes() == before
    assert "the checkpoint names a later message than the log has" in caplog.text


def test_checkpoints_that_are_kept_at_one_time_have_names_of_their_own(tmp_path):
    """Two starts at one time of the store: its clock stands while the wall clock is doubted."""
    root = unpack("4.9.8-small-clean", tmp_path)
    before = bytearray((root / "checkpoint").read_bytes())
    before[:8] = (1 << 42).to_bytes(8, "big")
    for _ in range(2):
        (root / "checkpoint").write_bytes(before)
        store = Store(SEGMENT, root=root)
        store.clock.set_wall_ms(1_700_000_000_000)
        store.start()
        store.kill()
    kept = [*(root / "stratamq" / "aside").glob("checkpoint-*")]
    assert [one.read_bytes() for one in kept] == [before] * 2
