"""Drivers and workers are killed at random: no gap results and, after deduplication, no duplicate.

One log is followed twice: by the broker's address into another topic, and by its directory into
Parquet files. SIGKILL ends the whole driver, Java included, twice; a Python worker in between. The
last driver starts from the same checkpoints and ends when it has everything.
"""

import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pyarrow.dataset
import pytest

from stratamq.client import connect
from stratamq.rpc import discovery
from tests.support.waiting import until_readable_in_files

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
LOOK_S = 0.05
GAVE_UP = "Python worker failed to connect back"
DEADLINE_LOOKS = 6000
"""Five minutes: for one step of one driver, on a machine that is busy."""


class Driver:
    """The driver's process, and whatever it started.

    One that gives up because a Python process of its own took too long to start, for which Spark
    has ten seconds, is started again: the machine is busy, and it is one more restart.
    """

    def __init__(self, broker, directory, mode):
        address = discovery.read(broker.root, "commitlog").address
        self.arguments = (address, str(broker.root), str(directory), mode)
        self.output = directory / "driver.log"
        self.start()

    def start(self):
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.pipeline.killed_driver", *self.arguments],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def until(self, condition):
        """Wait for it to be true while the driver runs."""
        for _ in range(DEADLINE_LOOKS):
            if condition():
                return
            try:
                code = self.process.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                continue
            if condition():
                return
            written = self.output.read_text()
            if GAVE_UP not in written:
                pytest.fail(f"the driver ended with {code}:\n{written[-4000:]}")
            self.kill()
            self.start()
        pytest.fail(f"nothing came:\n{self.output.read_text()[-4000:]}")

    def members(self):
        """Pid, parent and command line of every process of the driver's session."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            state, parent, session = after_name[0], int(after_name[1]), int(after_name[3])
            if session == self.process.pid and state != "Z":
                found.append((int(entry.name), parent, command))
        return found

    def workers(self):
        """Python workers that do tasks: forks of their daemon."""
        daemon = b"pyspark.daemon\0pyspark.worker"
        daemons = {pid for pid, _, command in self.members() if daemon in command}
        return [pid for pid, parent, _ in self.members() if parent in daemons]

    def kill(self):
        """Everything, until nothing is left."""
        while members := self.members():
            for pid, _, _ in members:
                kill(pid)
            try:
                self.process.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                continue
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


@pytest.mark.timeout(900)
def test_no_gap_and_nothing_twice_over_kills(broker, tmp_path):
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    sent = []
    with connect(broker.root) as client:

        def send(count):
            with client.producer(batch_messages=20) as producer:
                for _ in range(count):
                    producer.send("in", b"%d" % len(sent))
                    sent.append(len(sent))

        def stored():
            return sum(queue.max_offset for queue in client.queues("out"))

        def more(least, most, count):
            """A place among `count` further messages: it comes also when all before them came."""
            goal = stored() + chance.randint(least, most)
            send(count)
            return lambda: stored() >= goal

        reached = more(1, 400, 700)
        with Driver(broker, tmp_path, "follow") as driver:
            driver.until(reached)
        reached = more(1, 200, 200)
        with Driver(broker, tmp_path, "follow") as driver:
            driver.until(reached)
            driver.until(lambda: [kill(pid) for pid in driver.workers()[:1]])
            driver.until(more(50, 300, 600))
        until_readable_in_files(broker.root)
        with Driver(broker, tmp_path, "drain") as driver:
            driver.until(lambda: driver.process.poll() == 0)

        by_key = defaultdict(set)
        print(f"{stored()} messages came out of {len(sent)}")
        for message in client.consume("out"):
            by_key[message.properties["UNIQ_KEY"]].add(int(message.body))
    assert all(len(bodies) == 1 for bodies in by_key.values()), "a key of two messages"
    assert sorted(body for bodies in by_key.values() for body in bodies) == sent
    files = pyarrow.dataset.dataset(tmp_path / "files", format="parquet").to_table()
    by_place = defaultdict(set)
    for row in files.to_pylist():
        by_place[row["physicalOffset"]].add(int(row["body"]))
    assert sorted(body for bodies in by_place.values() for body in bodies) == sent
