"""The dispatcher as a process, beside a real commit log process, over one directory."""

import json
import shutil
from pathlib import Path

import grpc
import pytest

from stratamq.api.v1 import commitlog_pb2, common_pb2
from stratamq.api.v1 import dispatcher_pb2 as pb
from stratamq.rpc import discovery
from stratamq.rpc.methods import service_of
from tests.support.brokers import COMMITLOG, DISPATCHER, Broker
from tests.support.calls import Stub

FOUND = common_pb2.GET_MESSAGE_STATUS_FOUND


@pytest.fixture
def broker(tmp_path):
    settings = [
        "commitlog.segment_bytes=65536",
        "commitlog.followers=dispatcher",
        "dispatcher.queue_file_bytes=2000",
    ]
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        yield broker


def send(broker: Broker, *bodies: bytes) -> None:
    messages = [commitlog_pb2.Message(topic="t", queue_id=0, body=body) for body in bodies]
    results = broker.log.Append(commitlog_pb2.AppendRequest(messages=messages)).results
    assert all(r.status == common_pb2.PUT_MESSAGE_STATUS_PUT_OK for r in results)


def bodies(broker: Broker, count: int) -> list[bytes]:
    """The first `count` bodies of the queue, waited for."""
    found: list[bytes] = []
    while len(found) < count:
        request = pb.PullRequest(topic="t", offset=len(found), wait_ms=30_000)
        answer = broker.dispatcher.Pull(request)
        assert answer.status == FOUND, answer
        frames = answer.frames
        while frames:
            size = int.from_bytes(frames[:4], "big")
            length = int.from_bytes(frames[84:88], "big")
            found.append(frames[88 : 88 + length])
            frames = frames[size:]
    return found


def state(root: Path) -> dict:
    return json.loads((root / "stratamq" / "dispatcher.json").read_text())["data"]


def test_it_waits_for_the_log_and_finds_it(broker):
    broker.spawn(DISPATCHER)
    broker.start([COMMITLOG])
    broker.wait_ready(DISPATCHER)
    send(broker, b"one", b"two")
    assert bodies(broker, 2) == [b"one", b"two"]


def test_a_log_that_stops_after_its_dispatcher_leaves_no_abort_file(tmp_path):
    """Where all processes are told to stop at once, as those of a pod are, it is the last one."""
    settings = (
        "commitlog.segment_bytes=65536",
        "commitlog.followers=dispatcher",
        "commitlog.follower_stop_timeout_ms=600000",
    )
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        broker.start([COMMITLOG, DISPATCHER])
        send(broker, *[b"%d" % n for n in range(120)])
        assert len(bodies(broker, 120)) == 120
        broker.terminate(DISPATCHER)
        broker.terminate(COMMITLOG)
        assert not (broker.root / "abort").exists()


def test_a_clean_stop_of_both_leaves_everything_durable_and_no_abort_file(broker):
    broker.start([COMMITLOG, DISPATCHER])
    send(broker, *[b"%d" % n for n in range(120)])
    broker.stop()
    assert not (broker.root / "abort").exists()
    recorded = state(broker.root)
    assert (recorded["complete"], recorded["clean"]) == (True, True)
    units = (broker.root / "consumequeue" / "t" / "0" / f"{0:020d}").read_bytes()
    assert len(units) == 2000
    broker.start([COMMITLOG, DISPATCHER])
    assert bodies(broker, 120) == [b"%d" % n for n in range(120)]


def test_consumers_are_served_while_the_log_is_away_and_get_more_when_it_is_back(broker):
    broker.start([COMMITLOG, DISPATCHER])
    send(broker, b"one")
    assert bodies(broker, 1) == [b"one"]
    broker.kill(COMMITLOG)
    assert bodies(broker, 1) == [b"one"]
    broker.start([COMMITLOG])
    send(broker, b"two")
    assert bodies(broker, 2) == [b"one", b"two"]


def test_a_killed_dispatcher_comes_back_with_all_messages_and_the_offsets_of_its_last_interval(
    broker,
):
    broker.start([COMMITLOG, DISPATCHER])
    send(broker, b"one", b"two")
    assert len(bodies(broker, 2)) == 2
    request = pb.CommitOffsetsRequest(group="g", offsets=[pb.GroupOffset(topic="t", offset=2)])
    broker.dispatcher.CommitOffsets(request)
    broker.terminate(DISPATCHER)
    broker.start([DISPATCHER])
    broker.kill(DISPATCHER)
    send(broker, b"three")
    broker.start([DISPATCHER])
    assert bodies(broker, 3) == [b"one", b"two", b"three"]
    committed = broker.dispatcher.GetCommittedOffsets(pb.GetCommittedOffsetsRequest(group="g"))
    assert [o.offset for o in committed.offsets] == [2]


def test_removed_queues_are_rebuilt_by_a_restart(broker):
    broker.start([COMMITLOG, DISPATCHER])
    send(broker, *[b"%d" % n for n in range(150)])
    broker.stop()
    for path in sorted((broker.root / "consumequeue").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    broker.start([COMMITLOG, DISPATCHER])
    assert bodies(broker, 150) == [b"%d" % n for n in range(150)]
    status = broker.dispatcher.GetDispatchStatus(pb.GetDispatchStatusRequest())
    assert "files are missing" in " ".join(status.recovery_report)


@pytest.mark.parametrize("part", ["consumequeue", "consumequeue/t"])
@pytest.mark.parametrize("sent_meanwhile", [0, 1])
def test_queues_put_back_to_an_older_copy_are_rebuilt_and_no_group_goes_back(
    broker, part, sent_meanwhile
):
    broker.start([COMMITLOG, DISPATCHER])
    send(broker, *[b"%d" % n for n in range(20)])
    broker.stop()
    older = broker.root.parent / "older"
    shutil.copytree(broker.root / part, older)
    broker.start([COMMITLOG, DISPATCHER])
    send(broker, *[b"%d" % n for n in range(20, 50)])
    assert len(bodies(broker, 50)) == 50
    request = pb.CommitOffsetsRequest(group="g", offsets=[pb.GroupOffset(topic="t", offset=40)])
    broker.dispatcher.CommitOffsets(request)
    broker.stop()
    shutil.rmtree(broker.root / part)
    shutil.copytree(older, broker.root / part)
    broker.start([COMMITLOG])
    if sent_meanwhile:
        send(broker, b"50")
    broker.start([DISPATCHER])
    assert bodies(broker, 50 + sent_meanwhile) == [b"%d" % n for n in range(50 + sent_meanwhile)]
    committed = broker.dispatcher.GetCommittedOffsets(pb.GetCommittedOffsetsRequest(group="g"))
    assert [o.offset for o in committed.offsets] == [40]
    status = broker.dispatcher.GetDispatchStatus(pb.GetDispatchStatusRequest())
    (line,) = status.recovery_report
    expected = "units up to 20" if sent_meanwhile else "ends at 20, and the log had given it 50"
    assert expected in line


def test_a_clean_start_compares_nothing_with_the_log_again(broker):
    broker.start([COMMITLOG, DISPATCHER])
    send(broker, *[b"%d" % n for n in range(20)])
    broker.stop()
    broker.start([COMMITLOG, DISPATCHER])
    status = broker.dispatcher.GetDispatchStatus(pb.GetDispatchStatusRequest())
    assert not list(status.recovery_report)


def test_a_second_dispatcher_is_refused_and_the_first_one_continues(broker, tmp_path):
    broker.start([COMMITLOG, DISPATCHER])
    send(broker, b"one")
    with Broker(broker.root, tmp_path / "second") as second:
        second.spawn(DISPATCHER)
        assert second.wait_end(DISPATCHER) == 3
        assert "another dispatcher" in second.output(DISPATCHER)
    assert bodies(broker, 1) == [b"one"]


def test_settings_that_make_no_sense_end_it_with_all_faults(tmp_path):
    settings = [
        "dispatcher.queue_file_bytes=3",
        "dispatcher.message_delay_level=1s 2x",
        "dispatcher.flush_intervall_ms=1",
    ]
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        broker.spawn(DISPATCHER)
        assert broker.wait_end(DISPATCHER) == 2
        output = broker.output(DISPATCHER)
        assert "queue_file_bytes" in output
        assert "did you mean flush_interval_ms" in output
        assert "Traceback" not in output


def test_it_answers_nothing_before_the_log_has_spoken(broker):
    broker.start([COMMITLOG, DISPATCHER])
    send(broker, b"one")
    assert bodies(broker, 1) == [b"one"]
    broker.kill(COMMITLOG, DISPATCHER)
    broker.spawn(DISPATCHER)
    with grpc.insecure_channel(announced(broker)) as channel:
        stub = Stub(service_of("dispatcher"), channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Pull(pb.PullRequest(topic="t"), wait_for_ready=True)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "does not serve yet" in caught.value.details()


def announced(broker: Broker) -> str:
    """The address announced by a process that does not become ready."""
    while broker.running(DISPATCHER):
        endpoint = discovery.read(broker.root, DISPATCHER)
        if endpoint is not None and endpoint.pid == broker.pid(DISPATCHER):
            return endpoint.address
    raise broker.failed(DISPATCHER, "ended")
