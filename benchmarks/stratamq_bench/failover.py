"""How long no broker answers PUT_OK after a master is killed, and during a switchover.

Three members with an agent each, over an etcd of one member, all on this machine. A producer sends
one message after the other to the current master; the result is the longest time between two
answers around each change. In the end every message that was answered PUT_OK is there once.
"""

import shutil
import statistics
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from stratamq.client import Client, Message, connect
from stratamq.errors import StrataError
from stratamq_bench.broker import Broker, until
from stratamq_bench.load import Mismatch
from stratamq_bench.ports import free_port
from stratamq_bench.report import Bar, Case
from stratamq_bench.usage import cpu_seconds, pss_mb

MEMBERS = ("a", "b", "c")
ROOMS = ("commitlog", "ha", "dispatcher", "agent")
SETTLED_S = 3.0
LONGEST_S, LOOK_S = 300.0, 0.05
TOPIC = "failover"
_COUNTED = ('grpc_method="Range"', 'grpc_method="Txn"')


@dataclass(frozen=True, slots=True)
class Options:
    rounds: int
    ttl_ms: int
    loop_interval_ms: int


def measure(directory: Path, options: Options) -> list[Case]:
    """Everything that is written is below `directory`. StrataError, Mismatch."""
    if shutil.which("etcd") is None:
        raise StrataError("etcd is not installed (Debian: etcd-server)")
    with ExitStack() as stack:
        etcd = stack.enter_context(closing(Etcd(directory)))
        members = _Members(directory, options, etcd.port)
        stack.callback(members.stop)
        until(lambda: members.leader() == "a", "the configured master leads", LONGEST_S, LOOK_S)
        until(members.know_each_other, "all agents are known", LONGEST_S, LOOK_S)
        producing = stack.enter_context(_Producing(members))
        idle = _idle(members, etcd, options)
        switched = [members.switched_over(producing) for _ in range(options.rounds)]
        failed = [members.failed_over(producing) for _ in range(options.rounds)]
        answered = producing.stop()
        _check(members, answered)
    longest = (options.ttl_ms + 10_000) / 1000
    return [
        _case("a switchover", switched, 2.0, len(answered)),
        _case(f"a killed master, ttl {options.ttl_ms / 1000:g} s", failed, longest, len(answered)),
        idle,
    ]


class Etcd:
    """An etcd of one member on this machine; Debian's `etcd-server` has the program.

    It is over a directory of its own below `directory`. `port`: where its clients connect. `tls`:
    etcd's options for it; without them clients come in clear.
    """

    def __init__(self, directory: Path, tls: Sequence[str] = ()) -> None:
        scheme = "https" if tls else "http"
        self.port, peers = free_port(), free_port()
        self._data = directory / "etcd"
        self._command = [
            "etcd",
            f"--data-dir={self._data}",
            f"--listen-client-urls={scheme}://127.0.0.1:{self.port}",
            f"--advertise-client-urls={scheme}://127.0.0.1:{self.port}",
            f"--listen-peer-urls=http://127.0.0.1:{peers}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}",
            f"--initial-cluster=default=http://127.0.0.1:{peers}",
            *tls,
        ]
        self._start()

    def _start(self) -> None:
        silent = subprocess.DEVNULL
        self._process = subprocess.Popen(self._command, stdout=silent, stderr=silent)

    def copy(self, to: Path) -> None:
        """Its directory as it is now, while it is away for a moment."""
        self.close()
        shutil.copytree(self._data, to)
        self._start()

    def put_back(self, copy: Path) -> None:
        """It is killed, and goes on with that copy of its directory."""
        self.close()
        shutil.rmtree(self._data)
        shutil.copytree(copy, self._data)
        self._start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def requests(self) -> float:
        """How many requests it has answered."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(
            float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith("grpc_server_handled_total") and any(one in line for one in _COUNTED)
        )

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class _Members:
    def __init__(self, directory: Path, options: Options, etcd: int) -> None:
        ports = {name: free_port() for name in MEMBERS}
        named = ",".join(f"{name}=127.0.0.1:{port}" for name, port in ports.items())
        common: dict[str, object] = {
            "commitlog.segment_bytes": 16 << 20,
            "commitlog.followers": "dispatcher",
            "commitlog.lease": "true",
            "commitlog.wait_for_peers": "true",
            "ha.members": named,
            "agent.store": f"etcd://127.0.0.1:{etcd}",
            "agent.ttl_ms": options.ttl_ms,
            "agent.loop_interval_ms": options.loop_interval_ms,
            "agent.retry_timeout_ms": (options.ttl_ms - options.loop_interval_ms) // 2,
        }
        # Addresses stay what they are when a member is started again.
        self.addresses = {name: f"127.0.0.1:{free_port()}" for name in MEMBERS}
        self.brokers: dict[str, Broker] = {}
        for number, name in enumerate(MEMBERS):
            settings = common | {
                "commitlog.role": "SLAVE" if number else "SYNC_MASTER",
                "commitlog.broker_id": number,
                "commitlog.address": self.addresses[name],
                "ha.replication_address": f"127.0.0.1:{ports[name]}",
            }
            self.brokers[name] = Broker(directory, (), settings, name)
        for broker in self.brokers.values():
            for room in ROOMS:
                broker.start(room)

    def leader(self) -> str:
        for broker in self.brokers.values():
            try:
                with connect(broker.root, timeout_s=2) as client:
                    return client.admin.election().leader
            except StrataError:
                continue
        return ""

    def know_each_other(self) -> bool:
        with connect(self.brokers["a"].root, timeout_s=5) as client:
            return len(client.admin.election().agents) == len(MEMBERS)

    def switched_over(self, producing: "_Producing") -> float:
        """Seconds without an answer."""
        before = self.leader()
        to = MEMBERS[(MEMBERS.index(before) + 1) % len(MEMBERS)]
        until(lambda: self._follows(before, to), f"{to} follows {before}", LONGEST_S, LOOK_S)
        with producing.gap() as gap, connect(self.brokers[before].root, timeout_s=30) as client:
            client.admin.switchover(to)
            until(lambda: self.leader() == to, f"{to} leads", LONGEST_S, LOOK_S)
        return gap[0]

    def failed_over(self, producing: "_Producing") -> float:
        """The same; the killed one is back when this returns."""
        before = self.leader()
        others = [name for name in MEMBERS if name != before]
        for name in others:
            until(
                lambda name=name: self._follows(before, name),
                f"{name} follows {before}",
                LONGEST_S,
                LOOK_S,
            )
        broker = self.brokers[before]
        with producing.gap() as gap:
            for room in ROOMS:
                broker.kill(room)
            until(lambda: self.leader() in others, "another member leads", LONGEST_S, LOOK_S)
        for room in ROOMS:
            broker.start(room)
        until(lambda: self._follows(self.leader(), before), f"{before} is back", LONGEST_S, LOOK_S)
        return gap[0]

    def client(self) -> Client:
        return connect(
            ",".join(self.addresses.values()), timeout_s=LONGEST_S, retry_timeout_s=LONGEST_S
        )

    def stop(self) -> None:
        for broker in self.brokers.values():
            broker.stop()

    def _follows(self, master: str, slave: str) -> bool:
        if not master:
            return False
        with connect(self.brokers[master].root, timeout_s=5) as client:
            slaves = client.admin.replication_state().slaves
        return any(one.member == slave and one.connected and one.counts for one in slaves)


class _Producing:
    """Sends until it is stopped; `answered`: bodies with PUT_OK."""

    def __init__(self, members: _Members) -> None:
        self._members = members
        self._answered: list[bytes] = []
        self._last = time.monotonic()
        self._longest = 0.0
        self._stopped = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="producing")

    @contextmanager
    def gap(self) -> Iterator[list[float]]:
        """While the body runs, and until messages are answered again: the longest time between
        two answers, put into the list."""
        found: list[float] = []
        until(
            lambda: time.monotonic() - self._last < 0.2, "messages are answered", LONGEST_S, LOOK_S
        )
        time.sleep(SETTLED_S)
        self._longest = 0.0
        yield found
        count = len(self._answered)
        until(
            lambda: len(self._answered) > count + 10,
            "messages are answered again",
            LONGEST_S,
            LOOK_S,
        )
        found.append(self._longest)

    def stop(self) -> list[bytes]:
        self._stopped.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self._answered

    def _run(self) -> None:
        number = 0
        try:
            with self._members.client() as client:
                while not self._stopped.is_set():
                    body = b"%d" % number
                    number += 1
                    if client.send_message(Message(TOPIC, body)).status.name == "PUT_OK":
                        now = time.monotonic()
                        self._longest = max(self._longest, now - self._last)
                        self._last = now
                        self._answered.append(body)
        except StrataError as error:
            self._failure = error

    def __enter__(self) -> "_Producing":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()


def _idle(members: _Members, etcd: Etcd, options: Options) -> Case:
    """What agents use while nothing happens, over a few of their rounds."""
    seconds = 3 * options.loop_interval_ms / 1000
    pids = [broker.pids["agent"] for broker in members.brokers.values()]
    used, asked = sum(map(cpu_seconds, pids)), etcd.requests()
    time.sleep(seconds)
    cpu = (sum(map(cpu_seconds, pids)) - used) / len(pids) / seconds
    a_minute = (etcd.requests() - asked) / seconds * 60
    return Case(
        case="failover: an agent in quiet",
        pss_mb=statistics.mean(map(pss_mb, pids)),
        measured={"cpu_percent": 100 * cpu, "requests_a_minute": a_minute / len(pids)},
        note="requests to etcd, of one agent on average",
    )


def _case(what: str, seconds: list[float], limit: float, messages: int) -> Case:
    return Case(
        case=f"failover: {what}",
        bars=(Bar("worst_s", "at most", limit),),
        measured={"median_s": statistics.median(seconds), "worst_s": max(seconds)},
        messages=messages,
    )


def _check(members: _Members, answered: list[bytes]) -> None:
    """Mismatch."""
    with members.client() as client:
        found = [one.body for one in client.consume(TOPIC)]
    if len(found) != len(set(found)):
        raise Mismatch(f"{len(found) - len(set(found))} messages are there twice")
    if lost := set(answered) - set(found):
        raise Mismatch(f"{len(lost)} of {len(answered)} messages with PUT_OK are lost")
