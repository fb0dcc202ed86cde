"""Directories written by the real RocketMQ: recovery finds the end and queues that it reports."""

import pytest
from stratamq_commitlog.recovery.inspection import WalkStart

from stratamq.files.simulated import SimulatedDisk, keep_everything, keep_nothing
from stratamq.formats.frame import Frame
from stratamq.formats.message_status import SendStatus
from tests.support.fixtures import ALL_STORES, CLEAN_STORES, CRASHED_STORES, expected, unpack
from tests.support.logs import Store, load_directory, queue_table, read_members, segment_path

pytestmark = pytest.mark.usefixtures("walked_both_ways")

SEGMENT = 65536


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Each store on a disk of its own; `copy` gives another one like it."""
    disks: dict[str, SimulatedDisk] = {}

    def get(name: str) -> SimulatedDisk:
        if name not in disks:
            disks[name] = SimulatedDisk()
            load_directory(disks[name], unpack(name, tmp_path_factory.mktemp("store")))
        return disks[name].image(keep_everything)

    return get


def store_of(disk: SimulatedDisk) -> Store:
    return Store(SEGMENT, disk=disk)


def recorded(name: str) -> tuple[int, dict[tuple[str, int], int]]:
    """RocketMQ's end and its queues, those without a message left out."""
    (recovery,) = expected(name, "recovery")
    queues = {
        (line["topic"], line["queueId"]): line["maxOffset"]
        for line in expected(name, "queue")
        if line["maxOffset"]
    }
    return recovery["maxPhyOffset"], queues


def opened(store: Store, **settings) -> tuple[int, dict[tuple[str, int], int]]:
    store.start(**settings)
    return store.end(), store.queues()


@pytest.mark.parametrize("name", ALL_STORES)
def test_the_end_and_the_queues_are_rocketmqs(originals, name):
    assert opened(store_of(originals(name))) == recorded(name)


@pytest.mark.parametrize("name", CLEAN_STORES)
def test_a_clean_directory_with_abort_added_gives_the_same(originals, name):
    disk = originals(name)
    disk.files().create("abort", 0)
    store = store_of(disk)
    assert opened(store) == recorded(name)
    assert any(WalkStart.ROCKETMQ_ABNORMAL.value in line for line in store.log.report)


@pytest.mark.parametrize("name", CLEAN_STORES)
def test_a_clean_directory_without_its_queues_gives_the_same(originals, name):
    disk = originals(name)
    files = disk.files()
    for topic in files.list("consumequeue"):
        files.replace(f"consumequeue/{topic.name}", f"gone-{topic.name}")
    assert opened(store_of(disk)) == recorded(name)


@pytest.mark.parametrize("name", ALL_STORES)
def test_a_second_start_finds_the_same_and_cuts_nothing(originals, name):
    store = store_of(originals(name))
    first = opened(store)
    aside = store.aside()
    segments = store.segments()
    for end_of_life in (store.stop, store.kill, lambda: store.power_loss(keep_nothing)):
        end_of_life()
        assert opened(store) == first == recorded(name)
        assert store.segments() == segments
        assert store.aside() == aside


@pytest.mark.parametrize("name", CLEAN_STORES)
def test_not_a_byte_of_a_clean_directory_changes(originals, name):
    disk = originals(name)
    before = store_of(disk).segments()
    store = store_of(disk)
    store.start()
    assert store.segments() == before
    assert store.aside() == {}
    assert store.log.report[1:] == []


@pytest.mark.parametrize("name", CRASHED_STORES)
def test_of_a_crashed_directory_everything_up_to_rocketmqs_end_stays_as_it_was(originals, name):
    disk = originals(name)
    before = store_of(disk).segments()
    store = store_of(disk)
    end, _ = opened(store)
    last = end - end % SEGMENT
    assert set(store.segments()) == {base for base in before if base <= last}
    for base, content in store.segments().items():
        assert content == before[base][: end - base].ljust(SEGMENT, b"\0")
    behind = before[last][end - last :].rstrip(b"\0")
    assert list(store.aside().values()) == ([behind] if behind else [])


@pytest.mark.parametrize("name", ALL_STORES)
def test_the_log_continues_where_rocketmq_left_it(originals, name):
    store = store_of(originals(name))
    end, queues = opened(store)
    frames = store.frames()
    (topic, queue_id), following = next(
        (key, n) for key, n in queues.items() if "SYS" not in key[0] and "SCHED" not in key[0]
    )
    result = store.put(b"and on", topic=topic, queue_id=queue_id)
    assert (result.status, result.queue_offset) == (SendStatus.PUT_OK, following)
    assert result.physical_offset >= end
    assert result.store_timestamp_ms >= frames[-1].store_timestamp_ms
    store.power_loss(keep_nothing)
    store.start()
    assert store.frames()[:-1] == frames
    assert store.frames()[-1].body == b"and on"


@pytest.mark.parametrize("name", ALL_STORES)
def test_the_store_time_continues_from_rocketmqs_even_if_the_clock_is_behind(originals, name):
    store = store_of(originals(name))
    store.clock.set_wall_ms(1_000)
    store.start()
    newest = max(frame.store_timestamp_ms for frame in store.frames())
    assert store.put(b"x").store_timestamp_ms == newest


# --- damage that RocketMQ would not notice ---


def test_damage_in_a_file_that_a_normal_start_does_not_read_is_kept(originals):
    """4.9.8 looks at the last three files; what an older one holds is served as it is."""
    name = "4.9.8-transactions-delay-batch"
    disk = originals(name)
    disk.rot(segment_path(0), 90, b"??")
    store = store_of(disk)
    assert opened(store)[0] == recorded(name)[0]
    assert store.aside() == {}


def test_a_start_that_was_interrupted_still_counts_as_one_after_a_clean_stop(originals):
    """Our own `abort` must not make RocketMQ's clean directory an unclean one."""
    name = "4.9.8-transactions-delay-batch"
    disk = originals(name)
    disk.rot(segment_path(0), 90, b"??")
    store = store_of(disk)
    disk.crash_on("replace", "stratamq/generations.json")
    with pytest.raises(BaseException, match="replace"):
        store.start()
    store.power_loss(keep_nothing)
    disk.clear_faults()
    assert disk.tree.find("abort") is not None
    assert opened(store)[0] == recorded(name)[0]


def test_queues_continue_from_their_files_where_the_log_cannot_be_read(originals):
    name = "4.9.8-transactions-delay-batch"
    disk = originals(name)
    frames = [f for _, _, f in read_members(store_of(disk).segments()) if isinstance(f, Frame)]
    # From the third frame of each of the first segments on nothing can be read.
    for base in (0, SEGMENT, 2 * SEGMENT):
        inside = [frame for frame in frames if frame.physical_offset // SEGMENT * SEGMENT == base]
        disk.rot(segment_path(base), inside[2].physical_offset - base + 4, b"\0\0\0\1")
    later = queue_table(f for f in frames if f.physical_offset >= 3 * SEGMENT)
    assert set(later) < set(queue_table(frames)), "some queue ends in what cannot be read"
    assert opened(store_of(disk)) == recorded(name)


def test_queue_files_that_contradict_the_log_are_not_believed(originals):
    name = "5.5.1-small-clean"
    disk = originals(name)
    (topic, queue_id), _ = next(iter(recorded(name)[1].items()))
    directory = f"consumequeue/{topic}/{queue_id}"
    last = disk.files().list(directory)[-1].name
    frames = [f for _, _, f in read_members(store_of(disk).segments()) if isinstance(f, Frame)]
    unit = frames[0].physical_offset.to_bytes(8, "big") + frames[0].total_size.to_bytes(4, "big")
    disk.rot(f"{directory}/{last}", 0, (unit + bytes(8)) * 8)
    assert opened(store_of(disk)) == recorded(name)


def test_units_behind_the_logs_end_do_not_count(originals):
    name = "5.5.1-small-clean"
    disk = originals(name)
    end, queues = recorded(name)
    (topic, queue_id), _ = next(iter(queues.items()))
    directory = f"consumequeue/{topic}/{queue_id}"
    last = disk.files().list(directory)[-1].name
    unit = end.to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(8)
    content = disk.contents(f"{directory}/{last}")
    free = next(at for at in range(0, len(content), 20) if not any(content[at : at + 20]))
    disk.rot(f"{directory}/{last}", free, unit)
    assert opened(store_of(disk)) == recorded(name)
