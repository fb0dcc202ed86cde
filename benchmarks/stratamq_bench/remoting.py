"""RocketMQ's own Java client at a broker and its gateway, and at RocketMQ itself, by turns.

One client process for both (`benchmarks/remoting`), sync flush, the same limits of a pull. The
floor of each case is RocketMQ: `ratio` 2 is twice as fast as RocketMQ on this machine.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stratamq.errors import StrataError
from stratamq_bench import child
from stratamq_bench.broker import FOLLOWERS, Broker
from stratamq_bench.load import Mismatch
from stratamq_bench.plan import alternate
from stratamq_bench.ports import free_port, free_ports
from stratamq_bench.report import Bar, Case, Measured, at_least, compared, median_of
from stratamq_bench.usage import CpuMeter, cpu_seconds, pss_mb, service_pids, used_while_idle

JAVA = Path(__file__).parents[1] / "remoting"
REAL = "RocketMQ 5.3.3"
GATEWAY = "gateway"
ROOMS = ("commitlog", *FOLLOWERS, "delivery", GATEWAY)
PULLED_MESSAGES, PULLED_BYTES = 512, 1 << 20
FILLED, FILL_MS = 100_000, 600_000
CONSUMERS, IDLE_TOPIC = 1_000, "idle"


@dataclass(frozen=True, slots=True)
class Options:
    seconds: float
    rounds: int
    body: int
    cases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """One case: a command of the Java client, with its words."""

    title: str
    command: str
    words: Mapping[str, object]
    bars: tuple[Bar, ...]


_P50 = (Bar("p50_ratio", "at most", 1.2),)
_OF_IDLE = (Bar("gateway_mb", "at most", 150), Bar("gateway_cpu_percent", "at most", 2))
_READ = {"topic": "filled", "messages": FILLED, "most": PULLED_MESSAGES}
WORKS = {
    "singles": Work(
        "64 threads that send one message at a time", "singles", {"threads": 64}, at_least(2.0)
    ),
    "one": Work("one message in flight", "singles", {"threads": 1}, _P50),
    "batches": Work(
        "4 threads that send batches of 128", "batches", {"threads": 4, "batch": 128}, at_least(2.0)
    ),
    "pulls": Work("pulls of 512", "pulls", _READ, at_least(0.7)),
    "push": Work("a push consumer of 100 000 messages", "push", _READ, at_least(1.0)),
    "idle": Work("1 000 consumers whose pulls are held", "", {}, _OF_IDLE),
}


def measure(directory: Path, options: Options) -> list[Case]:
    """Everything that is written is below `directory`. StrataError, Mismatch."""
    require_java()
    with ExitStack() as stack:
        load = started_load(directory, stack)
        sides = [real_broker(directory, stack), _ours(directory, stack)]
        if {"pulls", "push"} & set(options.cases):
            for side in sides:
                filled = side.ask(load, "batches", FILL_MS, options, **_READ, threads=4, batch=128)
                if filled.messages < FILLED:
                    raise Mismatch(
                        f"{side.address} took {filled.messages} messages in {FILL_MS} ms"
                    )
        cases = []
        for name in options.cases:
            cases.append(_case(name, load, *sides, options))
            print(
                cases[-1].case, cases[-1].ratio or cases[-1].measured, file=sys.stderr, flush=True
            )
        return cases


def require_java(project: Path = JAVA) -> None:
    """StrataError when something is missing that builds or runs it."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise StrataError(f"{program} is not there: Java 17 and Maven are needed")
    if not project.is_dir():
        raise StrataError(f"{project} is not there: this runs from a checkout")


class JavaProgram:
    """A Java program that answers each line by a line; killed at the block's end."""

    def __init__(
        self, directory: Path, main: str, *arguments: object, project: Path = JAVA
    ) -> None:
        self._log = directory / f"{main}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [project / "run", main, *map(str, arguments)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self) -> str:
        """StrataError when it has ended instead. RocketMQ writes some lines of its own."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(("{", "failed: ")):
                return line
        raise StrataError(f"Java ended: {self._log.read_text(errors='replace')[-2000:]}")

    def ask(self, command: str, *, fails: bool = False, **words: object) -> dict[str, Any]:
        """Mismatch for what was not answered as it should be."""
        assert self._process.stdin is not None
        given = [command, *(f"{name}={value}" for name, value in words.items())]
        self._process.stdin.write(" ".join(given) + "\n")
        self._process.stdin.flush()
        line = self.line()
        if fails:
            return {}
        if line.startswith("failed: "):
            raise Mismatch(f"{given}: {line}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> "JavaProgram":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def started_load(
    directory: Path, stack: ExitStack, main: str = "strata.load.Load", project: Path = JAVA
) -> JavaProgram:
    """Whatever Maven has to fetch and to build is there then."""
    load = stack.enter_context(JavaProgram(directory, main, project=project))
    load.ask("nothing", fails=True)
    return load


@dataclass(frozen=True, slots=True)
class Side:
    address: str
    """Where clients begin: the address of the name server."""
    broker: str
    pids: Mapping[str, int]

    def ask(
        self, load: JavaProgram, command: str, ms: int, options: Options, **words: object
    ) -> Measured:
        used, before = CpuMeter(self.pids), cpu_seconds(load.pid)
        given = {"topic": "bench", "body": options.body, "ms": ms, **words}
        found = load.ask(command, address=self.address, **given)
        cpu_s = {"client": cpu_seconds(load.pid) - before, **used.seconds()}
        count, seconds = found["messages"], found["seconds"]
        if not count:
            raise Mismatch(f"{command} of {self.address}: no message")
        cpu_us = {name: one / count * 1e6 for name, one in cpu_s.items()}
        latencies = [found.get(name) for name in ("p50_ms", "p99_ms", "p999_ms")]
        return Measured(count, seconds, count / seconds, cpu_us, *latencies)


def real_broker(directory: Path, stack: ExitStack) -> Side:
    names, ports = free_port(), free_ports(4)
    where = directory / "real"
    where.mkdir()
    broker = JavaProgram(directory, "strata.load.RealBroker", where, names, ports + 2, ports + 3)
    stack.enter_context(broker)
    broker.line()
    return Side(f"127.0.0.1:{names}", f"127.0.0.1:{ports + 2}", {"broker": broker.pid})


def _ours(directory: Path, stack: ExitStack) -> Side:
    address = f"127.0.0.1:{free_port()}"
    settings = {
        "gateway.remoting_address": address,
        "commitlog.store_host": address,
        "dispatcher.max_transfer_count_in_memory": PULLED_MESSAGES,
        "dispatcher.max_transfer_bytes_in_memory": PULLED_BYTES,
    }
    broker = stack.enter_context(Broker(directory, ROOMS, settings))
    pids = {**service_pids(broker.root), GATEWAY: broker.pids[GATEWAY]}
    return Side(address, address, pids)


def _case(name: str, load: JavaProgram, real: Side, ours: Side, options: Options) -> Case:
    work = WORKS[name]
    of_name = {"case": f"remoting-{name}", "title": work.title, "bars": work.bars}
    if name == "idle":
        return replace(_idle(load, real, ours, options), **of_name)

    def measured(side: Side, seconds: float = options.seconds) -> Callable[[], Measured]:
        return lambda: side.ask(load, work.command, round(seconds * 1000), options, **work.words)

    for side in (real, ours):  # both have their code compiled, and their first files made
        measured(side, min(options.seconds, 5.0))()
    floors, rounds = alternate(options.rounds, measured(real), measured(ours))
    more: dict[str, Any] = {}
    if rounds[0].p50_ms is not None:
        of_real = median_of(floors, "p50_ms")
        ratio = median_of(rounds, "p50_ms") / of_real
        more["measured"] = {"p50_ratio": ratio, "real_p50_ms": of_real}
    return replace(compared(REAL, floors, rounds, options.body, **more), **of_name)


def _idle(load: JavaProgram, real: Side, ours: Side, options: Options) -> Case:
    """What the processes use while so many connections each have a pull held, and send the
    heartbeats of a client."""
    found: dict[str, float] = {}
    for side in (real, ours):
        side.ask(load, "singles", 1_000, options, threads=1, topic=IDLE_TOPIC, messages=8)
        before = {name: pss_mb(pid) for name, pid in side.pids.items()}
        with child.Child(
            "remoting_clients.hold", address=side.broker, consumers=CONSUMERS, topic=IDLE_TOPIC
        ) as clients:
            clients.line()
            found |= used_while_idle(side.pids, options.seconds)
            found |= {f"{name}_more_mb": found[f"{name}_mb"] - mb for name, mb in before.items()}
            held = clients.finish("end\n")
            if held["connections"] != CONSUMERS or held["refused"]:
                raise Mismatch(f"{side.address}: {held}")
    return Case(measured=found)
