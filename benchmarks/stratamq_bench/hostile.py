"""What a client waits beside hostile ones: a broker that asks who calls, over TLS, and attackers
that have no permission, in a process of their own.

    quiet ─ attack ─ elsewhere ─ quiet ─ …    the client sends at a fixed rate all the time

By turns, so that what else the machine does is in all. The processes share the machine's
processors: `elsewhere` the same attackers attack a gRPC server of another process that offers
nothing (`bare_server`), and what the client waits then is for the processors alone. `p99_ratio` is
that of the attack to quiet, with everything in it; `p99_over_elsewhere` that to the attack of the
other server: what is the broker's own.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np

from stratamq.client import Credentials, TlsFiles
from stratamq.errors import StrataError
from stratamq.rpc.endpoints import Endpoints
from stratamq.rpc.rooms import COMMITLOG
from stratamq_bench.broker import Broker
from stratamq_bench.delete import Answers, Sending
from stratamq_bench.hostile_client import ATTACKS
from stratamq_bench.load import Places
from stratamq_bench.report import Case, Floor
from stratamq_bench.security import guarded
from stratamq_bench.usage import pss_mb

SETTLE_S = 1.0
"""Behind the beginning and the end of an attack: not counted."""


@dataclass(frozen=True, slots=True)
class HostileOptions:
    attacks: tuple[str, ...] = tuple(ATTACKS)
    seconds: float = 5.0
    rounds: int = 4
    rate: float = 200.0
    body: int = 1024


class Turn(Enum):
    QUIET = "quiet"
    ATTACK = "attack"
    ELSEWHERE = "elsewhere"


def run_hostile(directory: Path, options: HostileOptions) -> list[Case]:
    """Everything that is written is below `directory`. StrataError."""
    settings, credentials = guarded(directory, list(Places().topic_names))
    with (
        Broker(directory, (COMMITLOG,), {"commitlog.followers": "", **settings}) as broker,
        _bare_server(settings) as bare,
    ):
        address = Endpoints(broker.root).listening(COMMITLOG)
        return [_measured(directory, broker, (address, bare), credentials, options, one)
                for one in options.attacks]  # fmt: skip


def _measured(
    directory: Path,
    broker: Broker,
    addresses: tuple[str, str],
    credentials: Credentials,
    options: HostileOptions,
    attack: str,
) -> Case:
    """`addresses`: the broker's, and that of the bare server."""
    assert credentials.tls is not None
    files: TlsFiles = credentials.tls
    address, bare = addresses
    pid = broker.pids[COMMITLOG]
    token = directory / "token"
    token.write_text(credentials.token)
    spans: dict[Turn, list[tuple[int, int]]] = {turn: [] for turn in Turn}
    before_mb, most_mb = pss_mb(pid), 0.0
    with Sending(
        f"{COMMITLOG}={address}", options.rate, options.body, directory / "answers.npy",
        more=["--ca", files.ca, "--token-file", token],
    ) as sending:  # fmt: skip
        for _ in range(options.rounds):
            spans[Turn.QUIET].append(_span(options.seconds))
            for turn, attacked in ((Turn.ATTACK, address), (Turn.ELSEWHERE, bare)):
                with Attacker(attack, attacked, files.ca):
                    time.sleep(SETTLE_S)
                    spans[turn].append(_span(options.seconds))
                    if turn is Turn.ATTACK:
                        most_mb = max(most_mb, pss_mb(pid))
                time.sleep(SETTLE_S)
        answers = sending.stop()
    waits = {turn: np.percentile(_within(answers, spans[turn]), (50, 99, 99.9)) / 1e6
             for turn in Turn}  # fmt: skip
    p50, p99, p999 = waits[Turn.ATTACK]
    ratio = float(p99 / waits[Turn.QUIET][1])
    elsewhere = float(waits[Turn.ELSEWHERE][1] / waits[Turn.QUIET][1])
    return Case(
        case=f"hostile: {attack} beside {options.rate:g} appends/s",
        messages_per_s=options.rate,
        bytes_per_s=options.rate * options.body,
        floor=Floor("in quiet", options.rate),
        ratio=ratio,
        cpu_us_per_message={},
        p50_ms=float(p50),
        p99_ms=float(p99),
        p999_ms=float(p999),
        pss_mb=most_mb,
        measured={
            "p99_ratio": ratio,
            "p99_ratio_elsewhere": elsewhere,
            "p99_over_elsewhere": ratio / elsewhere,
            "growth_mb": most_mb - before_mb,
        },
        messages=len(answers),
        note="; ".join(
            f"p50/p99/p999 {turn.value} " + "/".join(f"{one:.1f}" for one in waits[turn]) + " ms"
            for turn in (Turn.QUIET, Turn.ELSEWHERE)
        ),
    )


@contextmanager
def _bare_server(settings: dict[str, object]) -> Iterator[str]:
    """Its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "stratamq_bench.bare_server", "--certificate",
         str(settings["tls.certificate"]), "--key", str(settings["tls.key"])],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        if not address:
            raise StrataError("the server that is attacked elsewhere did not start")
        yield address
    finally:
        process.kill()
        process.communicate()


def _span(seconds: float) -> tuple[int, int]:
    begin = time.monotonic_ns()
    time.sleep(seconds)
    return begin, time.monotonic_ns()


def _within(answers: Answers, spans: list[tuple[int, int]]) -> Answers:
    """How long the answers took to messages that were due then."""
    due, waits = answers[:, 0], answers[:, 1]
    chosen = np.zeros(len(due), bool)
    for begin, end in spans:
        chosen |= (due >= begin) & (due < end)
    if not chosen.any():
        raise StrataError("no message was due: the rate is too low for so short a time")
    return waits[chosen]


class Attacker:
    """A client process that attacks, until the end of the `with`."""

    def __init__(self, attack: str, address: str, ca: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "stratamq_bench.hostile_client", "--address", address,
             "--ca", str(ca), "--attack", attack],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __enter__(self) -> "Attacker":
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "started\n":
            raise StrataError("the attacker did not start")
        return self

    def __exit__(self, *_: object) -> None:
        """StrataError when it has ended by itself: the broker was not attacked."""
        ended = self._process.poll()
        self._process.kill()
        self._process.wait()
        if ended is not None:
            raise StrataError(f"the attacker ended with {ended}")
