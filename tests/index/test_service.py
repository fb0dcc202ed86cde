"""The service as a process: real gRPC, a real log, kills and clean stops."""

import threading

import grpc
import pytest

from stratamq.api.v1 import commitlog_pb2, index_pb2
from stratamq.files.real import RealFiles
from stratamq.formats.file_names import offset_name
from stratamq.formats.frame import Frame, decode
from stratamq.rpc import discovery
from stratamq.rpc.methods import service_of
from tests.index.harness import ITEMS, SLOTS, TestLog, contents
from tests.support.brokers import COMMITLOG, INDEX, Broker, broker_fixture
from tests.support.calls import Stub
from tests.support.waiting import until

SEGMENT_BYTES = 65_536
SETTINGS = [
    f"commitlog.segment_bytes={SEGMENT_BYTES}",
    "commitlog.followers=index",
    f"index.index_slots={SLOTS}",
    f"index.index_items={ITEMS}",
    "index.sync_interval_ms=20",
    "index.slot_interval_ms=50",
]
LOG_AND_INDEX = (COMMITLOG, INDEX)


def append(broker: Broker, *messages: commitlog_pb2.Message) -> list[int]:
    response = broker.log.Append(commitlog_pb2.AppendRequest(messages=messages))
    assert all(result.error == "" for result in response.results)
    return [result.physical_offset for result in response.results]


def message(*keys: str, unique: str | None = None, topic: str = "orders", **fields):
    return commitlog_pb2.Message(topic=topic, body=b"x", keys=keys, unique_key=unique, **fields)


def query(broker: Broker, key: str, topic: str = "orders", **fields) -> index_pb2.QueryKeyResponse:
    return broker.index.QueryKey(index_pb2.QueryKeyRequest(topic=topic, key=key, **fields))


def offsets(broker: Broker, key: str, **fields) -> list[int]:
    return [stored.physical_offset for stored in query(broker, key, **fields).frames]


def caught_up(broker: Broker, *, durable: bool = False) -> index_pb2.GetIndexStatusResponse:
    """Ask until the index has come to the log's end."""
    end = broker.log.GetStatus(commitlog_pb2.GetStatusRequest()).appended_offset

    def come() -> index_pb2.GetIndexStatusResponse | None:
        status = broker.index.GetIndexStatus(index_pb2.GetIndexStatusRequest())
        reached = status.durable_offset if durable else status.applied_offset
        return status if status.serving and reached >= end else None

    return until(come, f"the index has come to {end}")


broker = broker_fixture(*SETTINGS, rooms=LOG_AND_INDEX)


def test_messages_come_back_by_key_and_unique_key(broker):
    first, second = append(broker, message("red", "blue"), message("blue", unique="U-1"))
    caught_up(broker)
    assert offsets(broker, "blue") == [second, first]
    assert offsets(broker, "blue", oldest_first=True) == [first, second]
    assert offsets(broker, "U-1", unique_key_only=True) == [second]
    assert offsets(broker, "blue", unique_key_only=True) == []
    [stored] = query(broker, "red").frames
    frame = decode(stored.frame)
    assert isinstance(frame, Frame)
    assert frame.physical_offset == first
    assert frame.properties["KEYS"] == "red blue"


def test_times_and_numbers_bound_the_answer(broker):
    found = append(broker, *(message("timed") for _ in range(5)))
    caught_up(broker)
    times = [decode(stored.frame).store_timestamp_ms for stored in query(broker, "timed").frames]
    window = {"begin_timestamp_ms": min(times), "end_timestamp_ms": max(times)}
    assert offsets(broker, "timed", oldest_first=True, **window) == found
    assert offsets(broker, "timed", begin_timestamp_ms=1, end_timestamp_ms=2) == []
    answer = query(broker, "timed", max_messages=2)
    assert [stored.physical_offset for stored in answer.frames] == found[:-3:-1]
    assert answer.truncated
    assert answer.applied_offset > found[-1]


@pytest.mark.parametrize(
    "fields",
    [
        {"topic": ""},
        {"key": ""},
        {"max_messages": -1},
        {"max_messages": 10_001},
        {"begin_timestamp_ms": 5, "end_timestamp_ms": 4},
        {"begin_timestamp_ms": -1, "end_timestamp_ms": 4},
        {"begin_timestamp_ms": 5},
    ],
)
def test_questions_that_make_no_sense_are_invalid_arguments(broker, fields):
    request = index_pb2.QueryKeyRequest(**{"topic": "orders", "key": "k"} | fields)
    with pytest.raises(grpc.RpcError) as error:
        broker.index.QueryKey(request)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (9, 3)])
def test_ranges_that_make_no_sense_are_invalid_arguments(broker, start, end):
    with pytest.raises(grpc.RpcError) as error:
        broker.index.Rebuild(index_pb2.RebuildRequest(start_offset=start, end_offset=end))
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_rebuild_answers_what_it_did_and_questions_continue(broker):
    found = append(broker, *(message("again", f"n{number}") for number in range(100)))
    before = caught_up(broker, durable=True)
    wrong: list[list[int]] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            answer = offsets(broker, "again", oldest_first=True, max_messages=1000)
            if answer != found:
                wrong.append(answer)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for start, end in ((0, 0), (found[10], found[20]), (0, 0)):
            rebuilt = broker.index.Rebuild(
                index_pb2.RebuildRequest(start_offset=start, end_offset=end)
            )
            assert rebuilt.files_rebuilt >= 1
    finally:
        over.set()
        asking.join()
    assert wrong == []
    after = caught_up(broker)
    assert [file.name for file in after.files] == [file.name for file in before.files]
    assert rebuilt.items == sum(file.index_count - 1 for file in after.files)


def test_a_rebuild_whose_caller_leaves_is_given_up(broker):
    append(broker, *(message(f"left{number}") for number in range(200)))
    caught_up(broker)
    call = broker.index.Rebuild.future(index_pb2.RebuildRequest())
    call.cancel()
    while True:
        try:
            broker.index.Rebuild(index_pb2.RebuildRequest())
            break
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert len(offsets(broker, "left7")) == 1


def test_the_status_lists_the_files(broker):
    append(broker, *(message(f"s{number}") for number in range(40)))
    status = caught_up(broker, durable=True)
    assert status.stopped_reason == ""
    assert status.log_confirmed_offset >= status.applied_offset
    assert len(status.files) >= 3
    for older, newer in zip(status.files, status.files[1:], strict=False):
        assert older.name < newer.name
        assert older.index_count == ITEMS
        assert older.end_physical_offset <= newer.begin_physical_offset


def test_kills_of_either_process_lose_no_message(tmp_path):
    with Broker(tmp_path / "store", tmp_path / "logs", SETTINGS) as broker:
        broker.start(LOG_AND_INDEX)
        found = append(broker, *(message("kept") for _ in range(30)))
        caught_up(broker)
        broker.kill(INDEX)
        found += append(broker, *(message("kept") for _ in range(30)))
        broker.start([INDEX])
        caught_up(broker)
        assert offsets(broker, "kept", oldest_first=True, max_messages=1000) == found
        broker.kill(COMMITLOG)
        broker.start([COMMITLOG])
        found += append(broker, *(message("kept") for _ in range(30)))
        caught_up(broker)
        assert offsets(broker, "kept", oldest_first=True, max_messages=1000) == found
        broker.kill(INDEX, COMMITLOG)
        broker.start(LOG_AND_INDEX)
        caught_up(broker)
        assert offsets(broker, "kept", oldest_first=True, max_messages=1000) == found


def test_a_clean_stop_leaves_no_abort_and_the_files_of_a_linear_build(tmp_path):
    with Broker(tmp_path / "store", tmp_path / "logs", SETTINGS) as broker:
        broker.start(LOG_AND_INDEX)
        append(broker, *(message(f"k{n % 7}", unique=f"U{n}") for n in range(100)))
        end = broker.log.GetStatus(commitlog_pb2.GetStatusRequest()).appended_offset
        broker.stop()
    assert not (broker.root / "abort").exists()
    log = TestLog(RealFiles(broker.root), SEGMENT_BYTES)
    log.end = end
    assert contents(log.files) == log.index_files()


def test_without_a_log_questions_are_answered_unavailable_until_it_is_there(tmp_path):
    with Broker(tmp_path / "store", tmp_path / "logs", SETTINGS) as broker:
        broker.start([COMMITLOG])
        append(broker, message("early"))
        broker.kill(COMMITLOG)
        broker.spawn(INDEX)
        with grpc.insecure_channel(announced(broker)) as channel:
            stub = Stub(service_of("index"), channel)
            with pytest.raises(grpc.RpcError) as error:
                stub.QueryKey(index_pb2.QueryKeyRequest(topic="orders", key="early"))
            assert error.value.code() is grpc.StatusCode.UNAVAILABLE
            status = stub.GetIndexStatus(index_pb2.GetIndexStatusRequest())
            assert not status.serving
        broker.start([COMMITLOG])
        broker.wait_ready(INDEX)
        caught_up(broker)
        assert len(offsets(broker, "early")) == 1


def announced(broker: Broker) -> str:
    while True:
        endpoint = discovery.read(broker.root, INDEX)
        if endpoint is not None and endpoint.pid == broker.pid(INDEX):
            return endpoint.address
        assert broker.running(INDEX), broker.output(INDEX)


def test_a_second_index_service_on_a_directory_is_refused(broker):
    second = Broker(broker.root, broker.root.parent / "second", SETTINGS)
    second.spawn(INDEX)
    assert second.wait_end(INDEX) == 3
    assert "another index service" in second.output(INDEX)
    assert broker.running(INDEX)


def test_files_that_show_no_geometry_go_aside_and_are_reported(tmp_path):
    root = tmp_path / "store"
    (root / "index").mkdir(parents=True)
    (root / "commitlog").mkdir()
    (root / "commitlog" / offset_name(0)).write_bytes(bytes(4096))
    (root / "index" / "20261121000000000").write_bytes(b"\1" * 1384)
    with Broker(root, tmp_path / "logs") as broker:
        broker.spawn(INDEX)
        aside = root / "stratamq" / "aside" / "index" / "20261121000000000"
        found = until(lambda: discovery.read(root, INDEX), "it has announced itself")
        assert aside.read_bytes() == b"\1" * 1384
        with grpc.insecure_channel(found.address) as channel:
            stub = Stub(service_of("index"), channel)
            status = stub.GetIndexStatus(index_pb2.GetIndexStatusRequest(), timeout=30)
        assert any("they are set aside" in line for line in status.recovery_report)
    assert not list((root / "index").iterdir())


def test_wrong_settings_are_all_reported(tmp_path):
    settings = ["index.index_slots=0", "index.index_items=1", "index.nonsense=1"]
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        broker.spawn(INDEX)
        assert broker.wait_end(INDEX) == 2
        for name in ("index_slots", "index_items", "nonsense"):
            assert f"index.{name}" in broker.output(INDEX)
