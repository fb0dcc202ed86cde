"""A disk call that blocks: requests that need it wait and time out; others are not delayed."""

import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from stratamq.client import Client, connect
from stratamq.client.values import SendResult
from stratamq.errors import BusyError, StrataError
from stratamq.formats.message_status import SendStatus
from stratamq.rpc import discovery
from tests.support.logs import Store, message, segment_path
from tests.support.waiting import until

STALLED_DISK = str(Path(__file__).with_name("stalled_disk.py"))
ALWAYS = ("followers=", "disk_refuse_ratio=1.0")
SETTINGS = {
    "flush": ("sync_flush_timeout_ms=300", "disk_stall_ms=400"),
    "read": ("sync_flush_timeout_ms=60000", "disk_stall_ms=60000"),
}
"""By the call that blocks. A flush of a disk that is only busy may also take 300 ms."""
SERVING, NOT_SERVING = (
    health_pb2.HealthCheckResponse.SERVING,
    health_pb2.HealthCheckResponse.NOT_SERVING,
)


class Service:
    """The log service; one kind of disk call blocks on command."""

    def __init__(self, root: Path, call: str) -> None:
        root.mkdir()
        command = [sys.executable, STALLED_DISK, call, segment_path(0), "--data", str(root)]
        self._process = subprocess.Popen(
            [*command, *(f"--set=commitlog.{setting}" for setting in (*ALWAYS, *SETTINGS[call]))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._printed = {word: threading.Event() for word in ("armed", "stalled", "released")}
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.client = connect(root, retry_timeout_s=60)
        self.client.log_state()
        self._endpoint = discovery.read(root, "commitlog")
        self._channel = grpc.insecure_channel(self._endpoint.address)

    def arm(self) -> None:
        """The next disk call blocks."""
        self._command("armed")

    def release(self) -> None:
        """The disk call returns."""
        self._command("released")

    def _command(self, answer: str) -> None:
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        assert self._printed[answer].wait(60)

    def blocks(self) -> None:
        """Wait until the disk call blocks."""
        assert self._printed["stalled"].wait(60)

    @property
    def is_blocked(self) -> bool:
        return self._printed["stalled"].is_set()

    def _read(self) -> None:
        for line in self._process.stdout:
            if line.strip() in self._printed:
                self._printed[line.strip()].set()

    def health(self) -> int:
        stub = health_pb2_grpc.HealthStub(self._channel)
        return stub.Check(health_pb2.HealthCheckRequest(), timeout=60).status

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://{self._endpoint.metrics}/metrics") as response:
            return response.read().decode()

    def close(self) -> None:
        self.client.close()
        self._channel.close()
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._process.stdin.close()
        self._process.stdout.close()


@pytest.fixture
def service(request, tmp_path) -> Iterator[Service]:
    service = Service(tmp_path / "store", request.param)
    yield service
    service.close()


def refusal(client: Client) -> StrataError | None:
    try:
        client.send("t", b"refused", queue_id=0)
    except StrataError as error:
        return error
    return None


@pytest.mark.parametrize("service", ["flush"], indirect=True)
def test_health_time_outs_and_reads_continue_while_a_flush_is_stalled(service):
    client = service.client
    kept = until(lambda: in_time(client, b"kept"), "the disk flushes in time")
    service.arm()
    late = None
    while not service.is_blocked:
        sent = client.send_all([client_message()])[0]
        if sent.status is not SendStatus.OS_PAGECACHE_BUSY:
            late = sent
    assert late.status is SendStatus.FLUSH_DISK_TIMEOUT, "stored, not confirmed"
    until(lambda: service.health() == NOT_SERVING, "not serving")
    error = refusal(client)
    assert isinstance(error, BusyError)
    assert "the disk is stalled: a flush has not ended for" in str(error)
    state = client.log_state()
    assert "the disk is stalled" in state.not_writable_reason
    assert client.message_at(kept.physical_offset).body == b"kept"
    lane = 'commitlog_disk_wait_seconds{lane="flush"}'
    until(lambda: waited(service.metrics(), lane) >= 0.4, f"{lane} to wait")
    service.release()
    until(lambda: service.health() == SERVING, "serving")
    again = until(lambda: stored(client, b"again"), "the log takes messages again")
    assert again.queue_offset == late.queue_offset + 1, "nothing of what was refused is stored"
    assert client.message_at(late.physical_offset).body == b"late"
    until(lambda: in_time(client, b"again"), "the disk flushes in time")


def stored(client: Client, body: bytes) -> SendResult | None:
    """None if the log considers the disk stalled."""
    try:
        return client.send("t", body, queue_id=0)
    except BusyError:
        return None


def in_time(client: Client, body: bytes) -> SendResult | None:
    """None unless it is stored and confirmed."""
    sent = stored(client, body)
    return sent if sent is not None and sent.status is SendStatus.PUT_OK else None


def client_message():
    from stratamq.client import Message

    return Message("t", b"late", queue_id=0)


def waited(text: str, name: str) -> float:
    (line,) = (line for line in text.splitlines() if line.startswith(name))
    return float(line.split()[-1])


@pytest.mark.parametrize("service", ["read"], indirect=True)
def test_a_read_that_stands_still_holds_up_no_append_and_no_health_check(service):
    client = service.client
    kept = client.send("t", b"kept", queue_id=0)
    service.arm()
    answers = []
    reading = threading.Thread(
        target=lambda: answers.append(client.message_at(kept.physical_offset))
    )
    reading.start()
    service.blocks()
    for number in range(1, 50):
        assert client.send("t", b"x", queue_id=0).queue_offset == number
    lane = 'commitlog_disk_wait_seconds{lane="read"}'
    until(lambda: waited(service.metrics(), lane) >= 0.4, f"{lane} to wait")
    assert service.health() == SERVING
    assert client.log_state().writable
    assert not answers
    service.release()
    reading.join(60)
    assert answers[0].body == b"kept"


def test_while_the_disk_is_stalled_nothing_is_written_and_waiting_calls_are_answered():
    store = Store(1 << 16)
    log = store.start()
    store.put(b"before")
    store.send(message(b"waits"))
    log.write_path.stand_still("the disk is stalled", refuse=True)
    store.step()
    assert store.answers.statuses == [SendStatus.OS_PAGECACHE_BUSY]
    (result,) = store.answers.results
    assert isinstance(result.error, BusyError)
    assert len(store.frames()) == 1
    assert isinstance(store.put(b"refused").error, BusyError)
    assert not log.writable[0]
    log.write_path.stand_still("", refuse=True)
    assert store.put(b"after").queue_offset == 1
    assert [frame.body for frame in store.frames()] == [b"before", b"after"]
