"""How long no broker answers PUT_OK after a master is killed, and during a switchover.

Three members with an agent each, over an etcd of one member, all on this machine. A producer sends
one message after the other to the current master; the result is the longest time between two
answers around each change. In the end every message that was answered PUT_OK is there once.
"""

import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from stratamq.client import Client, Message, connect
from stratamq.errors import StrataError
from stratamq_bench.broker import Broker
from stratamq_bench.checks import Mismatch
from stratamq_bench.etcd_server import Etcd
from stratamq_bench.ports import free_port
from stratamq_bench.report import Bar, Case
from stratamq_bench.usage import cpu_seconds, pss_mb

MEMBERS = ("a", "b", "c")
ROOMS = ("commitlog", "ha", "dispatcher", "agent")
SETTLED_S = 3.0
LONGEST_S = 300.0
TOPIC = "failover"


@dataclass(frozen=True, slots=True)
class FailoverOptions:
    rounds: int = 20
    ttl_ms: int = 30_000
    loop_interval_ms: int = 10_000


def run_failover(directory: Path, options: FailoverOptions) -> list[Case]:
    """Everything that is written is below `directory`. StrataError, Mismatch."""
    if shutil.which("etcd") is None:
        raise StrataError("etcd is not installed (Debian: etcd-server)")
    with ExitStack() as stack:
        etcd = stack.enter_context(closing(Etcd(directory)))
        members = _Members(directory, options, etcd.port)
        stack.callback(members.stop)
        members.until(lambda: members.leader() == "a", "the configured master leads")
        members.until(members.know_each_other, "all agents are known")
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


class _Members:
    def __init__(self, directory: Path, options: FailoverOptions, etcd: int) -> None:
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
        self.until(lambda: self._follows(before, to), f"{to} follows {before}")
        with producing.gap() as gap, connect(self.brokers[before].root, timeout_s=30) as client:
            client.admin.switchover(to)
            self.until(lambda: self.leader() == to, f"{to} leads")
        return gap[0]

    def failed_over(self, producing: "_Producing") -> float:
        """The same; the killed one is back when this returns."""
        before = self.leader()
        others = [name for name in MEMBERS if name != before]
        for name in others:
            self.until(lambda name=name: self._follows(before, name), f"{name} follows {before}")
        broker = self.brokers[before]
        with producing.gap() as gap:
            for room in ROOMS:
                broker.kill(room)
            self.until(lambda: self.leader() in others, "another member leads")
        for room in ROOMS:
            broker.start(room)
        self.until(lambda: self._follows(self.leader(), before), f"{before} is back")
        return gap[0]

    def client(self) -> Client:
        return connect(
            ",".join(self.addresses.values()), timeout_s=LONGEST_S, retry_timeout_s=LONGEST_S
        )

    def until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LONGEST_S
        while not done():
            if time.monotonic() > deadline:
                raise StrataError(f"not within {LONGEST_S:g} s: {what}")
            time.sleep(0.05)

    def stop(self) -> None:
        for broker in self.brokers.values():
            broker.stop()

    def _follows(self, master: str, slave: str) -> bool:
        if not master:
            return False
        try:
            with connect(self.brokers[master].root, timeout_s=5) as client:
                slaves = client.admin.replication_state().slaves
        except StrataError:
            return False
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
        self._members.until(lambda: time.monotonic() - self._last < 0.2, "messages are answered")
        time.sleep(SETTLED_S)
        self._longest = 0.0
        yield found
        count = len(self._answered)
        self._members.until(lambda: len(self._answered) > count + 10, "messages are answered again")
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


def _idle(members: _Members, etcd: Etcd, options: FailoverOptions) -> Case:
    """What agents use while nothing happens, over a few of their rounds."""
    seconds = 3 * options.loop_interval_ms / 1000
    pids = [broker.pids["agent"] for broker in members.brokers.values()]
    used, asked = sum(map(cpu_seconds, pids)), etcd.requests()
    time.sleep(seconds)
    cpu = (sum(map(cpu_seconds, pids)) - used) / len(pids) / seconds
    a_minute = (etcd.requests() - asked) / seconds * 60
    return Case(
        case="failover: an agent in quiet",
        messages_per_s=0.0,
        bytes_per_s=0.0,
        floor=None,
        ratio=None,
        cpu_us_per_message={},
        pss_mb=statistics.mean(map(pss_mb, pids)),
        measured={"cpu_percent": 100 * cpu, "requests_a_minute": a_minute / len(pids)},
        note="requests to etcd, of one agent on average",
    )


def _case(what: str, seconds: list[float], limit: float, messages: int) -> Case:
    return Case(
        case=f"failover: {what}",
        messages_per_s=0.0,
        bytes_per_s=0.0,
        floor=None,
        ratio=None,
        cpu_us_per_message={},
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
