"""RocketMQ 5's gRPC protocol at a broker and its gateway, and at RocketMQ's own proxy, by turns.

One client for all of them (h2load, in C), which sends one recorded request again and again; sync
flush. The floor of each case is RocketMQ, or our own unary `Append`.
"""

import itertools
import re
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import grpc

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.api.v1 import commitlog_pb2
from stratamq.client.operations import wire_message
from stratamq.errors import StrataError
from stratamq.rpc import discovery
from stratamq_bench import child
from stratamq_bench.broker import FOLLOWERS, Broker
from stratamq_bench.load import Mismatch
from stratamq_bench.plan import alternate, percentiles
from stratamq_bench.ports import free_port, free_ports
from stratamq_bench.remoting import JAVA, REAL, JavaProgram, Options
from stratamq_bench.report import Bar, Case, Measured, at_least, compared, median_of
from stratamq_bench.usage import CpuMeter, service_pids, used_while_idle

GATEWAY = "gateway"
ROOMS = ("commitlog", *FOLLOWERS, "delivery", GATEWAY)
PROXY = f"{REAL}, its proxy"
APPEND = "unary Append"
SEND = "/apache.rocketmq.v2.MessagingService/SendMessage"
TOPIC, QUEUES = "bench", 4
CLIENTS = 500
WARM_UP_S = 5
DEADLINE_S = 60
_COUNTED = re.compile(r"status codes: (\d+) 2xx, 0 3xx, 0 4xx, 0 5xx")
_ids = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Work:
    title: str
    connections: int
    streams: int
    floor: str
    bars: tuple[Bar, ...]


WORKS = {
    "sends": Work("SendMessage, 64 calls in flight", 4, 16, PROXY, at_least(2.0)),
    "one": Work(
        "SendMessage, one call in flight", 1, 1, PROXY, (Bar("p50_ratio", "at most", 1.5),)
    ),
    "append": Work("SendMessage beside our unary Append", 4, 16, APPEND, at_least(5.0)),
    "idle": Work(
        "500 consumers that wait",
        CLIENTS,
        1,
        "",
        (Bar("gateway_mb", "at most", 200), Bar("gateway_cpu_percent", "at most", 1)),
    ),
}


def measure(directory: Path, options: Options) -> list[Case]:
    """Everything that is written is below `directory`. StrataError, Mismatch."""
    for program in ("java", "mvn", "h2load"):
        if shutil.which(program) is None:
            raise StrataError(
                f"{program} is not there: Java 17, Maven and h2load (Debian's nghttp2-client) "
                "are needed"
            )
    if not JAVA.is_dir():
        raise StrataError(f"{JAVA} is not there: this runs from a checkout")
    with ExitStack() as stack:
        ours, append = _ours(directory, options, stack)
        sides = {APPEND: append}
        if any(WORKS[name].floor == PROXY for name in options.cases):
            sides[PROXY] = _real(directory, options, stack)
        cases = []
        for name in options.cases:
            made = _idle(ours, options) if name == "idle" else _case(name, sides, ours, options)
            work = WORKS[name]
            cases.append(replace(made, case=f"gateway-{name}", title=work.title, bars=work.bars))
            print(cases[-1].case, made.ratio or made.measured, file=sys.stderr, flush=True)
        return cases


@dataclass(frozen=True, slots=True)
class _Side:
    address: str
    pids: Mapping[str, int]
    path: str
    request: Path
    """What h2load sends: one frame of gRPC."""

    def load(self, seconds: float, connections: int, streams: int) -> Measured:
        """Mismatch: a call was not answered."""
        times = self.request.with_suffix(".times")
        times.unlink(missing_ok=True)
        headers = (
            "content-type: application/grpc",
            "te: trailers",
            f"x-mq-client-id: {next(_ids)}",
        )
        command = [
            "h2load",
            "-c",
            connections,
            "-m",
            streams,
            "-D",
            round(seconds),
            "-d",
            self.request,
        ]
        command += [word for one in headers for word in ("-H", one)]
        command += ["--log-file", times, f"http://{self.address}{self.path}"]
        used, began = CpuMeter(self.pids), time.perf_counter()
        done = subprocess.run([*map(str, command)], capture_output=True, text=True)
        took_s = time.perf_counter() - began
        cpu_s = used.seconds()
        counted = _COUNTED.search(done.stdout)
        count = int(counted[1]) if counted else 0
        if done.returncode or not count:
            raise Mismatch(f"h2load at {self.address}: {done.stdout[-500:]}{done.stderr[-500:]}")
        took_ms = sorted(int(line.split()[2]) / 1e3 for line in times.read_text().splitlines())
        cpu_us = {name: one / count * 1e6 for name, one in cpu_s.items()}
        return Measured(count, took_s, count / took_s, cpu_us, *percentiles(took_ms))


def _real(directory: Path, options: Options, stack: ExitStack) -> _Side:
    names, ports = free_port(), free_ports(6)
    where = directory / "real"
    where.mkdir()
    program = JavaProgram(
        directory, "strata.load.RealProxy", where, names, *(ports + one for one in range(2, 6))
    )
    stack.enter_context(program).line()
    with JavaProgram(directory, "strata.load.Load") as load:
        load.ask(
            "singles", address=f"127.0.0.1:{names}", topic=TOPIC, body=8, ms=60_000, threads=1,
            messages=QUEUES,
        )  # fmt: skip
    address = f"127.0.0.1:{ports + 4}"
    return _Side(address, {"broker": program.pid}, SEND, _recorded(directory, options))


def _ours(directory: Path, options: Options, stack: ExitStack) -> tuple[_Side, _Side]:
    """The gateway, and the log."""
    address = f"127.0.0.1:{free_port()}"
    settings = {"gateway.grpc_address": address, "commitlog.default_topic_queues": QUEUES}
    broker = stack.enter_context(Broker(directory, ROOMS, settings))
    pids = {**service_pids(broker.root), GATEWAY: broker.pids[GATEWAY]}
    message = wire_message(commitlog_pb2.Message, topic=TOPIC, body=b"x" * options.body)
    request = commitlog_pb2.AppendRequest(messages=[message])
    log = discovery.read(broker.root, "commitlog").address
    append = _Side(
        log,
        pids,
        "/stratamq.api.v1.CommitLogService/Append",
        _framed(directory / "append", request.SerializeToString()),
    )
    return _Side(address, pids, SEND, _recorded(directory, options)), append


def _recorded(directory: Path, options: Options) -> Path:
    """The request as RocketMQ's Java client makes it."""
    system = pb.SystemProperties(
        message_id="01A1B2C3D4E5F6000000000000000000AB",
        message_type=pb.NORMAL,
        body_encoding=pb.IDENTITY,
        born_host="client",
        tag="TagA",
        keys=["order-1"],
    )
    system.born_timestamp.FromMilliseconds(1_795_000_000_123)
    topic, body = pb.Resource(name=TOPIC), b"x" * options.body
    message = pb.Message(topic=topic, system_properties=system, body=body)
    request = pb.SendMessageRequest(messages=[message])
    return _framed(directory / "send", request.SerializeToString())


def _framed(path: Path, data: bytes) -> Path:
    path.write_bytes(struct.pack(">BI", 0, len(data)) + data)
    return path


def _sent(side: _Side) -> None:
    """One call, whose answer is looked at: h2load sees no statuses of gRPC. Mismatch."""
    with grpc.insecure_channel(side.address) as channel:
        call = channel.unary_unary(SEND, None, pb.SendMessageResponse.FromString)
        data = side.request.read_bytes()[5:]
        answer = call(data, timeout=DEADLINE_S, metadata=(("x-mq-client-id", "bench"),))
    if answer.status.code != pb.OK:
        raise Mismatch(f"{side.address}: {answer}")


def _case(name: str, sides: Mapping[str, _Side], ours: _Side, options: Options) -> Case:
    work = WORKS[name]
    floor = sides[work.floor]
    for side in (floor, ours):  # both have their code compiled, and their first files made
        if side.path == SEND:
            _sent(side)
        side.load(WARM_UP_S, work.connections, work.streams)
    given = options.seconds, work.connections, work.streams
    floors, rounds = alternate(
        options.rounds, partial(floor.load, *given), partial(ours.load, *given)
    )
    for side in (floor, ours):
        if side.path == SEND:
            _sent(side)
    of_floor = median_of(floors, "p50_ms")
    ratio = median_of(rounds, "p50_ms") / of_floor
    more = {"p50_ratio": ratio, "floor_p50_ms": of_floor}
    return compared(work.floor, floors, rounds, options.body, measured=more)


def _idle(ours: _Side, options: Options) -> Case:
    """What the gateway uses while so many consumers hold a call, and send heartbeats."""
    _sent(ours)
    with child.Child("gateway_clients.hold", address=ours.address, clients=CLIENTS) as clients:
        clients.line()
        found = used_while_idle(ours.pids, options.seconds)
        held = clients.finish("end\n")
    if held != {"held": CLIENTS}:
        raise Mismatch(f"{ours.address}: {held}")
    return Case(measured=found)
