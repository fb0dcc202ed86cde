"""Kill drivers and workers of two streams again and again while they work.

    JAVA_HOME=… python -m tests.pipeline.stream_kills DIRECTORY DRIVERS [WORKERS] [SEED]

One log is followed twice: by the broker's address into another topic, and by its directory into
Parquet files, by Spark's file sink. SIGKILL ends each driver, Java included, and in each driver's
life so many Python workers. The last driver starts from the same checkpoints and ends when it has
everything.
"""

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

from stratamq.client import connect
from stratamq.rpc import discovery
from tests.pipeline.killed_driver import LISTED
from tests.support.brokers import Broker
from tests.support.waiting import until_readable_in_files

ROOT = Path(__file__).parents[2]
SETTINGS = ("commitlog.segment_bytes=65536", "dispatcher.queue_file_bytes=2000")
LOOK_S = 0.05
GAVE_UP = "Python worker failed to connect back"
MOST_CPU_S = 300.0
"""Of the driver and its processes, for one step: some 30 s are usual. Processor time, because
by the clock a step takes ten minutes where twenty others want the same two cores."""
STUCK_LOOKS = 6000
"""Five minutes in which they use no second of it: nothing will come."""
LOOKS_FOR_CPU = 20
"""To add up the processor time costs more than a look."""
FOLLOWED, INTO = "in", "out"


@dataclass(frozen=True, slots=True)
class StreamTally:
    """What a trial has found. `again`: messages that are repeated, each with the key by which a
    reader drops them. Files are read as Spark lists them."""

    drivers: int
    workers: int
    messages: int
    again: int
    missing: int
    twice: int
    missing_in_files: int
    twice_in_files: int


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
        begun_s = counted_s = self.cpu_s()
        idle_looks = 0
        while counted_s - begun_s < MOST_CPU_S and idle_looks < STUCK_LOOKS:
            if condition():
                return
            idle_looks += 1
            if idle_looks % LOOKS_FOR_CPU == 0 and (used_s := self.cpu_s()) >= counted_s + 1:
                counted_s, idle_looks = used_s, 0
            try:
                code = self.process.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                continue
            if condition():
                return
            written = self.output.read_text()
            if GAVE_UP not in written:
                raise AssertionError(f"the driver ended with {code}:\n{written[-4000:]}")
            self.kill()
            self.start()
            begun_s = counted_s = self.cpu_s()
        raise AssertionError(f"nothing came:\n{self.output.read_text()[-4000:]}")

    def cpu_s(self):
        """Processor time of these processes, and of those that they have waited for."""
        return sum(used_s for _, _, _, used_s in self.members())

    def members(self):
        """Pid, parent, command line and processor time of every process of the driver's session."""
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
                used_s = sum(map(int, after_name[11:15])) / os.sysconf("SC_CLK_TCK")
                found.append((int(entry.name), parent, command, used_s))
        return found

    def workers(self):
        """Python workers that do tasks: forks of their daemon."""
        daemon = b"pyspark.daemon\0pyspark.worker"
        daemons = {pid for pid, _, command, _ in self.members() if daemon in command}
        return [pid for pid, parent, _, _ in self.members() if parent in daemons]

    def kill(self):
        """Everything, until nothing is left."""
        while members := self.members():
            for pid, *_ in members:
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


def trial(broker: Broker, directory: Path, drivers: int, workers: int, seed: int) -> StreamTally:
    """Kill `drivers` drivers, and in the life of each but the first `workers` workers."""
    chance = random.Random(seed)
    sent = killed = 0
    with connect(broker.root) as client:

        def send(count: int) -> None:
            nonlocal sent
            with client.producer(batch_messages=20) as producer:
                for _ in range(count):
                    producer.send(FOLLOWED, b"%d" % sent)
                    sent += 1

        def stored() -> int:
            return sum(queue.max_offset for queue in client.queues(INTO))

        def more(count: int):
            """A place among `count` further messages: it comes also when all before them came."""
            goal = stored() + chance.randint(1, count)
            send(count)
            return lambda: stored() >= goal

        for life in range(drivers):
            reached = more(chance.randint(100, 400))
            with Driver(broker, directory, "follow") as driver:
                driver.until(reached)
                for _ in range(workers if life else 0):
                    driver.until(lambda: [kill(pid) for pid in driver.workers()[:1]])
                    killed += 1
                    driver.until(more(chance.randint(100, 300)))
        until_readable_in_files(broker.root)
        with Driver(broker, directory, "drain") as driver:
            driver.until(lambda: driver.process.poll() == 0)

        by_key = defaultdict(set)
        for message in client.consume(INTO):
            by_key[message.properties["UNIQ_KEY"]].add(int(message.body))
        there = Counter(body for bodies in by_key.values() for body in bodies)
        again = stored() - sent
    listed = Counter(int(body) for body in json.loads((directory / LISTED).read_text()))
    return StreamTally(
        drivers=drivers,
        workers=killed,
        messages=sent,
        again=again,
        missing=sent - len(there),
        twice=there.total() - len(there),
        missing_in_files=sent - len(listed),
        twice_in_files=listed.total() - len(listed),
    )


def main() -> None:
    directory = Path(sys.argv[1])
    drivers, workers, seed = map(int, [*sys.argv[2:], "5", "1"][:3])
    with Broker(directory / "store", directory / "logs", SETTINGS).start() as broker:
        print(trial(broker, directory, drivers, workers, seed))
        broker.stop()


if __name__ == "__main__":
    main()
