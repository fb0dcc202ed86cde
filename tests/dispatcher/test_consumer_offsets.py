"""Consumer group offsets: RocketMQ's file read and written, and what is lost when."""

import errno
import json
import random

import pytest
from stratamq_dispatcher.consumer_offsets import ConsumerOffsets

from stratamq.errors import InvalidRequestError
from stratamq.files.journaled import SMALL_BYTES
from stratamq.files.port import Files
from stratamq.files.simulated import (
    SimulatedClock,
    SimulatedCrash,
    SimulatedDisk,
    SimulatedWorker,
    keep_everything,
    keep_nothing,
)
from stratamq.formats.store_paths import CONSUMER_OFFSETS_PATH as PATH
from stratamq.rpc.changes import ReadMark
from stratamq.rpc.paging import NestedPlace
from tests.support import fixtures
from tests.support.disks import Place, edit_file, read_file, write_file


class Service:
    """The offsets of one process."""

    def __init__(
        self, files: Files, page_entries: int = 500, small_bytes: int = SMALL_BYTES
    ) -> None:
        self.clock = SimulatedClock()
        self.worker = SimulatedWorker(random.Random(1))
        self.offsets = ConsumerOffsets(
            files,
            self.worker,
            self.clock,
            5_000,
            page_entries=page_entries,
            small_bytes=small_bytes,
        )
        self.offsets.load()

    def pass_time(self, milliseconds: int = 5_000) -> None:
        self.clock.advance_ms(milliseconds)
        self.offsets.tick()
        self.worker.run_until_idle()

    def committed(self, group: str = "g") -> list[tuple[str, int, int]]:
        found, place = self.offsets.committed(group)
        while place:
            more, place = self.offsets.committed(group, "", place)
            found += more
        return sorted((topic, queue_id, offset) for _, topic, queue_id, offset in found)

    def groups(self) -> list[str]:
        return sorted({group for group, _ in self.offsets.keys})


@pytest.fixture
def files(place: Place) -> Files:
    return place.files


def test_what_was_committed_is_there_after_a_restart(files):
    service = Service(files)
    service.offsets.commit("g", [("orders", 0, 12), ("orders", 1, 7), ("%RETRY%g", 0, 3)])
    service.offsets.commit("other", [("orders", 0, 1)])
    service.pass_time()
    again = Service(files)
    assert again.committed() == [("%RETRY%g", 0, 3), ("orders", 0, 12), ("orders", 1, 7)]
    assert again.groups() == ["g", "other"]
    assert again.offsets.committed("g", "orders") == (
        [("g", "orders", 0, 12), ("g", "orders", 1, 7)],
        None,
    )


def test_the_file_has_rocketmqs_shape(files):
    service = Service(files)
    service.offsets.commit("g", [("orders", 0, 12), ("orders", 3, 7)])
    service.pass_time()
    assert json.loads(read_file(files, PATH)) == {"offsetTable": {"orders@g": {"0": 12, "3": 7}}}


def test_numeric_keys_without_quotes_are_read_as_fastjson_writes_them(files):
    write_file(
        files,
        PATH,
        b'{"dataVersion":{"counter":3},"offsetTable":{"t@g":{0:5,11:7}}}',
    )
    service = Service(files)
    assert service.committed() == [("t", 0, 5), ("t", 11, 7)]
    service.offsets.commit("g", [("t", 0, 6)])
    service.pass_time()
    assert json.loads(read_file(files, PATH))["dataVersion"] == {"counter": 3}


@pytest.mark.parametrize("name", fixtures.ALL_STORES)
def test_directories_of_rocketmq_open_without_offsets_or_with_theirs(name, tmp_path):
    from stratamq.files.real import RealFiles

    root = fixtures.unpack(name, tmp_path)
    assert Service(RealFiles(root)).offsets.report == []


def test_offsets_that_rocketmq_wrote_meanwhile_count_when_its_running_is_known(files):
    service = Service(files)
    service.offsets.commit("g", [("t", 0, 1)])
    service.pass_time()
    files.replace(PATH, f"{PATH}.bak")  # what RocketMQ does with the file before it writes
    write_file(files, PATH, b'{"offsetTable":{"t@g":{0:500}}}')
    service = Service(files)
    service.offsets.load(foreign=True)
    assert service.committed() == [("t", 0, 500)]
    service.offsets.commit("g", [("t", 0, 501)])
    service.offsets.load(foreign=True)  # too late: a consumer has committed
    assert service.committed() == [("t", 0, 501)]


def test_nothing_is_written_when_nothing_changed(files):
    service = Service(files)
    service.pass_time()
    assert files.entry(PATH) is None
    service.offsets.commit("g", [("t", 0, 1)])
    service.pass_time()
    before = files.entry(PATH)
    service.offsets.commit("g", [("t", 0, 1)])
    service.pass_time()
    assert files.entry(PATH) == before


def test_it_is_written_after_the_interval_and_at_the_end(files):
    service = Service(files)
    service.offsets.commit("g", [("t", 0, 1)])
    service.pass_time(4_999)
    assert files.entry(PATH) is None
    service.pass_time(1)
    assert Service(files).committed() == [("t", 0, 1)]
    service.offsets.commit("g", [("t", 0, 2)])
    closed: list[bool] = []
    service.offsets.close(lambda: closed.append(True))
    service.worker.run_until_idle()
    assert closed == [True]
    assert Service(files).committed() == [("t", 0, 2)]


def test_offsets_may_go_back(files):
    service = Service(files)
    service.offsets.commit("g", [("t", 0, 100)])
    service.offsets.commit("g", [("t", 0, 5)])
    assert service.committed() == [("t", 0, 5)]


@pytest.mark.parametrize(
    ("group", "topic", "queue_id", "offset"),
    [
        ("", "t", 0, 1),
        ("g", "", 0, 1),
        ("a@b", "t", 0, 1),
        ("g", "a@b", 0, 1),
        ("g\n", "t", 0, 1),
        ("g" * 256, "t", 0, 1),
        ("g", "t", -1, 1),
        ("g", "t", 0, -1),
    ],
)
def test_a_bad_commit_changes_nothing(files, group, topic, queue_id, offset):
    service = Service(files)
    with pytest.raises(InvalidRequestError):
        service.offsets.commit(group, [("fine", 0, 1), (topic, queue_id, offset)])
    assert service.groups() == []


def test_a_document_can_be_carried_from_a_master_to_a_slave(files):
    master, slave = Service(files), Service(SimulatedDisk().files())
    master.offsets.commit("g", [("t", 0, 100), ("t", 1, 50)])
    slave.offsets.commit("g", [("t", 0, 3), ("t", 2, 9), ("u", 0, 4)])
    document, mark = master.offsets.export_changes()
    assert not mark.position
    slave.offsets.import_document(document)
    # A topic of a group is replaced whole, others stay: RocketMQ's putAll.
    assert slave.committed() == [("t", 0, 100), ("t", 1, 50), ("u", 0, 4)]
    slave.pass_time()


def test_a_document_has_what_changed_since_its_mark_a_page_at_a_time(files):
    master = Service(files, page_entries=2)
    master.offsets.commit("g", [("t", 0, 1), ("t", 1, 1), ("t", 2, 1), ("u", 0, 1), ("v", 0, 1)])
    pages, mark = [], ReadMark()
    while not pages or mark.position:
        document, mark = master.offsets.export_changes(mark)
        pages.append(list(json.loads(document)["offsetTable"]))
    assert pages == [["t@g"], ["u@g", "v@g"]]
    assert master.offsets.export_changes(mark) == (b"", mark)
    master.offsets.commit("g", [("u", 0, 2), ("v", 0, 1)])
    document, _ = master.offsets.export_changes(mark)
    assert json.loads(document)["offsetTable"] == {"u@g": {"0": 2}}


def test_what_is_committed_is_listed_in_pages_that_may_end_within_a_topic(files):
    service = Service(files, page_entries=2)
    service.offsets.commit("g", [("t", number, 7) for number in range(3)])
    service.offsets.commit("other", [("t", 0, 8)])
    service.offsets.commit("g", [("u", 0, 9)])
    seen, place = [], NestedPlace()
    while place is not None:
        found, place = service.offsets.committed("g", "", place)
        seen.append([(topic, queue_id, offset) for _, topic, queue_id, offset in found])
    assert seen == [[("t", 0, 7), ("t", 1, 7)], [("t", 2, 7), ("u", 0, 9)]]


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"offsetTable":[]}',
        b'{"offsetTable":{"no group":{"0":1}}}',
        b'{"offsetTable":{"t@g":{"x":1}}}',
        b'{"offsetTable":{"t@g":{"0":-1}}}',
        b'{"offsetTable":{"t@g":{"0":1.5}}}',
        b'{"offsetTable":{"t@g":{"0":true}}}',
        b'{"offsetTable":{"t@g":7}}',
        b'{"offsetTable":{"t@g":{"0":5},"no group":{"0":1}}}',
        b'{"dataVersion":{"counter":3},"offsetTable":{"t@g":{"0":5,"1":-1}}}',
        b'{"offsetTable":' * 5_000,
    ],
)
def test_a_bad_document_changes_nothing(files, document):
    service = Service(files)
    service.offsets.commit("g", [("t", 0, 100)])
    with pytest.raises(InvalidRequestError):
        service.offsets.import_document(document)
    assert service.committed() == [("t", 0, 100)]


@pytest.mark.parametrize(
    "content",
    [b"", b"garbage", b"[1]", b'{"offsetTable":3}', b'{"offsetTable":{"x":{}}}', b"\0" * 9],
)
def test_a_damaged_file_is_reported_and_never_stops_a_start(files, content):
    write_file(files, PATH, content)
    service = Service(files)
    assert service.groups() == []
    assert service.offsets.report
    service.offsets.commit("g", [("t", 0, 1)])
    service.pass_time()
    assert Service(files).committed() == [("t", 0, 1)]


def test_a_failed_write_is_tried_again_and_reported(caplog):
    disk = SimulatedDisk()
    service = Service(disk.files())
    service.offsets.commit("g", [("t", 0, 1)])
    fault = disk.fail("*", "config/*", error=errno.ENOSPC, repeat=True)
    service.pass_time()
    [record] = caplog.records
    assert "No space left" in record.error
    disk.faults.remove(fault)
    service.pass_time()
    assert len(caplog.records) == 1
    assert Service(disk.files()).committed() == [("t", 0, 1)]


def test_power_lost_at_any_call_leaves_the_old_offsets_or_the_new():
    for call in range(1, 200):
        disk = SimulatedDisk()
        service = Service(disk.files())
        service.offsets.commit("g", [("t", 0, 1)])
        service.pass_time()
        service.offsets.commit("g", [("t", 0, 2)])
        disk.crash_at(disk.calls + call)
        try:
            service.pass_time()
        except SimulatedCrash:
            disk.crash(keep_nothing)
            assert Service(disk.files()).committed() in ([("t", 0, 1)], [("t", 0, 2)])
        else:
            assert call > 10
            return
    raise AssertionError("the writing never ended")


def test_of_many_offsets_what_changed_is_saved_each_time_and_the_file_now_and_then():
    disk = SimulatedDisk()
    service = Service(disk.files(), small_bytes=0)
    service.offsets.commit("g", [(f"t{number}", 0, 1) for number in range(3_000)])
    service.pass_time()
    service.pass_time()
    before = read_file(disk.files(), PATH)
    service.clock.advance_ms(1)
    service.offsets.commit("g", [("t7", 0, 9), ("t7", 4, 2)])
    service.pass_time(4_999)
    again = Service(disk.image(keep_nothing).files(), small_bytes=0)
    assert {("t7", 0, 9), ("t7", 4, 2), ("t8", 0, 1)} < set(again.committed())
    assert len(again.committed()) == 3_001
    service.pass_time()
    written = read_file(disk.files(), PATH)
    assert json.loads(before)["offsetTable"]["t7@g"] == {"0": 1}
    assert json.loads(written)["offsetTable"]["t7@g"] == {"0": 9, "4": 2}


def test_at_the_end_the_file_itself_has_everything():
    disk = SimulatedDisk()
    service = Service(disk.files(), small_bytes=0)
    for round_ in range(3):
        service.offsets.commit("g", [(f"t{number}", 0, round_) for number in range(1_500)])
        service.pass_time(1)
    closed: list[bool] = []
    service.offsets.close(lambda: closed.append(True))
    service.worker.run_until_idle()
    assert closed == [True]
    table = json.loads(disk.durable_contents(PATH))["offsetTable"]
    assert table == {f"t{number}@g": {"0": 2} for number in range(1_500)}


def test_power_lost_at_any_call_of_many_offsets_leaves_the_saved_ones():
    def play(service: Service) -> None:
        for value in range(2, 5):
            service.offsets.commit("g", [("a", 0, value), (f"new-{value}", 0, value)])
            service.pass_time()

    original = SimulatedDisk()
    service = Service(original.files(), small_bytes=0)
    service.offsets.commit("g", [("a", 0, 1)])
    service.pass_time()
    original = original.image(keep_nothing)
    reference = original.image(keep_nothing)
    service = Service(reference.files(), small_bytes=0)
    before = reference.calls
    play(service)
    seen = set()
    for call in range(1, reference.calls - before + 1):
        disk = original.image(keep_nothing)
        service = Service(disk.files(), small_bytes=0)
        disk.crash_at(disk.calls + call)
        with pytest.raises(SimulatedCrash):
            play(service)
        found = Service(disk.image(keep_nothing).files(), small_bytes=0).committed()
        (value,) = [offset for topic, _, offset in found if topic == "a"]
        assert found == [("a", 0, value)] + [(f"new-{n}", 0, n) for n in range(2, value + 1)]
        seen.add(value)
    assert seen >= {1, 2, 3}


def test_a_queue_that_a_masters_document_does_not_have_stays_gone_after_a_crash():
    disk = SimulatedDisk()
    service = Service(disk.files(), small_bytes=0)
    service.offsets.commit("g", [("t", 2, 9), *((f"x{n}", 0, 1) for n in range(30))])
    service.pass_time()
    service.pass_time(100_000)
    service.offsets.import_document(b'{"offsetTable":{"t@g":{"0":100}}}')
    service.pass_time()
    for keep in (keep_nothing, keep_everything):
        again = Service(disk.image(keep).files(), small_bytes=0)
        assert again.offsets.report == []
        assert again.offsets.committed("g", "t")[0] == [("g", "t", 0, 100)]
    service.pass_time(100_000)
    again = Service(disk.image(keep_nothing).files(), small_bytes=0)
    assert again.offsets.committed("g", "t")[0] == [("g", "t", 0, 100)]
    assert len(again.committed()) == 31


def test_a_masters_document_between_two_pages_moves_no_queue():
    service = Service(SimulatedDisk().files(), page_entries=2)
    service.offsets.commit("g", [("t", number, 1) for number in (4, 2, 1, 3)])
    first, place = service.offsets.committed("g")
    service.offsets.import_document(b'{"offsetTable":{"t@g":{"0":5,"2":5,"3":5,"4":5}}}')
    second, following = service.offsets.committed("g", "", place)
    assert [queue_id for _, _, queue_id, _ in first + second] == [1, 2, 3, 4]
    assert following is None
    service.offsets.commit("g", [("t", 5, 6)])
    assert service.offsets.committed("g", "", place, 9)[0][-1] == ("g", "t", 4, 5)
    assert service.offsets.committed("g", "", NestedPlace(0, 5)) == ([("g", "t", 5, 6)], None)


@pytest.mark.parametrize("small_bytes", [0, SMALL_BYTES])
@pytest.mark.parametrize("commits", [False, True])
def test_what_rocketmq_wrote_meanwhile_counts_at_later_starts_too(small_bytes, commits):
    """Also when what was committed since is only in the journal."""
    disk = SimulatedDisk()
    files = disk.files()
    service = Service(files, small_bytes=small_bytes)
    service.offsets.commit("g", [("t", 0, 1)])
    service.pass_time()
    service.pass_time(100_000)
    files.replace(PATH, f"{PATH}.bak")
    write_file(files, PATH, b'{"offsetTable":{"t@g":{0:500}}}')
    service = Service(files, small_bytes=small_bytes)
    service.offsets.load(foreign=True)
    if commits:
        service.offsets.commit("g", [("t", 0, 501)])
        service.offsets._saving.save(service.worker.submit, lambda error: None)
    service.worker.run_until_idle()
    again = Service(disk.image(keep_nothing).files(), small_bytes=small_bytes)
    assert again.committed() == [("t", 0, 501 if commits else 500)]


@pytest.mark.parametrize("small_bytes", [0, SMALL_BYTES])
def test_an_operators_edit_counts_and_what_the_journal_has_of_before_does_not(small_bytes):
    disk = SimulatedDisk()
    files = disk.files()
    service = Service(files, small_bytes=small_bytes)
    service.offsets.commit("g", [("t", 0, 10), ("t", 1, 10)])
    service.pass_time()
    service.pass_time(100_000)
    service.offsets.commit("g", [("t", 0, 11)])
    service.pass_time()  # and killed
    edit_file(files, PATH, b'{"offsetTable":{"t@g":{"0":3,"1":10}}}')
    again = Service(files, small_bytes=small_bytes)
    assert again.committed() == [("t", 0, 3), ("t", 1, 10)]
    assert f"{PATH}: edited since it was written here; it counts as it is" in again.offsets.report
    again.offsets.commit("g", [("t", 1, 12)])
    again.pass_time()
    last = Service(disk.image(keep_nothing).files(), small_bytes=small_bytes)
    assert last.committed() == [("t", 0, 3), ("t", 1, 12)]
    assert last.offsets.report == []


def test_a_deleted_group_is_forgotten_here_at_the_next_start_and_on_a_slave(files):
    service, slave = Service(files), Service(SimulatedDisk().files())
    service.offsets.commit("g", [("t", 0, 3), ("t", 1, 4), ("u", 0, 5)])
    service.offsets.commit("h", [("t", 0, 6)])
    document, mark = service.offsets.export_changes()
    slave.offsets.import_document(document)
    assert service.offsets.delete("g", "u") == 1
    assert service.committed("g") == [("t", 0, 3), ("t", 1, 4)]
    assert service.offsets.delete("g") == 2
    assert service.offsets.delete("g") == service.offsets.delete("never") == 0
    document, _ = service.offsets.export_changes(mark)
    slave.offsets.import_document(document)
    service.pass_time()
    for one in (service, slave, Service(files)):
        assert one.committed("g") == []
        assert one.committed("h") == [("t", 0, 6)]


def test_a_deleted_group_can_commit_again(files):
    service = Service(files)
    service.offsets.commit("g", [("t", 0, 3)])
    service.offsets.delete("g")
    service.offsets.commit("g", [("t", 1, 1)])
    service.pass_time()
    assert Service(files).committed("g") == [("t", 1, 1)]
