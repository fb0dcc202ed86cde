"""From where on every record has a checksum is known on the disk, and wiping one out is seen."""

import pytest
from stratamq_commitlog.replica.role_change import RoleChange

from stratamq.errors import CorruptRecordError
from stratamq.files.simulated import SimulatedCrash, keep_everything, keep_nothing
from stratamq.formats.frame_verify import NOWHERE
from stratamq.formats.log_state import Role
from stratamq.formats.properties import encode_properties
from stratamq.formats.property_crc import check_property_crc
from stratamq.store.confirmed import LOCK_PATH, is_ours
from stratamq.store.sealed import SEALED_PATH, sealed_from
from tests.support.logs import Store, message, raw_frame

SEGMENT = 1 << 16


def change(store: Store, wanted: RoleChange) -> None:
    answers: list[object] = []
    store.log.set_role(wanted, answers.append)
    store.settle()
    assert answers == [None]


def place(store: Store) -> int:
    return sealed_from(store.disk.image(keep_nothing).files())


def wipe_checksum(store: Store, number: int) -> int:
    """Overwrite the checksum of a record that a stopped store holds; where the record begins."""
    offset, raw, _ = store.members()[number]
    store.edit(f"commitlog/{0:020d}", offset + len(raw) - 20, b"x" * 20)
    return offset


def test_a_new_log_is_sealed_from_its_beginning():
    store = Store(SEGMENT, property_checksum=True)
    store.start()
    assert place(store) == 0
    store.put()
    store.restart()
    assert place(store) == 0


def test_records_without_one_end_where_the_setting_was_switched_on():
    store = Store(SEGMENT, property_checksum=False)
    store.start()
    assert place(store) == NOWHERE
    store.put()
    end = store.end()
    store.stop()
    store.start(property_checksum=True)
    assert place(store) == end
    store.put()
    store.stop()
    store.start(property_checksum=False)
    assert place(store) == NOWHERE


def test_a_slave_is_sealed_nowhere_because_its_bytes_are_its_masters():
    store = Store(SEGMENT, property_checksum=True)
    store.start()
    store.put()
    store.stop()
    store.start(role=Role.SLAVE.name)
    assert place(store) == NOWHERE


def test_a_log_that_lost_its_end_is_sealed_from_its_new_end_on():
    store = Store(SEGMENT, flush_disk_type="ASYNC_FLUSH")
    store.start()
    store.put_all(message(b"durable"))
    store.pass_time(2_000, ticks=4)
    kept = store.end()
    store.put_all(message(b"not durable"))
    store.kill()
    store.start(property_checksum=True)
    assert place(store) == store.end() > kept
    store.power_loss(keep_nothing)
    store.start()
    assert place(store) == store.end()


@pytest.mark.parametrize("text", [b"", b"rocketmq"])
def test_nothing_before_is_sealed_once_another_program_held_the_store(text):
    store = Store(SEGMENT, property_checksum=True)
    store.start()
    store.put()
    end = store.end()
    store.stop()
    files = store.disk.files()
    files.unlink(LOCK_PATH)
    files.create(LOCK_PATH, len(text), sparse=True)
    if text:
        store.edit(LOCK_PATH, 0, text)
    assert not is_ours(files)
    store.start()
    assert place(store) == end


@pytest.mark.parametrize("keep", [keep_nothing, keep_everything])
def test_records_that_rocketmq_wrote_behind_ours_need_no_checksum(keep):
    """Nor do readers demand one after a crash at any call of the first start behind it."""
    store = Store(SEGMENT, property_checksum=True)
    store.start()
    store.put_all(*[message(b"ours") for _ in range(3)])
    store.stop()
    rocketmq = Store(SEGMENT, disk=store.disk.image(keep_everything), property_checksum=False)
    rocketmq.start()
    rocketmq.put_all(*[message(b"theirs") for _ in range(3)])
    end = rocketmq.end()
    rocketmq.stop()
    # RocketMQ ignores `stratamq/`: the log is RocketMQ's, our state is unchanged.
    root = store.disk.tree.root
    root.entries["commitlog"] = rocketmq.disk.tree.root.entries["commitlog"]
    root.durable = dict(root.entries)
    store.disk.files().lock(LOCK_PATH, b"lock").close()
    original = store.disk.image(keep_everything)
    store.start()
    assert [frame.body for frame in store.frames()] == [b"ours"] * 3 + [b"theirs"] * 3
    ours = 0
    for call in range(1, store.disk.calls - original.calls + 1):
        store = Store(SEGMENT, disk=original.image(keep_everything), property_checksum=True)
        store.disk.crash_at(store.disk.calls + call)
        with pytest.raises(SimulatedCrash):
            store.start()
            store.stop()
        files = store.disk.image(keep).files()
        ours += is_ours(files)
        assert not is_ours(files) or sealed_from(files) >= end, call
    assert ours


@pytest.mark.parametrize("damage", ["flip", "missing"])
def test_a_damaged_file_demands_nothing_and_the_place_begins_anew(damage):
    store = Store(SEGMENT, property_checksum=True)
    store.start()
    store.put()
    end = store.end()
    store.stop()
    if damage == "flip":
        store.edit(SEALED_PATH, 3, b"?")
    else:
        store.disk.files().unlink(SEALED_PATH)
    store.start()
    assert place(store) == end
    assert len(store.log.frame_at(0)) > 0


def test_a_wiped_checksum_is_seen_by_reads_and_the_scrubber():
    store = Store(SEGMENT, property_checksum=True)
    store.start()
    store.put_all(*[message(b"body %d" % number) for number in range(5)])
    store.stop()
    damaged = wipe_checksum(store, 2)
    store.start()
    with pytest.raises(CorruptRecordError) as error:
        store.log.frame_at(damaged)
    assert error.value.reason == "record_crc"
    with pytest.raises(CorruptRecordError):
        list(store.log.read_range(0, 0, 0, verify=True))


def test_recovery_ends_at_a_record_above_the_durable_state_whose_checksum_is_wiped_out():
    store = Store(SEGMENT, property_checksum=True)
    store.start()
    store.put_all(*[message(b"body %d" % number) for number in range(5)])
    store.kill()
    damaged = wipe_checksum(store, 2)
    store.start()
    assert store.end() == damaged
    assert any(raw for raw in store.aside().values())


def test_a_promoted_slave_is_sealed_from_its_promotion_on_and_a_demoted_master_nowhere():
    store = Store(SEGMENT, property_checksum=True)
    store.start()
    store.put()
    change(store, RoleChange(Role.SLAVE, master="m:1"))
    assert place(store) == store.log.offsets.sealed_from == NOWHERE
    change(store, RoleChange(Role.ASYNC_MASTER))
    assert place(store) == store.log.offsets.sealed_from == store.end()


def test_a_raw_frame_without_a_checksum_gets_one():
    store = Store(SEGMENT, property_checksum=True)
    store.start()
    properties = encode_properties({"TAGS": "red"})
    store.put_raw(raw_frame(b"one", properties=properties), raw_frame(b"two"))
    one, two = store.frames()
    assert (one.body, two.body) == (b"one", b"two")
    assert one.properties_raw.startswith(properties)
    assert all(check_property_crc(raw) for raw in store.frame_bytes())
    end = store.end()
    store.kill()
    store.start()
    assert (store.end(), len(store.log.frame_at(0))) == (end, one.total_size)
