"""Whatever `consumequeue/` contains, a start reports it, moves it to aside/, and continues."""

import errno
from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise

import pytest
from stratamq_dispatcher.dispatch_state import StateFile
from stratamq_dispatcher.loading import load_queues

from stratamq.errors import StoreRefusedError
from stratamq.files.metadata import MetadataFile
from stratamq.files.port import EntryKind
from stratamq.files.simulated import SimulatedDisk
from stratamq.follow.protocol import ReadAgainError
from stratamq.formats.file_names import offset_name
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES, encode_queue_unit
from stratamq.formats.store_paths import (
    ASIDE_DIRECTORY,
    DISPATCHER_QUEUES_PATH,
    DISPATCHER_STALE_PATH,
    DISPATCHER_STATE_PATH,
    OLD_DISPATCHER_QUEUES_PATH,
)
from tests.dispatcher.followed_log import Broker, WrittenLog, start
from tests.dispatcher.queue_checks import check_files, check_queues
from tests.support.disks import Place, read_file, simulated_place, write_file

QUEUE = "consumequeue/topic-0/1"
FIRST, SECOND, LAST = (f"{QUEUE}/{offset_name(start)}" for start in (0, 160, 320))


def overwrite(place: Place, path: str, position: int, data: bytes) -> None:
    file = place.files.open(path, writable=True)
    file.write(position, data)
    file.flush()
    file.close()


def resize(place: Place, path: str, size: int) -> None:
    data = read_file(place.files, path)
    place.files.unlink(path)
    write_file(place.files, path, (data + bytes(size))[:size])


def remove(place: Place, path: str) -> None:
    if place.files.entry(path).kind is EntryKind.DIRECTORY:
        for entry in place.files.list(path):
            remove(place, f"{path}/{entry.name}")
        place.files.remove_directory(path)
    else:
        place.files.unlink(path)


def link(place: Place, path: str) -> None:
    if place.files.entry(path) is not None:
        remove(place, path)
    place.make_link(path)


def directory(place: Place, path: str) -> None:
    place.files.unlink(path)
    place.files.make_directory(path)
    write_file(place.files, f"{path}/inside", b"x")


Damage = Callable[[Place], None]
DAMAGES: dict[str, Damage] = {
    "last file shorter": lambda place: resize(place, LAST, 100),
    "last file longer": lambda place: resize(place, LAST, 200),
    "last file empty": lambda place: resize(place, LAST, 0),
    "first file shorter": lambda place: resize(place, FIRST, 20),
    "every file shorter": lambda place: [resize(place, p, 140) for p in (FIRST, SECOND, LAST)],
    "first file missing": lambda place: remove(place, FIRST),
    "middle file missing": lambda place: remove(place, SECOND),
    "last file missing": lambda place: remove(place, LAST),
    "queue missing": lambda place: remove(place, QUEUE),
    "topic missing": lambda place: remove(place, "consumequeue/topic-0"),
    "all missing": lambda place: remove(place, "consumequeue"),
    "a directory for a file": lambda place: directory(place, SECOND),
    "a link for a file": lambda place: link(place, LAST),
    "a link for a queue": lambda place: link(place, QUEUE),
    "a link for a topic": lambda place: link(place, "consumequeue/topic-0"),
    "a link for everything": lambda place: link(place, "consumequeue"),
    "a file for a queue": lambda place: (remove(place, QUEUE), write_file(place.files, QUEUE, b"")),
    "a file for a topic": lambda place: (
        remove(place, "consumequeue/topic-0"),
        write_file(place.files, "consumequeue/topic-0", b"x"),
    ),
    "a stray file in a queue": lambda place: write_file(place.files, f"{QUEUE}/x.tmp", b"x"),
    "a stray file of the right size": lambda place: write_file(
        place.files, f"{QUEUE}/note", bytes(160)
    ),
    "a stray directory in a queue": lambda place: place.files.make_directory(f"{QUEUE}/old"),
    "a stray link in a queue": lambda place: link(place, f"{QUEUE}/elsewhere"),
    "a file off the grid": lambda place: write_file(
        place.files, f"{QUEUE}/{offset_name(170)}", bytes(160)
    ),
    "a file behind a gap": lambda place: write_file(
        place.files, f"{QUEUE}/{offset_name(1600)}", bytes(160)
    ),
    "a file with an impossible offset": lambda place: write_file(
        place.files, f"{QUEUE}/{'9' * 20}", bytes(160)
    ),
    "last file zeroed": lambda place: overwrite(place, LAST, 0, bytes(160)),
    "last unit zeroed": lambda place: overwrite(place, LAST, 60, bytes(20)),
    "last unit flipped": lambda place: overwrite(place, LAST, 60, b"\xff" * 20),
    "an unclean old page behind the end": lambda place: overwrite(
        place, LAST, 100, encode_queue_unit(5, 91, 7)
    ),
}

IN_THE_MIDDLE: dict[str, Damage] = {
    "a unit zeroed": lambda place: overwrite(place, SECOND, 40, bytes(20)),
    "a unit flipped": lambda place: overwrite(place, FIRST, 65, b"\xff"),
    "a file zeroed": lambda place: overwrite(place, FIRST, 0, bytes(160)),
}


def written(place: Place, count: int = 80) -> Broker:
    log = WrittenLog(place.files)
    log.put_many(count)
    broker = start(place.files, log)
    broker.follow()
    broker.stop()
    assert place.files.entry(LAST) is not None
    return broker


def forget_ours(place: Place) -> None:
    """A directory as RocketMQ leaves it: nothing of ours in it."""
    remove(place, "stratamq")


@pytest.mark.parametrize("damage", DAMAGES | IN_THE_MIDDLE)
def test_a_directory_of_others_with_damage_is_mended_from_the_log(place, damage):
    log = written(place).log
    forget_ours(place)
    (DAMAGES | IN_THE_MIDDLE)[damage](place)
    broker = start(place.files, log)
    broker.follow()
    check_queues(broker)
    check_files(broker)


@pytest.mark.parametrize("damage", DAMAGES)
def test_our_directory_with_damage_is_mended_at_once(place, damage):
    log = written(place).log
    DAMAGES[damage](place)
    log.put_many(10)
    broker = start(place.files, log)
    try:
        broker.follow()
    except ReadAgainError as error:
        # Damage that no listing shows appears as a gap.
        assert damage in ("last file zeroed", "last unit zeroed", "last unit flipped"), error
        assert "continues with" in " ".join(broker.engine.recovery_report())
        broker.connect()
        broker.follow()
    check_queues(broker)
    check_files(broker)


@pytest.mark.parametrize(
    "damage", [name for name in DAMAGES if "missing" not in name and "unit" not in name]
)
def test_what_is_moved_away_is_reported_and_kept(place, damage):
    log = written(place).log
    DAMAGES[damage](place)
    broker = start(place.files, log)
    report = " ".join(broker.engine.recovery_report())
    if damage in ("last file zeroed", "an unclean old page behind the end"):
        return  # units are derived from the log: nothing to keep
    assert ASIDE_DIRECTORY in report
    assert place.files.list(ASIDE_DIRECTORY)


def test_what_rocketmq_ignores_is_left_where_it_is(place):
    log = written(place).log
    write_file(place.files, "consumequeue/topic-0/notes.txt", b"mine")
    place.files.make_directory("consumequeue/topic-0/old")
    place.files.make_directory("consumequeue/topic-0/007")
    broker = start(place.files, log)
    assert broker.engine.fold.resume_point()[1] == log.end
    names = {entry.name for entry in place.files.list("consumequeue/topic-0")}
    assert {"notes.txt", "old", "007"} <= names
    assert sum("left alone" in line for line in broker.engine.recovery_report()) == 3


@pytest.mark.parametrize("ours", [True, False], ids=["of ours", "of RocketMQ's"])
def test_light_queues_that_the_log_does_not_give_are_moved_aside(place, ours, caplog):
    """Those of RocketMQ that an earlier version of ours left alone, too."""
    log = written(place).log
    units = encode_queue_unit(0, 91, 7) + bytes(140)
    paths = [f"consumequeue/%LMQ%{name}/0/{offset_name(0)}" for name in "ab"]
    for path in paths:
        write_file(place.files, path, units)
    if not ours:
        forget_ours(place)
    broker = start(place.files, log)
    broker.follow()
    broker.stop()
    assert not any(place.files.entry(path) for path in paths)
    kept = [f"stratamq/aside/{path.replace('/', ',')}" for path in paths]
    assert [read_file(place.files, path) for path in kept] == [units] * 2
    assert caplog.text.count("queue file without messages moved aside") == 2


def test_a_pipe_in_place_of_a_file_is_moved_aside():
    place = simulated_place()
    log = written(place).log
    place.files.unlink(LAST)
    place.disk.plant(LAST, EntryKind.OTHER)
    broker = start(place.files, log)
    broker.follow()
    check_files(broker)


def test_a_file_that_cannot_be_read_is_moved_aside_and_rebuilt():
    place = simulated_place()
    log = written(place).log
    fault = place.disk.fail("read", LAST, error=errno.EIO, repeat=True)
    broker = start(place.files, log)
    place.disk.faults.remove(fault)
    assert "compared with the log" in " ".join(broker.engine.recovery_report())
    broker.follow()
    check_queues(broker)
    check_files(broker)


def test_what_must_be_moved_and_cannot_refuses_the_start():
    place = simulated_place()
    log = written(place).log
    resize(place, LAST, 100)
    place.disk.fail("replace", error=errno.EROFS)
    with pytest.raises(StoreRefusedError, match="cannot be moved aside"):
        start(place.files, log)


@pytest.mark.parametrize(
    "path", [DISPATCHER_STATE_PATH, DISPATCHER_QUEUES_PATH, DISPATCHER_STALE_PATH]
)
@pytest.mark.parametrize("content", [b"", b"garbage", b"{}", b'{"version":1}', b"\0" * 100])
def test_damaged_state_of_ours_means_that_all_is_compared_or_nothing_is_lost(place, path, content):
    log = written(place).log
    for name in (path, f"{path}.previous"):
        if place.files.entry(name) is not None:
            place.files.unlink(name)
        write_file(place.files, name, content)
    log.put_many(10)
    broker = start(place.files, log)
    broker.follow()
    check_queues(broker)
    check_files(broker)
    again = start(place.files, log, connect=False)
    assert again.engine.fold.resume_point() == (1, log.end)


def test_the_size_of_most_files_is_the_geometry(place):
    written(place)
    remove(place, DISPATCHER_QUEUES_PATH)
    resize(place, LAST, 140)
    assert load_queues(place.files, 6_000_000, None).geometry.file_bytes == 160


def test_a_start_reads_a_few_units_of_every_queue_and_no_more():
    disk = SimulatedDisk()
    files = disk.files()
    log = WrittenLog(files, segment_bytes=1 << 20)
    for queue in range(100):
        log.put("wide", queue)
        log.put("wide", queue)
    broker = start(files, log)
    broker.follow()
    broker.stop()
    disk.trace = []
    again = start(files, log)
    again.follow()
    reads = [call for call in disk.trace if call.operation == "read" and "wide" in call.path]
    assert len(reads) <= 6 * 100
    assert again.engine.followed.serving


def test_descriptors_stay_bounded_whatever_the_number_of_queues(tmp_path):
    import os

    from stratamq.files.real import RealFiles

    files = RealFiles(tmp_path)
    log = WrittenLog(files, segment_bytes=1 << 20)
    for _ in range(3):
        for queue in range(150):
            log.put("wide", queue)
    before = len(os.listdir("/proc/self/fd"))
    broker = start(files, log, max_open_files=32)
    broker.follow()
    check_queues(broker)
    assert len(os.listdir("/proc/self/fd")) - before <= 32 + 8


def test_the_list_of_files_grows_by_what_each_flush_made_and_no_more(place):
    log = WrittenLog(place.files, segment_bytes=1 << 16)
    broker = start(place.files, log)
    sizes = []
    for queue in range(60):
        log.put("many", queue)
        broker.follow()
        broker.flush()
        sizes.append(place.files.entry(DISPATCHER_QUEUES_PATH).size)
    broker.stop()
    grown = [after - before for before, after in pairwise(sizes)]
    assert max(grown) < 200
    again = start(place.files, log, connect=False)
    assert len(again.engine.queues) == 60
    assert again.engine.fold.resume_point() == (1, log.end)


def written_by_an_older_release(place: Place) -> None:
    """The state and the list of files, as releases without the journal wrote them."""
    remembered = StateFile(place.files).load()
    assert remembered.state is not None and remembered.queues is not None
    file_bytes = remembered.queues.file_bytes
    queues: dict[str, dict[str, list[int]]] = {}
    for (topic, queue_id), (first, behind) in remembered.queues.ranges.items():
        names = [first * QUEUE_UNIT_BYTES, behind * QUEUE_UNIT_BYTES - file_bytes]
        queues.setdefault(topic, {})[str(queue_id)] = names
    document = {"file_bytes": file_bytes, "queues": queues}
    MetadataFile(place.files, OLD_DISPATCHER_QUEUES_PATH).store(document)
    state = asdict(remembered.state)
    del state["list_number"]
    for _ in range(2):  # and the one before it
        MetadataFile(place.files, DISPATCHER_STATE_PATH).store(state)


@pytest.mark.parametrize("journal", ["stays", "is missing"])
def test_files_that_an_older_release_made_are_kept(place, journal):
    """It knows nothing of the journal, which stays as it was."""
    log = written(place).log
    old = read_file(place.files, DISPATCHER_QUEUES_PATH)
    broker = start(place.files, log)
    log.put("another", 0)
    broker.follow()
    broker.stop()
    written_by_an_older_release(place)
    place.files.unlink(DISPATCHER_QUEUES_PATH)
    if journal == "stays":
        write_file(place.files, DISPATCHER_QUEUES_PATH, old)
    for _ in range(2):
        again = start(place.files, log, connect=False)
        assert again.engine.fold.resume_point() == (1, log.end)  # nothing is compared
        again = start(place.files, log)
        again.follow()
        log.put("a third", 0)
        again.follow()
        again.stop()
        check_queues(again)
        check_files(again)
        assert place.files.entry(OLD_DISPATCHER_QUEUES_PATH) is None


def test_a_list_of_an_older_release_does_not_count_with_a_state_of_ours(place):
    log = written(place).log
    written_by_an_older_release(place)
    older = read_file(place.files, OLD_DISPATCHER_QUEUES_PATH)
    broker = start(place.files, log)
    log.put("another", 0)
    broker.follow()
    broker.stop()
    write_file(place.files, OLD_DISPATCHER_QUEUES_PATH, older)
    again = start(place.files, log)
    again.follow()
    check_queues(again)
    check_files(again)


def test_a_list_that_is_older_than_the_watermark_is_not_believed(place):
    """Else files that it does not name would be removed as those of a process that died."""
    log = written(place).log
    old = read_file(place.files, DISPATCHER_QUEUES_PATH)
    broker = start(place.files, log)
    log.put("another", 0)
    broker.follow()
    broker.stop()
    newer = read_file(place.files, DISPATCHER_QUEUES_PATH)
    assert newer.startswith(old) and len(newer) > len(old)
    place.files.unlink(DISPATCHER_QUEUES_PATH)
    write_file(place.files, DISPATCHER_QUEUES_PATH, old)
    again = start(place.files, log)
    again.follow()
    assert any("older than" in line for line in again.engine.recovery_report())
    check_queues(again)
    check_files(again)
