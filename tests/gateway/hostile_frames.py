"""Random and torn frames at a gateway's remoting port, in clear and in TLS, beside an honest
client.

    python -m tests.gateway.hostile_frames --frames 1000000

Requests of every code with random fields, then one frame that is nearly right, on each of many
connections. In the end the gateway is the process that it was, has grown no further than
GROWTH_BYTES, has written few lines and no traceback, and the honest client was answered all along.
"""

import argparse
import random
import ssl
import struct
import sys
import tempfile
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np
from stratamq_bench.ports import free_port
from stratamq_bench.usage import cpu_seconds
from stratamq_gateway.codes import RequestCode
from stratamq_torture.processes.hostile import resident_bytes, torn
from stratamq_torture.trial import TrialFailedError, spread

from tests.gateway.remoting import Remoting, frame, pull, request, send
from tests.security.conftest import made
from tests.support.brokers import COMMITLOG, DELIVERY, DISPATCHER, GATEWAY, INDEX, Broker

ROOMS = (COMMITLOG, DISPATCHER, INDEX, DELIVERY, GATEWAY)
OF_THE_SERVER = (39, 40, 220, 326)
ALL_CODES = [int(one) for one in RequestCode if one not in OF_THE_SERVER]
NAMES = [*"abcdefghijklm", "topic", "consumerGroup", "producerGroup", "queueId", "offset", "group"]
NAMES += ["queueOffset", "sysFlag", "commitOffset", "subscription", "expressionType", "maxMsgNums"]
NAMES += ["readQueueNums", "writeQueueNums", "perm", "attributes", "namespace", "value"]
NAMES += ["clientId", "groupName", "cleanOffset", "isForce", "index", "count"]
NAMES += ["username", "subject", "resource", "subjectFilter", "filter", "policyType"]
NAMES += ["key", "maxNum", "timestamp", "clientID", "delayLevel", "commitLogOffset", "msgId"]
VALUES = ["", "0", "1", "-1", "x", "orders", "é" * 90, str(1 << 63), str(-(1 << 63)), "true", "*"]
VALUES += ["User:", "User:a", "Topic:a", "Cluster:*"]
VALUES += ["+message.type=FIFO", "ORDER_TOPIC_CONFIG", "SQL92", "a > 1"]
BODIES = [
    b"",
    b"{}",
    b"[]",
    b"null",
    b"\xff" * 9,
    b'{"mqSet":[{}]}',
    b'{"clientID":"c"}',
    b'{"groupName":"g"}',
    b'{"username":["a"],"password":1,"userType":2,"userStatus":3}',
    b'{"policies":[{"policyType":1,"entries":[{"resource":1,"actions":2,"sourceIps":3}]}]}',
    b'{"policies":[{"entries":[{"resource":"Topic:a","actions":["Pub"]}]}]}',
    b"{" * 999,
]
GROWTH_BYTES = 96 << 20
ONEWAY = 2
MOST_REQUESTS = 6
"""Of one connection, before its torn frame."""
ANSWER_S, LOOK_S = 0.1, 0.002
TLS_PART = 0.1
TASK_FRAMES = 2_000
LOG_BYTES, LOG_BYTES_A_SECOND = 4_000, 3_000
WARM_UP = 0.05
"""After this part of the frames what the gateway takes is its usual size."""
HONEST_S = 0.02


class Task(NamedTuple):
    address: str
    authority: str
    """The file of the certificate authority."""
    seed: int
    frames: int


def random_fields(chance: random.Random) -> dict[str, str]:
    names = chance.sample(NAMES, chance.randrange(len(NAMES)))
    return {name: chance.choice(VALUES) for name in names} | {"suspendTimeoutMillis": "0"}


def random_request(chance: random.Random, opaque: int) -> tuple[bytes, bool]:
    """And whether it is answered."""
    code = chance.choice(ALL_CODES) if chance.random() < 0.95 else chance.randrange(1 << 15)
    flag = ONEWAY if chance.random() < 0.1 else 0
    encode = request if chance.random() < 0.5 else _binary
    return encode(code, random_fields(chance), chance.choice(BODIES), opaque, flag), not flag


def _binary(code: int, fields: dict[str, str], body: bytes, opaque: int, flag: int) -> bytes:
    packed = b"".join(
        struct.pack(">H", len(name)) + name + struct.pack(">i", len(value)) + value
        for name, value in ((one.encode(), fields[one].encode()) for one in fields)
    )
    head = struct.pack(">hBhiiii", code, 0, 479, opaque, flag, 0, len(packed))
    return frame(head + packed, body, 1)


def random_end(chance: random.Random) -> tuple[str, bytes]:
    """What a connection sends last, and its kind. Most of it is no frame."""
    good, _ = random_request(chance, 1)
    kind = chance.randrange(8)
    if kind == 0:
        return "random bytes", chance.randbytes(chance.randrange(1, 300))
    if kind == 1:
        length = chance.choice([0, 3, 4, 1 << 24, 1 << 31, (1 << 32) - 1])
        return "lengths", struct.pack(">I", length) + good[4:]
    if kind == 2:
        head = chance.randbytes(chance.randrange(60))
        return "random headers", frame(head, b"", chance.choice((0, 1, chance.randrange(256))))
    if kind == 3:
        return "deep JSON", frame(b"[" * chance.choice([10, 1_000, 100_000]))
    if kind == 4:
        head = struct.unpack_from(">I", good, 4)[0]
        return "torn headers", frame(torn(good[8 : 8 + (head & 0xFFFFFF)], chance), b"", head >> 24)
    return "torn frames", torn(good, chance)


class Attacked(NamedTuple):
    sent: Counter[str]
    """By its kind."""
    failure: str = ""
    """Why the task ended early: an answer that is none, or a mistake of this program."""


def attack(task: Task) -> Attacked:
    chance, met = random.Random(task.seed), Counter[str]()
    tls = ssl.create_default_context(cafile=task.authority)
    tls.check_hostname = False
    try:
        while sum(met.values()) < task.frames:
            context = tls if chance.random() < TLS_PART else None
            with suppress(OSError, EOFError), Remoting(task.address, context) as peer:
                _converse(peer, chance, met)
    except Exception:  # noqa: BLE001 - one task's failure must not end the others'
        return Attacked(met, f"seed {task.seed}: {traceback.format_exc()}")
    return Attacked(met)


def _converse(peer: Remoting, chance: random.Random, met: Counter[str]) -> None:
    count = chance.randrange(MOST_REQUESTS + 1)
    asked = [random_request(chance, number) for number in range(count)]
    met["random fields"] += len(asked)
    kind, end = random_end(chance)
    met[kind] += 1
    peer.socket.sendall(b"".join(one for one, _ in asked))
    peer.socket.settimeout(ANSWER_S)
    if chance.random() < 0.8:
        left = sum(answered for _, answered in asked)
        while left:
            header, _ = peer.receive()
            left -= header["flag"] & 1
    peer.socket.sendall(end)
    if chance.random() < 0.5:
        peer.socket.settimeout(LOOK_S)
    else:
        peer.socket.shutdown(1)
    while peer.socket.recv(1 << 16):
        pass


class Honest(threading.Thread):
    """Sends and pulls, one after the other, until it is to stop."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._over = threading.Event()
        self.took_ms: list[float] = []
        self.failure = ""

    def run(self) -> None:
        try:
            with Remoting(self._address) as client:
                while not self._over.wait(HONEST_S):
                    begin = perf_counter()
                    sent = send(client, "well", b"x")
                    pulled = pull(client, "well", 0)
                    self.took_ms.append((perf_counter() - begin) * 1e3)
                    if sent.code or pulled.code not in (0, 19):
                        raise AssertionError(f"{sent} {pulled.code} {pulled.remark}")
        except (AssertionError, OSError, EOFError) as error:
            self.failure = repr(error)

    def stop(self) -> None:
        self._over.set()
        self.join()


@dataclass
class Found:
    frames: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    processor_s: float = 0.0
    """The gateway's."""
    grown_bytes: int = 0
    log_bytes: int = 0
    tracebacks: int = 0
    same_process: bool = False
    honest_ms: list[float] = field(default_factory=list)
    honest_failure: str = ""
    failures: list[str] = field(default_factory=list)
    """Why tasks have ended too early."""

    def lines(self) -> Iterator[str]:
        yield f"{sum(self.frames.values())} frames in {self.seconds:.0f} s"
        yield from (f"  {self.frames[kind]:9d} {kind}" for kind in sorted(self.frames))
        yield f"processor time of the gateway: {self.processor_s:.0f} s"
        yield f"growth: {self.grown_bytes / (1 << 20):.1f} MiB; its log: {self.log_bytes} bytes"
        yield f"tracebacks: {self.tracebacks}; the same process: {self.same_process}"
        p50, p99, most = np.percentile(self.honest_ms or [0], (50, 99, 100))
        count = len(self.honest_ms)
        yield f"honest: {count} times, p50 {p50:.1f}, p99 {p99:.1f}, longest {most:.1f} ms"
        yield f"failure of the honest client: {self.honest_failure or 'none'}"
        yield f"tasks that ended early: {len(self.failures)}"
        yield from self.failures

    @property
    def well(self) -> bool:
        grown = self.grown_bytes > GROWTH_BYTES
        flooded = self.log_bytes > LOG_BYTES + LOG_BYTES_A_SECOND * self.seconds
        faults = (grown, flooded, self.tracebacks, self.honest_failure, self.failures)
        return self.same_process and not any(faults)


def run_frames(
    broker: Broker,
    address: str,
    authority: Path,
    frames: int,
    seed: int,
    jobs: int,
    seconds: float = 3_600.0,
) -> Found:
    """Nothing new begins after `seconds`."""
    pid, found, honest = broker.pid(GATEWAY), Found(), Honest(address)
    honest.start()
    begin, before = perf_counter(), 0
    count = -(-frames // TASK_FRAMES)
    of_one = min(frames, TASK_FRAMES)
    tasks = (
        Task(address, str(authority), seed * count + one, of_one)
        for one in range(count)
        if perf_counter() < begin + seconds
    )
    try:
        for number, (sent, failure) in enumerate(spread(attack, tasks, jobs)):
            found.frames += sent
            found.failures += [failure] if failure else []
            if not before and number + 1 >= WARM_UP * count:
                before = resident_bytes(pid)
    except (BrokenProcessPool, TrialFailedError) as error:  # a task's process, or the gateway's
        found.failures.append(repr(error))
    honest.stop()
    found.seconds = perf_counter() - begin
    found.honest_ms, found.honest_failure = honest.took_ms, honest.failure
    found.same_process = broker.running(GATEWAY) and broker.pid(GATEWAY) == pid
    if found.same_process:
        found.grown_bytes = resident_bytes(pid) - before
        found.processor_s = cpu_seconds(pid)
    said = broker.output(GATEWAY)
    found.log_bytes, found.tracebacks = len(said), said.count("Traceback")
    return found


@contextmanager
def hostile_broker(directory: Path) -> Iterator[tuple[Broker, str, Path]]:
    """A broker with TLS, its gateway's address, and the certificate of its authority."""
    pki = made(directory / "pki")
    address = f"127.0.0.1:{free_port()}"
    settings = pki.settings(
        f"gateway.remoting_address={address}", f"commitlog.segment_bytes={16 << 20}"
    )
    with Broker(directory / "store", directory / "logs", settings) as broker:
        yield broker.start(ROOMS), address, pki.directory / "ca.pem"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=3_600.0)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="stratamq-frames-") as directory,
        hostile_broker(Path(directory)) as (broker, address, authority),
    ):
        found = run_frames(
            broker, address, authority, given.frames, given.seed, given.jobs, given.seconds
        )
    sys.stdout.write("\n".join(found.lines()) + "\n")
    return 0 if found.well else 1


if __name__ == "__main__":
    sys.exit(main())
