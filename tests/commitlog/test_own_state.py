"""Our own state is used only while it is valid: after RocketMQ, after damage, after a crash."""

import pytest
from stratamq_commitlog.recovery.own_state import (
    GENERATIONS_PATH,
    OLD_SNAPSHOT_PATH,
    SNAPSHOT_PATH,
    OwnState,
)

from stratamq.errors import StoreRefusedError
from stratamq.files.metadata import MetadataFile
from stratamq.files.port import EntryKind
from stratamq.files.simulated import (
    SimulatedCrash,
    SimulatedDisk,
    keep_everything,
    keep_nothing,
)
from stratamq.formats.json_files import format_json, parse_json
from stratamq.formats.message_status import SendStatus
from stratamq.store.queue_snapshot import TableSnapshot
from tests.support.disks import edit_file, read_file, write_file
from tests.support.logs import Store, message, raw_batch, raw_frame, segment_path

SEGMENT = 2048


def started(**settings) -> Store:
    store = Store(SEGMENT, **settings)
    store.start()
    return store


def used_by_rocketmq(store: Store) -> None:
    """What RocketMQ leaves in the lock file."""
    files = store.disk.files()
    lock = files.lock("lock", b"lock")
    lock.close()


def uses_our_state(store: Store) -> bool:
    return "known durable" in store.log.report[0]


def test_a_restart_begins_at_the_snapshot():
    store = started()
    store.put_all(*[message() for _ in range(30)])
    end, queues = store.end(), store.queues()
    store.restart()
    assert uses_our_state(store)
    assert str(end) in store.log.report[0]
    assert store.queues() == queues


def test_idle_queues_are_remembered_when_their_messages_are_gone():
    store = started()
    store.put_all(message(topic="idle"), message(topic="idle"))
    store.put_all(*[message(b"x" * 400) for _ in range(12)])
    store.pass_time(3_000, ticks=4)
    assert store.log.delete_below(3 * SEGMENT, 10, False)[0] == 3 * SEGMENT
    store.kill()
    store.start()
    assert store.queues()["idle", 0] == 2
    assert store.put(topic="idle").queue_offset == 2


def as_older_releases_wrote(snapshot: TableSnapshot) -> bytes:
    """`stratamq/queue-offsets.json`: the queue table in one document."""
    frame = snapshot.frame
    document = {
        "generation": snapshot.generation,
        "offset": snapshot.offset,
        "frame": None if frame is None else [frame.offset, frame.size, frame.sha256],
        "store_timestamp_ms": snapshot.store_timestamp_ms,
        "queues": [[topic, queue_id, n] for (topic, queue_id), n in snapshot.queues.items()],
    }
    disk = SimulatedDisk()
    MetadataFile(disk.files(), OLD_SNAPSHOT_PATH).store(document)
    return read_file(disk.files(), OLD_SNAPSHOT_PATH)


def snapshot_of(store: Store) -> TableSnapshot:
    found = OwnState(store.disk.files()).load()
    assert found is not None
    return found


def test_what_an_older_release_wrote_in_between_counts_and_not_the_older_journal():
    store = started()
    store.put_all(message(), message())
    store.stop()
    journal = read_file(store.disk.files(), SNAPSHOT_PATH)
    store.start()
    store.put_all(message(topic="idle"), message(topic="idle"))
    store.put_all(*[message(b"x" * 400) for _ in range(12)])
    store.pass_time(3_000, ticks=4)
    assert store.log.delete_below(3 * SEGMENT, 10, False)[0] == 3 * SEGMENT
    store.stop()
    files = store.disk.files()
    write_file(files, OLD_SNAPSHOT_PATH, as_older_releases_wrote(snapshot_of(store)))
    files.unlink(SNAPSHOT_PATH)
    write_file(files, SNAPSHOT_PATH, journal)
    store.start()
    assert uses_our_state(store)
    assert store.queues()["idle", 0] == 2
    store.kill()
    assert store.disk.files().entry(OLD_SNAPSHOT_PATH) is None
    store.start()
    assert store.queues()["idle", 0] == 2


def test_a_document_of_an_older_release_that_stayed_behind_does_not_count():
    store = started()
    store.put_all(message(topic="idle"))
    store.stop()
    document = as_older_releases_wrote(snapshot_of(store))
    store.start()
    store.put_all(message(topic="idle"))
    store.put_all(*[message(b"x" * 400) for _ in range(12)])
    store.pass_time(3_000, ticks=4)
    assert store.log.delete_below(3 * SEGMENT, 10, False)[0] == 3 * SEGMENT
    store.stop()
    write_file(store.disk.files(), OLD_SNAPSHOT_PATH, document)
    store.start()
    assert uses_our_state(store)
    assert store.queues()["idle", 0] == 2


def test_after_rocketmq_ran_nothing_of_ours_is_believed():
    store = started()
    store.put_all(message(), message())
    generations = store.log.state.generations
    store.stop()
    used_by_rocketmq(store)
    store.start()
    assert any("our own state is not used, and kept in" in line for line in store.log.report)
    assert len(store.log.state.generations) == 1
    assert store.log.state.generations[0] not in generations
    assert store.queues() == {("orders", 0): 2}


def test_the_size_of_our_segments_is_not_demanded_of_a_log_that_rocketmq_made():
    """Its operator had removed ours, and the other one has shorter segments."""
    store = started()
    store.put(b"ours")
    store.stop()
    rocketmq = Store(SEGMENT // 2)
    rocketmq.start()
    rocketmq.put_all(*[message(b"x" * 400) for _ in range(5)])
    rocketmq.stop()
    root = store.disk.tree.root
    root.entries["commitlog"] = rocketmq.disk.tree.root.entries["commitlog"]
    used_by_rocketmq(store)
    store.start()
    assert store.log.segment_bytes == SEGMENT // 2
    assert [frame.body for frame in store.frames()] == [b"x" * 400] * 5


@pytest.mark.parametrize("choice", [keep_nothing, keep_everything])
def test_a_crash_at_any_call_of_that_start_does_not_make_it_believed_again(choice):
    """RocketMQ deleted the topic, so that the queue began again: nothing of that may be cut."""
    store = started()
    store.put_all(*[message(b"old") for _ in range(5)])
    store.stop()
    rocketmq = Store(SEGMENT, disk=store.disk.image(keep_everything))
    rocketmq.start()
    rocketmq.log.appender.queues.table.clear()
    rocketmq.put_all(*[message(b"new") for _ in range(3)])
    rocketmq.stop()
    # RocketMQ ignores `stratamq/`: the log is RocketMQ's, our state is unchanged.
    original = store.disk.image(keep_everything)
    original.tree.root.entries["commitlog"] = rocketmq.disk.tree.root.entries["commitlog"]
    original.tree.root.durable = dict(original.tree.root.entries)
    store = Store(SEGMENT, disk=original)
    used_by_rocketmq(store)
    original = original.image(keep_everything)

    reference = Store(SEGMENT, disk=original.image(keep_everything))
    reference.start()
    calls = reference.disk.calls
    assert [frame.body for frame in reference.frames()] == [b"old"] * 5 + [b"new"] * 3
    assert reference.queues() == {("orders", 0): 3}
    for call in range(1, calls + 1):
        store = Store(SEGMENT, disk=original.image(keep_everything))
        store.disk.crash_at(store.disk.calls + call)
        with pytest.raises(SimulatedCrash):
            store.start()
            store.put(b"if it comes so far")
            store.disk.crash_at(store.disk.calls + 1)
            store.stop()
        store.power_loss(choice)
        store.disk.clear_faults()
        store.start()
        assert [frame.body for frame in store.frames()][:8] == [b"old"] * 5 + [b"new"] * 3, call


def test_a_snapshot_whose_frame_is_gone_is_not_believed():
    store = started()
    store.put_all(*[message() for _ in range(5)])
    store.stop()
    store.edit(segment_path(0), 4 * 101 + 60, b"\xff")
    store.start()
    assert "our snapshot does not fit the log: it is moved aside, and not used" in store.log.report
    assert len(store.log.state.generations) == 1


def test_deletion_in_a_hurry_waits_for_a_snapshot_that_knows_the_queues():
    """A start writes a snapshot at 0: what it needs to count queues from there must stay."""
    store = started(snapshot_interval_ms=60_000)
    store.pass_time(1)
    store.put_all(*[message(b"x" * 400) for _ in range(15)])
    store.log.delete_below(2 * SEGMENT, 10, True)
    store.pass_time(1_000, ticks=3)
    assert min(store.segments()) == 0
    store.pass_time(60_000, ticks=3)
    store.log.delete_below(2 * SEGMENT, 10, True)
    store.pass_time(1_000, ticks=3)
    assert min(store.segments()) == 2 * SEGMENT
    bodies, end = len(store.frames()), store.end()
    store.kill()
    store.start()
    assert (len(store.frames()), store.end()) == (bodies, end)
    assert store.queues() == {("orders", 0): 15}


def test_a_slave_that_began_in_the_middle_survives_a_kill_in_its_first_seconds():
    master = started()
    master.put_all(*[message(b"x" * 400) for _ in range(15)])
    data = master.segments()
    first = 2 * SEGMENT
    slave = started(role="SLAVE", snapshot_interval_ms=3_600_000)
    for base in range(first, master.end(), SEGMENT):
        assert slave.append_data(base, data[base][: master.end() - base]) is None
    end = slave.end()
    slave.kill()
    slave.start()
    assert (slave.end(), min(slave.segments())) == (end, first)


def test_deletion_never_takes_the_frame_that_the_snapshot_stands_on():
    """A snapshot at a segment's very start is at the last frame of the one before."""
    store = started(snapshot_interval_ms=3_600_000)
    store.put_all(message(b"x" * 400, topic="idle"), *[message(b"x" * 400) for _ in range(2)])
    # A refused batch that would not have fitted leaves a blank, and nothing behind it.
    bad = bytearray(raw_frame(b"y" * 1500))
    bad[-20] ^= 1
    assert store.put_batch(raw_batch([bytes(bad)])).status is SendStatus.MESSAGE_ILLEGAL
    assert store.end() == SEGMENT
    store.restart()
    store.pass_time(1)
    store.put_all(*[message(b"x" * 400) for _ in range(8)])
    store.log.delete_below(2 * SEGMENT, 10, False)
    store.pass_time(1_000, ticks=3)
    store.kill()
    store.start()
    assert uses_our_state(store)
    assert store.queues()["idle", 0] == 1


# --- damaged files of our own ---


@pytest.mark.parametrize("path", [SNAPSHOT_PATH, GENERATIONS_PATH])
@pytest.mark.parametrize("previous", [False, True])
def test_every_kind_of_damage_to_our_own_files_is_survived(path, previous):
    reference = started()
    reference.put_all(*[message(b"x" * 300) for _ in range(12)])
    reference.pass_time(6_000)
    reference.put_all(*[message(b"x" * 300) for _ in range(2)])
    expected = (reference.end(), reference.queues())
    reference.kill()
    original = reference.disk.image(keep_everything)
    content = original.contents(path)

    def flip(at: int):
        return lambda disk, name: disk.rot(name, at, bytes([content[at] ^ 0x10]))

    def cut(disk, name):
        disk.files().unlink(name)
        write_file(disk.files(), name, content[: len(content) // 2])

    def plant(kind):
        def do(disk, name):
            disk.files().unlink(name)
            disk.plant(name, kind)

        return do

    def directory(disk, name):
        disk.files().unlink(name)
        disk.files().make_directory(name)

    damages = [flip(at) for at in range(0, len(content), 9)]
    damages += [cut, directory, plant(EntryKind.LINK), plant(EntryKind.OTHER)]
    damages += [lambda disk, name: disk.files().unlink(name)]
    damages += [lambda disk, name: disk.fail("read", name, repeat=True)]
    for damage in damages:
        disk = original.image(keep_everything)
        names = [path, f"{path}.previous"] if previous else [path]
        for name in names:
            if disk.tree.find(name) is not None:
                damage(disk, name)
        disk.tree.sync_all()
        store = Store(SEGMENT, disk=disk)
        store.start()
        assert (store.end(), store.queues()) == expected
        assert store.put(b"goes on").status is SendStatus.PUT_OK
        disk.clear_faults()
        store.restart()


def test_an_older_list_of_generations_is_not_used_in_place_of_a_damaged_one():
    """Where a later generation was cut would be missing from it."""
    store = started()
    store.put_all(*[message() for _ in range(5)])
    store.restart()
    newest = store.log.generation
    store.stop()
    store.edit(GENERATIONS_PATH, 120, b"\0")
    store.start()
    assert [g for g in store.log.state.generations if g.number == newest] == []
    assert len(store.log.state.generations) == 1


def test_a_crash_between_the_renames_of_the_list_uses_the_one_before():
    store = started()
    store.put(b"x")
    store.stop()
    before = list(store.log.state.generations) if store.log else None
    store.disk.crash_on("replace", GENERATIONS_PATH)
    with pytest.raises(SimulatedCrash):
        store.start()
    store.power_loss(keep_everything)
    store.start()
    assert before is None
    assert len(store.log.state.generations) == 2


# --- generations ---


def test_every_start_opens_a_generation_at_the_end_with_a_greater_number():
    store = started()
    ends = [0]
    for _ in range(3):
        store.put(b"x")
        ends.append(store.end())
        store.restart()
    generations = store.log.state.generations
    assert [g.start for g in generations] == ends
    assert [g.number for g in generations] == sorted({g.number for g in generations})


def test_a_generation_is_durable_before_the_first_append():
    store = started()
    store.power_loss(keep_nothing)
    before = parse_json(store.disk.contents(GENERATIONS_PATH))["data"]["generations"]
    store.start()
    store.power_loss(keep_nothing)
    after = parse_json(store.disk.contents(GENERATIONS_PATH))["data"]["generations"]
    assert after[:-1] == before
    assert len(after) == 2


def test_a_cut_lowers_the_starts_of_later_generations():
    store = started(flush_disk_type="ASYNC_FLUSH", flush_interval_ms=3_600_000)
    store.put(b"flushed")
    store.restart()
    first_end = store.end()
    store.put_all(*[message(b"lost") for _ in range(10)])
    store.kill()
    store.start()  # A kill loses nothing, and recovery makes it durable: a generation begins here.
    store.put_all(*[message(b"lost") for _ in range(10)])
    highest = store.end()
    store.kill()
    # The disk loses what was flushed: the segment comes back as it was after the first message.
    content = store.segments()[0]
    for base in store.segments():
        store.edit(segment_path(base), 0, bytes(SEGMENT))
    store.edit(segment_path(0), 0, content[:first_end].ljust(SEGMENT, b"\0"))
    store.disk.files().unlink(SNAPSHOT_PATH)
    if store.disk.tree.find(f"{SNAPSHOT_PATH}.previous"):
        store.disk.files().unlink(f"{SNAPSHOT_PATH}.previous")
    store.start()
    assert store.end() == first_end < highest
    assert all(g.start <= first_end for g in store.log.state.generations)


# --- the lock ---


def test_a_store_in_use_is_refused():
    store = started()
    second = Store(SEGMENT, disk=store.disk)
    with pytest.raises(StoreRefusedError, match="in use"):
        second.start()
    assert store.put(b"still here").status is SendStatus.PUT_OK


def test_rocketmq_holding_the_lock_is_respected_and_its_text_left():
    store = started()
    store.stop()
    files = store.disk.files()
    lock = files.lock("lock", b"lock")
    with pytest.raises(StoreRefusedError, match="in use"):
        store.start()
    assert store.disk.contents("lock") == b"lock"
    lock.close()
    store.start()
    assert store.disk.contents("lock").startswith(b"stratamq ")


def test_a_lock_file_that_is_no_file_is_refused():
    for kind in (EntryKind.LINK, EntryKind.OTHER):
        store = Store(SEGMENT)
        store.disk.plant("lock", kind)
        with pytest.raises(StoreRefusedError):
            store.start()
    store = Store(SEGMENT)
    store.disk.files().make_directory("lock")
    with pytest.raises(StoreRefusedError):
        store.start()


# --- topics ---


def test_topics_that_rocketmq_changed_stay_changed_at_the_starts_after_it():
    store = started()
    store.put(b"x")
    store.put(b"x", topic="other")
    store.restart()
    store.stop()
    files = store.disk.files()
    document = parse_json(store.disk.contents("config/topics.json"))
    document["topicConfigTable"]["orders"]["writeQueueNums"] = 9
    files.replace("config/topics.json", "config/topics.json.bak")
    write_file(files, "config/topics.json", format_json(document))
    used_by_rocketmq(store)
    for _ in range(3):
        store.start()
        assert store.log.topics.get("orders").write_queues == 9
        assert not any("checksum" in line for line in store.log.report)
        store.stop()


def test_an_operators_edit_of_the_topics_counts_from_the_next_start_on():
    store = started()
    store.put(b"x")
    store.put(b"x", topic="other")
    store.restart()
    store.stop()
    files = store.disk.files()
    document = parse_json(store.disk.contents("config/topics.json"))
    document["topicConfigTable"]["orders"]["writeQueueNums"] = 9
    edit_file(files, "config/topics.json", format_json(document))
    for _ in range(3):
        store.start()
        assert store.log.topics.get("orders").write_queues == 9
        assert not store.disk.files().list("stratamq/aside")
        store.put(b"x", topic="another")
        store.stop()
