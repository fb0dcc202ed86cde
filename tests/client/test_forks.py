"""A client in a process that was forked from its own: calls raise at once, and nothing waits."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.brokers import Broker

SETTINGS = (
    "commitlog.segment_bytes=1048576",
    "index.index_slots=5000",
    "index.index_items=40000",
)
DEADLINE_S = 240
NOT_PREPARED = "skipping fork() handlers"
PROGRAM = """
import asyncio, multiprocessing, os, sys
from stratamq.client import connect, connect_async
from stratamq.client import forks
from stratamq.client._async.delivery import AsyncDelivery, AsyncWaiters
from stratamq.client.primitives import AsyncGuard
from stratamq.client.units import Batch
from stratamq.errors import ForkedClientError

root = sys.argv.pop()

def refused(call):
    try:
        done = call()
        asyncio.run(done) if asyncio.iscoroutine(done) else None
    except ForkedClientError as error:
        assert "fork" in str(error), error
    else:
        raise AssertionError("a call of the parent's client did not raise")

def child(client, producer, delivery, reader, frames):
    refused(lambda: client.send("forked", b"x", queue_id=0))
    refused(lambda: client.pull("forked", 0, 0))
    refused(lambda: client.consume("forked"))
    refused(lambda: client.producer())
    refused(lambda: client.topics())
    refused(lambda: client.admin.put_topic(None))
    refused(lambda: producer.send("forked", b"x", queue_id=0))
    refused(lambda: producer.flush())
    unanswered = type(delivery)(delivery._waiters, Batch(0))
    refused(lambda: unanswered.result())
    refused(lambda: reader.poll(timeout_s=60))
    refused(lambda: reader.commit())
    if frames is not None:
        refused(lambda: next(reader))
        refused(lambda: list(frames))
    for one in (reader, producer, client):
        closed = one.close()
        asyncio.run(closed) if asyncio.iscoroutine(closed) else None
    own()

def of_threads(fork):
    with connect(root) as client, client.producer() as producer:
        client.send("forked", b"first", queue_id=0)
        producer.send("forked", b"second", queue_id=0)
        producer.flush()
        delivery = producer.send("forked", b"third", queue_id=0)
        with client.consume("forked", group="g", follow=True) as reader:
            next(reader)
            frames = client.log_frames(0)
            fork(child, client, producer, delivery, reader, frames)
            print("parent", client.send("forked", b"last", queue_id=0).queue_offset, flush=True)

def of_tasks(fork):
    "Connected to nothing: gRPC has no thread yet."
    client = connect_async(root)
    producer = client.producer()
    reader = client.consume("forked", group="g", follow=True)
    delivery = AsyncDelivery(AsyncWaiters(AsyncGuard()), Batch(0))
    fork(child, client, producer, delivery, reader, None)
    async def end():
        print("parent", (await client.send("forked", b"last", queue_id=0)).queue_offset)
        await reader.close(); await producer.close(); await client.close()
    asyncio.run(end())

def while_connected():
    "An asyncio client cannot be forked: the parent says so, and what the child does is gRPC's."
    async def send():
        async with connect_async(root) as client:
            await client.send("forked", b"first", queue_id=0)
            pid = os.fork()
            if not pid:
                os._exit(0)
            os.waitpid(pid, 0)
            return (await client.send("forked", b"last", queue_id=0)).stored
    print("parent", asyncio.run(send()))

def no_grpc_in_the_child():
    "Nor in this parent, so that what the child does is not gRPC's."
    forks.asyncio_begins()
    def child():
        refused(lambda: connect(root).topics())
        refused(lambda: connect_async(root).topics())
        refused(lambda: connect("127.0.0.1:1").topics())
    bare(child)

def own(number=0):
    with connect(root) as own:
        offset = own.send("forked", b"child", queue_id=0).queue_offset
        # One write a line: the workers share the pipe, and print may write a line in pieces.
        os.write(1, f"stored {offset}\\n".encode())
        return number

def pool():
    with connect(root) as client, client.producer() as producer:
        producer.send("forked", b"second", queue_id=0).result()
        with multiprocessing.get_context("fork").Pool(3) as workers:
            assert workers.map(own, range(20), chunksize=1) == list(range(20))
        print("parent", client.send("forked", b"last", queue_id=0).queue_offset, flush=True)

def bare(run, *arguments):
    pid = os.fork()
    if not pid:
        run(*arguments)
        sys.exit()  # with the exit hooks, unlike multiprocessing
    status = os.waitpid(pid, 0)[1]
    assert status == 0, status

def process(run, *arguments):
    one = multiprocessing.get_context("fork").Process(target=run, args=arguments)
    one.start()
    one.join()
    assert one.exitcode == 0, one.exitcode
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("broker")
    with Broker(directory / "store", directory / "logs", SETTINGS) as broker:
        broker.start()
        yield str(broker.root)


@pytest.fixture
def run(root):
    """A program of the functions above: the words and the errors that it writes."""

    def of(call: str) -> tuple[list[str], str]:
        for _ in range(4):
            done = subprocess.run(
                [sys.executable, "-X", "faulthandler", "-c", f"{PROGRAM}\n{call}", root],
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
            )
            # gRPC promises a child nothing when a thread was inside it at the fork, and says so.
            if not (done.returncode and NOT_PREPARED in done.stderr):
                break
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return [line.split()[0] for line in done.stdout.splitlines()], done.stderr

    return of


WARNING = "this process forks after an asyncio client of it has connected"


@pytest.mark.parametrize("fork", ["bare", "process"])
@pytest.mark.parametrize("parent", ["of_threads", "of_tasks"])
def test_calls_in_a_child_raise_and_its_own_client_works(run, parent, fork):
    words, errors = run(f"{parent}({fork})")
    assert words == ["stored", "parent"]
    assert WARNING not in errors


def test_the_workers_of_a_pool_have_clients_of_their_own(run):
    words, _ = run("pool()")
    assert words == ["stored"] * 20 + ["parent"]


def test_a_fork_after_an_asyncio_client_has_connected_is_warned_of(run):
    words, errors = run("while_connected()")
    assert words == ["parent"]
    assert WARNING in errors


def test_a_new_client_is_refused_where_grpc_cannot_be_used(run):
    words, errors = run("no_grpc_in_the_child()")
    assert words == []
    assert WARNING in errors


APPLICATION = """
import os
from stratamq.client import connect
from stratamq.errors import ForkedClientError

root = os.environ["ROOT"]
of_the_master = connect(root)
of_the_master.send("served", b"master", queue_id=0)
own = None

def post_fork(server, worker):
    global own
    own = connect(root)

def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    client = own if environ["PATH_INFO"] == "/own" else of_the_master
    try:
        return [str(client.send("served", b"worker", queue_id=0).queue_offset).encode()]
    except ForkedClientError as error:
        return [str(error).encode()]
"""


def test_workers_of_gunicorn_have_clients_of_their_own(root, tmp_path):
    (tmp_path / "served.py").write_text(APPLICATION)
    (tmp_path / "gunicorn.conf.py").write_text("from served import post_fork\npreload_app = True\n")
    path = tmp_path / "socket"
    command = [sys.executable, "-m", "gunicorn", "-w", "2", "-b", f"unix:{path}"]
    server = subprocess.Popen(
        [*command, "served:application"],
        cwd=tmp_path,
        env=os.environ | {"ROOT": root},
        stderr=subprocess.PIPE,
        text=True,
    )
    with server:
        for line in server.stderr:
            if "Listening at" in line:
                break
        answers = [asked(path, "/own") for _ in range(10)]
        refusal = asked(path, "/inherited")
        server.terminate()
        said = server.stderr.read()
    assert server.returncode == 0, said
    assert answers == [str(number) for number in range(1, 11)]
    assert "this client was made before a fork" in refusal


def asked(path, what: str) -> str:
    """What gunicorn answers: what comes before a worker is ready waits in the socket's queue."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        connection.sendall(f"GET {what} HTTP/1.0\r\n\r\n".encode())
        with connection.makefile("rb") as answer:
            return answer.read().partition(b"\r\n\r\n")[2].decode()
