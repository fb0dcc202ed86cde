"""A client in a process that was forked from its own: calls raise at once, and nothing waits."""

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
PROGRAM = """
import asyncio, multiprocessing, os, sys
from stratamq.client import connect, connect_async
from stratamq.client.units import Batch
from stratamq.errors import ForkedClientError

root = sys.argv.pop()

def refused(call):
    try:
        done = call()
        asyncio.run(done) if asyncio.iscoroutine(done) else None
    except ForkedClientError as error:
        assert "before a fork" in str(error), error
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
    with connect(root) as own:
        print("stored", own.send("forked", b"child", queue_id=0).queue_offset, flush=True)

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
    client = producer = delivery = reader = None
    async def begin():
        nonlocal client, producer, delivery, reader
        client = connect_async(root)
        await client.send("forked", b"first", queue_id=0)
        producer = client.producer()
        await (await producer.send("forked", b"second", queue_id=0)).result()
        delivery = await producer.send("forked", b"third", queue_id=0)
        reader = client.consume("forked", group="g", follow=True)
        await anext(reader)
    async def end():
        print("parent", (await client.send("forked", b"last", queue_id=0)).queue_offset)
        await reader.close(); await producer.close(); await client.close()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    fork(child, client, producer, delivery, reader, None)
    loop.run_until_complete(end())

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
def root(kind, tmp_path_factory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("broker")
    with Broker(directory / "store", directory / "logs", SETTINGS) as broker:
        broker.start()
        yield str(broker.root)


@pytest.mark.parametrize("fork", ["bare", "process"])
def test_calls_in_a_child_raise_and_its_own_client_works(root, kind, fork):
    shell = "of_threads" if kind == "synchronous" else "of_tasks"
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", f"{PROGRAM}\n{shell}({fork})", root],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    said = [line.split()[0] for line in done.stdout.splitlines()]
    assert "stored" in said and "parent" in said, done.stdout
