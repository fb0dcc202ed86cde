"""Programs that leave readers, producers and clients open, or close them last of all: they end.

gRPC's thread is held up inside every event's handler, where it holds the lock of the event's call:
as on a machine that is busy. Python stops it there when the interpreter ends.
"""

import subprocess
import sys

import pytest

from stratamq.client import connect
from tests.support.brokers import Broker

DEADLINE_S = 240
SETTINGS = (
    "commitlog.segment_bytes=1048576",
    "index.index_slots=1000",
    "index.index_items=4000",
)

HELD_UP = """
import sys, threading
import grpc._channel
handle_event = grpc._channel._handle_event
def held_up(*arguments):
    result = handle_event(*arguments)
    if threading.current_thread() is not threading.main_thread():
        threading.Event().wait(0.2)
    return result
grpc._channel._handle_event = held_up
from stratamq.client import Message, connect
root = sys.argv.pop()
"""

PROGRAMS = {
    "a loop left by break": """
client = connect(root)
for message in client.consume("t"):
    break
""",
    "a following group left by break": """
client = connect(root)
reader = client.consume("t", follow=True, group="left", commit_interval_s=0.01)
for message in reader:
    break
""",
    "a reader closed": """
with connect(root) as client:
    reader = client.consume("t", follow=True)
    next(reader)
    reader.close()
""",
    "a client closed under its reader": """
with connect(root) as client:
    reader = client.consume("t", follow=True)
    next(reader)
""",
    "everything in a function": """
def main():
    client = connect(root)
    for message in client.consume("t"):
        return
main()
""",
    "frames left half read": """
client = connect(root)
frames = client.log_frames(0)
next(frames)
""",
    "queues left half read": """
client = connect(root)
frames = client.queue_frames([("t", 0, 0, 3)], 1)
next(frames)
""",
    "a producer never closed": """
client = connect(root)
producer = client.producer()
producer.send("p", b"x").result()
""",
    "a producer with unanswered messages": """
client = connect(root)
producer = client.producer()
deliveries = [producer.send("p", b"x") for _ in range(50)]
alone = producer.send_message(Message("p", b"x"), alone=True)
""",
    "a producer closed": """
with connect(root) as client, client.producer() as producer:
    for _ in range(50):
        producer.send("p", b"x")
""",
    "the command": """
sys.argv = ["stratamq", "consume", "t", "-n", "1", "--data", root]
from stratamq.cli.__main__ import main
main()
""",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> str:
    directory = tmp_path_factory.mktemp("broker")
    with Broker(directory / "store", directory / "logs", SETTINGS) as broker:
        broker.start()
        with connect(broker.root, retry_timeout_s=60) as client:
            for number in range(3):
                client.send("t", str(number).encode(), queue_id=0)
        yield str(broker.root)


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_ends_whatever_it_left_open(root, program):
    command = [sys.executable, "-c", HELD_UP + program, root]
    done = subprocess.run(command, capture_output=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr.decode()
    assert b"Traceback" not in done.stderr, done.stderr.decode()
