"""A log that gets a stop during its opening stops soon, and holds its lock until then."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from stratamq.errors import UnavailableError
from stratamq.files.interruptible import InterruptibleFiles
from stratamq.files.real import RealFiles
from stratamq.files.simulated import keep_nothing
from stratamq.rpc import discovery
from tests.support.logs import Store, body_for, message, segment_path

SEGMENT = 4096
STALLED_DISK = str(Path(__file__).with_name("stalled_disk.py"))


def killed_in_its_third_segment() -> Store:
    store = Store(SEGMENT)
    store.start()
    for number in range(26):
        store.put(b"%02d" % number + body_for(400))
    store.kill()
    return store


def bodies(store: Store) -> list[bytes]:
    return [frame.body[:2] for frame in store.frames()]


NUMBERS = [b"%02d" % number for number in range(26)]


def test_a_close_while_the_log_opens_does_not_let_go_of_the_lock():
    """The thread that opens it writes until it has ended."""
    store = killed_in_its_third_segment()
    log = store.prepare()
    others = store.disk.files(name="another")
    held = []

    def in_the_middle(done: int, total: int) -> None:
        log.close()
        with pytest.raises(BlockingIOError):
            others.lock("lock", b"another")
        held.append(done)

    log.open(in_the_middle)
    assert held
    assert store.put(b"goes on").queue_offset == 26


def opened_until_call(store: Store, call: int) -> bool:
    """Open it, interrupted before the `call`th call of the port; False: it came to its end."""
    asked = iter(range(1, 1 << 20))
    files = InterruptibleFiles(store.disk.files(), lambda: next(asked) >= call)
    log = store.prepare(files)
    try:
        files.run(log.open)
    except UnavailableError:
        return True
    return False


@pytest.mark.parametrize("then", ["at once", "after a power loss"])
def test_an_opening_that_is_interrupted_at_any_call_changes_nothing_of_the_log(
    then, walked_both_ways
):
    call = 1
    while True:
        store = killed_in_its_third_segment()
        if not opened_until_call(store, call):
            break
        calls = store.disk.calls
        assert not store.scheduler.pending, "nothing writes once it has ended"
        store.log.close()
        assert store.disk.calls == calls, "its end writes nothing"
        if then == "after a power loss":
            store.power_loss(keep_nothing)
        store.start()  # the lock is free
        assert bodies(store) == NUMBERS, call
        assert store.put(b"x").queue_offset == 26
        call += 1
    assert call > 60


def test_an_interruption_after_the_opening_stops_nothing():
    store = Store(SEGMENT)
    interrupted = []
    files = InterruptibleFiles(store.disk.files(), lambda: bool(interrupted))
    files.run(store.prepare(files).open)
    interrupted.append(True)
    store.put_all(*[message(b"x") for _ in range(100)])
    store.stop()
    assert len(store.frames()) == 100


def test_a_process_that_stops_while_it_recovers_holds_its_locks_until_its_last_write(tmp_path):
    """SIGTERM comes while recovery writes again what it accepted, and the disk is stalled."""
    root = tmp_path / "store"
    store = Store(1 << 16, root=root)
    store.start()
    for number in range(26):
        store.put(b"%02d" % number + body_for(400))
    store.kill()
    service = subprocess.Popen(
        [sys.executable, STALLED_DISK, "write", segment_path(0), "--data", str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert service.stdin is not None and service.stdout is not None
    try:
        service.stdin.write("block\n")
        service.stdin.flush()
        line = service.stdout.readline()
        while "stalled" not in line:
            line = service.stdout.readline()
        channel = grpc.insecure_channel(announced(root, service.pid))
        grpc.channel_ready_future(channel).result(60)
        service.send_signal(signal.SIGTERM)
        stopped_answering(channel)
        for path in ("lock", "stratamq/commitlog.lock"):
            with pytest.raises(BlockingIOError):
                RealFiles(root).lock(path, b"another")
        assert service.poll() is None
        before = store.segments()
        service.stdin.write("continue\n")
        service.stdin.close()
        assert service.wait(60) == 0
    finally:
        service.kill()
        service.wait()
        service.stdout.close()
    assert store.segments() == before, "it wrote again what was there, and nothing else"
    store.start()
    assert bodies(store) == NUMBERS


def announced(root: Path, pid: int) -> str:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        endpoint = discovery.read(root, "commitlog")
        if endpoint is not None and endpoint.pid == pid:
            return endpoint.address
    raise AssertionError("no address was announced")


def stopped_answering(channel: grpc.Channel) -> None:
    """Until the server takes no calls any more: it is about to close the log."""
    health = health_pb2_grpc.HealthStub(channel)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            health.Check(health_pb2.HealthCheckRequest(), timeout=5)
        except grpc.RpcError:
            channel.close()
            return
    raise AssertionError("it still answers")
