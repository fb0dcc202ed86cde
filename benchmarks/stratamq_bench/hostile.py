"""What a client waits beside hostile ones: a broker that asks who calls, over TLS, and attackers
that have no permission, in a process of their own.

    quiet ─ attack ─ elsewhere ─ quiet ─ …    the client sends at a fixed rate all the time

By turns, so that what else the machine does is in all. The processes share the machine's
processors: `elsewhere` the same attackers attack a gRPC server of another process that offers
nothing (`attacks.serve_nothing`), and what the client waits then is for the processors alone.
`p99_ratio` is that of the attack to quiet, with everything in it; `p99_over_elsewhere` that to the
attack of the other server: what is the broker's own.
"""

import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from stratamq.client import Credentials
from stratamq.rpc.endpoints import Endpoints
from stratamq.rpc.rooms import COMMITLOG
from stratamq_bench.broker import Broker
from stratamq_bench.child import Child
from stratamq_bench.load import Places
from stratamq_bench.pacing import Sending, Span, Waits
from stratamq_bench.report import Case, Floor
from stratamq_bench.security import guarded
from stratamq_bench.usage import pss_mb

SETTLE_S = 1.0
"""Behind the beginning and the end of an attack: not counted."""


@dataclass(frozen=True, slots=True)
class Options:
    attacks: tuple[str, ...]
    seconds: float
    rounds: int
    rate: float
    body: int = 1024


class Turn(Enum):
    QUIET = "quiet"
    ATTACK = "attack"
    ELSEWHERE = "elsewhere"


def measure(directory: Path, options: Options) -> list[Case]:
    """Everything that is written is below `directory`. StrataError."""
    settings, credentials = guarded(directory, list(Places().topic_names))
    with (
        Broker(directory, (COMMITLOG,), {"commitlog.followers": "", **settings}) as broker,
        Child(
            "attacks.serve_nothing",
            certificate=settings["tls.certificate"],
            key=settings["tls.key"],
        ) as bare,
    ):
        addresses = Endpoints(broker.root).listening(COMMITLOG), bare.line()
        return [
            _measured(directory, broker, addresses, credentials, options, one)
            for one in options.attacks
        ]


def _measured(
    directory: Path,
    broker: Broker,
    addresses: tuple[str, str],
    credentials: Credentials,
    options: Options,
    attack: str,
) -> Case:
    """`addresses`: the broker's, and that of the bare server."""
    assert credentials.tls is not None
    address, bare = addresses
    pid = broker.pids[COMMITLOG]
    spans: dict[Turn, list[Span]] = {turn: [] for turn in Turn}
    before_mb, most_mb = pss_mb(pid), 0.0
    answers_file = directory / "answers.npy"
    log = f"{COMMITLOG}={address}"
    with Sending(log, options.rate, options.body, answers_file, credentials) as sending:
        for _ in range(options.rounds):
            spans[Turn.QUIET].append(Span.lasting(options.seconds))
            for turn, attacked in ((Turn.ATTACK, address), (Turn.ELSEWHERE, bare)):
                with Attacker(attack, attacked, credentials.tls.ca):
                    time.sleep(SETTLE_S)
                    spans[turn].append(Span.lasting(options.seconds))
                    if turn is Turn.ATTACK:
                        most_mb = max(most_mb, pss_mb(pid))
                time.sleep(SETTLE_S)
        answers = sending.stop()
    waits = {turn: Waits.of(answers, spans[turn]) for turn in Turn}
    attacked_for = waits[Turn.ATTACK]
    ratio = attacked_for.p99 / waits[Turn.QUIET].p99
    elsewhere = waits[Turn.ELSEWHERE].p99 / waits[Turn.QUIET].p99
    return Case(
        case=f"hostile: {attack} beside {options.rate:g} appends/s",
        messages_per_s=options.rate,
        bytes_per_s=options.rate * options.body,
        floor=Floor("in quiet", options.rate),
        ratio=ratio,
        p50_ms=attacked_for.p50,
        p99_ms=attacked_for.p99,
        p999_ms=attacked_for.p999,
        pss_mb=most_mb,
        measured={
            "p99_ratio": ratio,
            "p99_ratio_elsewhere": elsewhere,
            "p99_over_elsewhere": ratio / elsewhere,
            "growth_mb": most_mb - before_mb,
        },
        messages=len(answers),
        note="; ".join(
            f"p50/p99/p999 {turn.value} {waits[turn]}" for turn in (Turn.QUIET, Turn.ELSEWHERE)
        ),
    )


class Attacker:
    """A client process that attacks, until the end of the `with`."""

    def __init__(self, attack: str, address: str, ca: Path) -> None:
        self._process = Child("attacks.run", attack=attack, address=address, ca=ca)

    def __enter__(self) -> "Attacker":
        self._process.line()
        return self

    def __exit__(self, error_type: object, *_: object) -> None:
        """StrataError when it has ended by itself: the broker was not attacked."""
        try:
            if error_type is None:
                self._process.check_running()
        finally:
            self._process.__exit__()
