"""The same log on a real directory: what the simulated disk cannot show."""

import mmap
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from stratamq.errors import StoreRefusedError
from stratamq.formats.message_status import SendStatus
from tests.support.disks import open_below
from tests.support.fixtures import ALL_STORES, expected, unpack
from tests.support.listeners import Listener
from tests.support.logs import Store, batch, body_for, message, queue_table, raw_frame

HOLD_THE_LOCK = """
import sys
from stratamq.files.real import RealFiles
lock = RealFiles(sys.argv[1]).lock("lock", sys.argv[2].encode())
print("held", flush=True)
sys.stdin.read()
"""


def held_by_another_process(root: Path, text: str) -> subprocess.Popen:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_THE_LOCK, str(root), text],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    return holder


def random_life(store: Store, chance: random.Random) -> list[bytes]:
    """Puts, batches, kills and stops; what was acknowledged."""
    bodies: list[bytes] = []
    for number in range(120):
        body = b"%04d" % number + b"x" * chance.randrange(700)
        kind = chance.randrange(8)
        if kind < 4:
            assert store.put(body, topic=f"t{number % 3}").status is SendStatus.PUT_OK
            bodies.append(body)
        elif kind < 6:
            result = store.put_batch(batch([body, body + b"!"], queue_id=number % 4))
            assert result.status is SendStatus.PUT_OK
            bodies += [body, body + b"!"]
        elif kind == 6:
            store.kill()
            store.start()
        else:
            store.restart()
    return bodies


@pytest.mark.parametrize("disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_life_of_puts_kills_and_stops_loses_nothing(tmp_path, disk_type, seed):
    store = Store(8192, seed=seed, root=tmp_path, flush_disk_type=disk_type)
    store.start()
    bodies = random_life(store, random.Random(seed))
    assert [frame.body for frame in store.frames()] == bodies
    assert store.queues() == queue_table(store.frames())
    store.stop()
    assert not (tmp_path / "abort").exists()
    assert {path.stat().st_size for path in (tmp_path / "commitlog").iterdir()} == {8192}


def test_segments_are_whole_and_allocated_from_the_beginning(tmp_path):
    store = Store(1 << 20, root=tmp_path)
    store.start()
    store.put(b"x")
    (segment,) = (tmp_path / "commitlog").iterdir()
    assert segment.stat().st_size == 1 << 20
    assert segment.stat().st_blocks * 512 >= 1 << 20
    store.put(body_for((1 << 20) - 8))
    assert len(store.segments()) == 3  # The one ahead, too.


@pytest.mark.parametrize("name", ALL_STORES)
def test_a_copy_of_rocketmqs_directory_is_opened_and_gone_on_with(tmp_path, name):
    root = unpack(name, tmp_path)
    store = Store(65536, root=root)
    store.start()
    (recovery,) = expected(name, "recovery")
    assert store.end() == recovery["maxPhyOffset"]
    queues = {
        (line["topic"], line["queueId"]): line["maxOffset"]
        for line in expected(name, "queue")
        if line["maxOffset"]
    }
    assert store.queues() == queues
    assert store.put(b"and on", topic="added").queue_offset == 0
    store.restart()
    assert store.frames()[-1].body == b"and on"
    store.stop()
    strays = {path.name for path in (root / "commitlog").iterdir() if len(path.name) != 20}
    assert strays == set()


# --- the lock ---


@pytest.mark.parametrize("text", ["lock", "stratamq pid 1\n"])
def test_a_store_that_another_process_holds_is_refused(tmp_path, text):
    store = Store(root=tmp_path)
    store.start()
    store.put(b"x")
    store.stop()
    holder = held_by_another_process(tmp_path, text)
    try:
        with pytest.raises(StoreRefusedError, match="in use"):
            store.start()
        assert (tmp_path / "lock").read_text() == text
        assert not (tmp_path / "abort").exists()
    finally:
        holder.communicate(b"")
    store.start()
    assert len(store.frames()) == 1


def test_another_process_cannot_have_the_lock_while_the_log_runs(tmp_path):
    store = Store(root=tmp_path)
    store.start()
    for _ in range(3):
        store.put_all(*[message(b"x" * 500) for _ in range(10)])
        attempt = subprocess.run(
            [sys.executable, "-c", HOLD_THE_LOCK, str(tmp_path), "lock"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        assert b"BlockingIOError" in attempt.stderr
        store.pass_time(1_000, ticks=7)
    store.stop()
    held_by_another_process(tmp_path, "lock").communicate(b"")


def test_a_second_log_in_the_same_process_is_refused(tmp_path):
    store = Store(root=tmp_path)
    store.start()
    with pytest.raises(StoreRefusedError, match="in use"):
        Store(root=tmp_path).start()
    assert store.put(b"x").status is SendStatus.PUT_OK


# --- what the directory may contain ---


def used(root: Path) -> Store:
    store = Store(2048, root=root)
    store.start()
    store.put_all(*[message(b"x" * 300) for _ in range(12)])
    store.kill()
    return store


def test_links_directories_and_devices_in_the_place_of_segments_are_refused(tmp_path):
    for number, make in enumerate(
        (
            lambda path: path.symlink_to("/dev/null"),
            lambda path: path.symlink_to("nowhere"),
            lambda path: path.mkdir(),
            lambda path: os.mkfifo(path),
        )
    ):
        root = tmp_path / str(number)
        root.mkdir()
        store = used(root)
        segment = sorted((root / "commitlog").iterdir())[1]
        segment.unlink()
        make(segment)
        with pytest.raises(StoreRefusedError, match=segment.name):
            store.start()


def test_strays_of_every_kind_are_moved_aside(tmp_path):
    store = used(tmp_path)
    directory = tmp_path / "commitlog"
    (directory / "notes.txt").write_text("?")
    (directory / "link").symlink_to("/dev/null")
    (directory / "folder").mkdir()
    (directory / "folder" / "inside").write_text("!")
    os.mkfifo(directory / "pipe")
    store.start()
    assert len(store.frames()) == 12
    aside = {path.name.split("-")[1] for path in (tmp_path / "stratamq/aside").iterdir()}
    assert {"notes.txt", "link", "folder", "pipe"} <= aside


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_segment_that_may_not_be_read_is_refused(tmp_path):
    store = used(tmp_path)
    max((tmp_path / "commitlog").iterdir()).chmod(0)
    with pytest.raises(StoreRefusedError, match="commitlog"):
        store.start()


def test_a_reader_that_mapped_a_segment_survives_every_cut_and_deletion(tmp_path):
    """Nothing is ever truncated or punched under another's mapping."""
    store = Store(8192, root=tmp_path)
    store.start()
    store.put_all(*[message(body_for(3000)) for _ in range(8)])
    first = (tmp_path / "commitlog" / ("0" * 20)).open("rb")
    view = mmap.mmap(first.fileno(), 0, access=mmap.ACCESS_READ)
    seen = view[:]
    store.pass_time(5_000, ticks=3)  # a snapshot that needs none of what goes
    store.log.delete_below(3 * 8192, 10, True)
    store.pass_time(1_000, ticks=8)
    assert not (tmp_path / "commitlog" / ("0" * 20)).exists()
    assert view[:] == seen
    store.kill()
    last = max(path for path in (tmp_path / "commitlog").iterdir())
    with last.open("r+b") as damaged:
        damaged.seek(50)
        damaged.write(b"\xff" * 50)
    store.start()
    assert all(path.stat().st_size == 8192 for path in (tmp_path / "commitlog").iterdir())
    view.close()
    first.close()


def test_followers_read_on_real_files_what_events_announce(tmp_path):
    store = Store(4096, root=tmp_path)
    store.start()
    listener = Listener(store)
    for number in range(30):
        store.put(b"x" * (number * 31 % 900))
        if number % 5 == 0:
            store.put_raw(raw_frame(b"r", sys_flag=4))
        listener.listen()
    assert listener.position == store.end()


def test_segments_that_are_full_and_flushed_hold_no_descriptor(tmp_path):
    store = Store(2048, root=tmp_path)
    store.start()
    for _ in range(30):
        store.put(body_for(1500))
    assert len(store.segments()) >= 30
    assert len(open_below(tmp_path / "commitlog")) <= 2, "the active one and the one ahead"
    store.stop()
    assert open_below(tmp_path / "commitlog") == []
