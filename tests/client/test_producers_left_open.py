"""Producers that a program does not close: what they have is stored when it ends, or it is said."""

import re
import subprocess
import sys
from subprocess import PIPE

import pytest

from stratamq.client import connect
from tests.support.brokers import COMMITLOG

DEADLINE_S = 240
COUNT = 10_000
SENDING = """
import asyncio, sys
from stratamq.client import connect, connect_async
root = sys.argv.pop()
count = 10_000
"""
THREADS = """
client = connect(root)
producer = client.producer()
for number in range(count):
    producer.send("left", b"%d" % number, queue_id=0)
"""
TASKS = """
async def main():
    client = connect_async(root)
    producer = client.producer()
    for number in range(count):
        await producer.send("left", b"%d" % number, queue_id=0)
asyncio.run(main())
"""
STOPPED_LOOP = """
loop = asyncio.new_event_loop()
async def main():
    client = connect_async(root)
    producer = client.producer(linger_ms=60_000)
    await (await producer.send("left", b"first", queue_id=0)).result()
    for number in range(count):
        await producer.send("left", b"%d" % number, queue_id=0)
    return producer
kept = loop.run_until_complete(main())
"""
AWAY = """
from stratamq.client import exits
exits.FLUSH_AT_EXIT_S = 0.2
client = connect(root)
producer = client.producer()
producer.send("left", b"first", queue_id=0).result()
print("ready", flush=True)
input()
for number in range(count):
    producer.send("left", b"%d" % number, queue_id=0)
"""


def command(broker, program: str) -> list[str]:
    return [sys.executable, "-W", "always", "-c", SENDING + program, str(broker.root)]


def run(broker, program: str) -> str:
    """Its standard error."""
    done = subprocess.run(
        command(broker, program),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stderr


def stored(broker) -> int:
    with connect(broker.root, retry_timeout_s=60) as client:
        return client.send("left", b"", queue_id=0).queue_offset


def said(stderr: str) -> int:
    """How many messages are not stored, by the log and by a warning."""
    assert "ResourceWarning: a producer was not closed" in stderr, stderr
    assert re.search("^a producer was not closed", stderr, re.MULTILINE), stderr
    (number,) = set(re.findall(r"a producer was not closed: (\d+) messages", stderr))
    return int(number)


def test_what_threads_gave_up_for_sending_is_stored_at_exit(own_log):
    assert run(own_log, THREADS) == ""
    assert stored(own_log) == COUNT


@pytest.mark.parametrize("program", [TASKS, STOPPED_LOOP], ids=["asyncio.run", "stopped"])
def test_what_an_event_loop_did_not_send_is_counted(own_log, program):
    stderr = run(own_log, program)
    there = stored(own_log)
    if there < COUNT:
        assert COUNT - there <= said(stderr) <= COUNT
    else:
        assert stderr == "" or said(stderr) <= COUNT


def test_what_a_log_that_is_away_did_not_take_is_counted(own_log):
    with subprocess.Popen(
        command(own_log, AWAY), stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True
    ) as program:
        assert program.stdout.readline() == "ready\n"
        own_log.kill(COMMITLOG)
        _, stderr = program.communicate("\n", timeout=DEADLINE_S)
    assert program.returncode == 0, stderr
    assert said(stderr) == COUNT
