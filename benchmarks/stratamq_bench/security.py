"""What TLS and permissions cost: the log alone, three brokers in turn, over TCP of this machine.

    in clear    TLS    TLS, and each call and topic asked for by a token

Ratios are of the medians to those in clear, of the same run.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from stratamq.cli.tls import BROKER, HERE, Authority
from stratamq.client import Client, Credentials, TlsFiles, connect
from stratamq.errors import StrataError
from stratamq.rpc.endpoints import Endpoints
from stratamq.rpc.permission_file import Permissions, dump, grant_of
from stratamq.rpc.rooms import COMMITLOG
from stratamq.service.tls import MEMBER
from stratamq_bench.broker import START_TIMEOUT_S, Broker
from stratamq_bench.report import Case, Floor, Measured, cpu_of, measured, median_of
from stratamq_bench.usage import cpu_seconds, pss_mb

TOPIC, USER = "bench", "bench"
IN_CLEAR, TLS, ALL = "in clear", "TLS", "TLS and permissions"


@dataclass(frozen=True, slots=True)
class Options:
    rounds: int
    streamed: int
    called: int
    body: int


def measure(directory: Path, options: Options) -> list[Case]:
    """Everything that is written is below `directory`. StrataError."""
    with ExitStack() as stack:
        sides = _sides(directory, stack)
        cases = []
        for what, send, count in (
            ("fast stream", _streamed, options.streamed),
            ("unary calls, one at a time", _called, options.called),
        ):
            found: dict[str, list[Measured]] = {name: [] for name in sides}
            for turn in range(options.rounds + 1):
                for name, side in sides.items():
                    one = side.measured(send, count, options.body)
                    if turn:  # the first one warms up
                        found[name].append(one)
            cases += [_case(what, name, found, sides[name], options) for name in (TLS, ALL)]
    return cases


class _Side:
    """One broker, and a client of it."""

    def __init__(self, broker: Broker, credentials: Credentials, stack: ExitStack) -> None:
        self.pid = broker.pids[COMMITLOG]
        address = Endpoints(broker.root).listening(COMMITLOG)
        self._client = stack.enter_context(
            connect(
                f"{COMMITLOG}={address}", credentials=credentials, retry_timeout_s=START_TIMEOUT_S
            )
        )

    def measured(
        self, send: Callable[[Client, int, bytes], None], count: int, body: int
    ) -> Measured:
        began, used = time.perf_counter(), cpu_seconds(self.pid)
        send(self._client, count, bytes(body))
        seconds = time.perf_counter() - began
        return measured(count, seconds, {"log": cpu_seconds(self.pid) - used})


def guarded(directory: Path, topics: list[str]) -> tuple[dict[str, object], Credentials]:
    """Settings of a broker with TLS and permissions, and what one user shows, who may produce to
    the topics."""
    pki = directory / "pki"
    authority = Authority(pki)
    authority.make()
    authority.issue(BROKER, MEMBER, list(HERE), 2)
    access, ca = directory / "access.json", pki / "ca.pem"
    permissions = Permissions(rules=[grant_of(USER, "produce", f"topic:{name}") for name in topics])
    token = permissions.add_token(USER, "")
    access.write_bytes(dump(permissions))
    settings: dict[str, object] = {
        "tls.ca": ca,
        "tls.certificate": pki / f"{BROKER}.pem",
        "tls.key": pki / f"{BROKER}.key",
        "access.file": access,
    }
    return settings, Credentials(TlsFiles(ca), token)


def _sides(directory: Path, stack: ExitStack) -> dict[str, _Side]:
    settings, credentials = guarded(directory, [TOPIC])
    encrypted = {name: value for name, value in settings.items() if name.startswith("tls.")}
    common: dict[str, object] = {
        "commitlog.flush_disk_type": "ASYNC_FLUSH",
        "commitlog.followers": "",
    }
    ways: dict[str, tuple[dict[str, object], Credentials]] = {
        IN_CLEAR: ({}, Credentials()),
        TLS: (encrypted, Credentials(credentials.tls)),
        ALL: (settings, credentials),
    }
    sides = {}
    for name, (settings, credentials) in ways.items():
        folder = name.replace(" ", "-")
        broker = Broker(directory, (COMMITLOG,), {**common, **settings}, folder)
        stack.callback(broker.stop)
        sides[name] = _Side(broker, credentials, stack)
    return sides


def _streamed(client: Client, count: int, body: bytes) -> None:
    with client.producer() as producer:
        for _ in range(count):
            producer.send(TOPIC, body)
        producer.flush()


def _called(client: Client, count: int, body: bytes) -> None:
    for _ in range(count):
        if client.send(TOPIC, body).status.name != "PUT_OK":
            raise StrataError("a message was not stored")


def _case(
    what: str, name: str, found: dict[str, list[Measured]], side: _Side, options: Options
) -> Case:
    clear, mine = found[IN_CLEAR], found[name]
    rate, floor = (median_of(rounds, "messages_per_s") for rounds in (mine, clear))
    return Case(
        case=f"security: {what}, {name}",
        messages_per_s=rate,
        bytes_per_s=rate * options.body,
        floor=Floor(IN_CLEAR, floor, cpu_of(clear)),
        ratio=rate / floor,
        cpu_us_per_message=cpu_of(mine),
        pss_mb=pss_mb(side.pid),
    )
