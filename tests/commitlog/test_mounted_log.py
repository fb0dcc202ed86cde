"""A log, queues or index on a volume of their own: segments are made there, each has its level."""

import pytest

from stratamq.errors import BusyError
from stratamq.files.simulated import SimulatedDisk
from stratamq.formats.message_status import SendStatus
from tests.support.logs import Store
from tests.support.mounts import part_mounted

SEGMENT = 4096
PLENTY = 1 << 40


def mounted_store(part: str, capacity_bytes: int = PLENTY, **settings) -> Store:
    disk = SimulatedDisk()
    disk.mount(part, capacity_bytes)
    return Store(SEGMENT, disk=disk, **settings)


def put_all(store: Store, count: int) -> None:
    for number in range(count):
        assert store.put(b"%d" % number * 300).status is SendStatus.PUT_OK


@pytest.mark.parametrize("kind", ["bind", "tmpfs"])
def test_a_log_on_a_real_mount_rolls_and_opens_again(kind, tmp_path):
    root = tmp_path / "store"
    with part_mounted(kind, root / "commitlog", tmp_path / "elsewhere"):
        (root / "commitlog/lost+found").mkdir()
        store = Store(SEGMENT, root=root)
        log = store.start()
        put_all(store, 40)
        assert len(log.segments.offsets) > 3
        end = log.offsets.appended
        assert store.restart().offsets.appended == end
        store.stop()
        assert (root / "commitlog/lost+found").is_dir()
        assert not list((root / "stratamq/aside").glob("*"))


def test_a_log_on_a_volume_of_its_own_survives_power_losses():
    store = mounted_store("commitlog")
    store.start()
    put_all(store, 40)
    end = store.log.offsets.flushed
    store.power_loss()
    log = store.start()
    assert log.offsets.appended >= end
    put_all(store, 20)


def test_a_short_last_segment_on_a_mount_is_completed():
    store = mounted_store("commitlog")
    store.start()
    put_all(store, 3)
    end = store.log.offsets.appended
    store.stop()
    files = store.new_files()
    file = files.open("commitlog/00000000000000000000", writable=True)
    file.resize(2 * SEGMENT // 3)
    file.flush()
    file.close()
    assert store.start().offsets.appended == end
    put_all(store, 20)


@pytest.mark.parametrize("part", ["commitlog", "consumequeue", "index"])
def test_a_full_volume_of_any_part_refuses_messages_and_is_named(part):
    store = mounted_store(part, 1 << 20, disk_refuse_ratio=0.9, disk_resume_ratio=0.85)
    log = store.start()
    put_all(store, 1)
    store.disk.files(name="other").create(f"{part}/lost+found/ballast", 1 << 19)
    store.pass_time(1_000)
    assert log.writable == (True, "")
    free = store.disk.space(part).available_bytes
    store.disk.files(name="other").create(f"{part}/lost+found/more", free)
    store.pass_time(1_000)
    result = store.put(b"x")
    assert isinstance(result.error, BusyError)
    assert f"the disk of {part} is" in str(result.error)
    others = [used for name, used in log.gate.volumes.items() if name != part]
    assert others and log.gate.volumes[part] > 0.9 > max(others)
    store.disk.files().unlink(f"{part}/lost+found/more")
    store.pass_time(1_000)
    put_all(store, 1)


def test_one_volume_is_one_level_without_a_name():
    store = Store(SEGMENT)
    log = store.start()
    assert list(log.gate.volumes) == ["commitlog"]
    assert log.gate.disk_part == ""


def test_no_segment_is_made_that_would_fill_the_volume_of_the_log():
    store = mounted_store("commitlog", 10 * SEGMENT, disk_refuse_ratio=0.5)
    store.start()
    stored = 0
    while store.put(b"y" * 900).status is SendStatus.PUT_OK:
        stored += 1
        assert stored < 100, "the log's volume is never full"
    used = store.disk.space("commitlog")
    assert used.used_ratio <= 0.5
