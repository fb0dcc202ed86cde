"""`stratamq torture resend`: producers that send again what was not answered store it once.

Producers of every kind (streams of both clients, single calls) reach the log service through a
proxy. Under their load the log is killed and started again, connections are reset, and reset after
the answers have been withheld for a while. At the end the whole log is read: each acknowledged
message is there once, where it was acknowledged; no message and no sequence of a producer is there
twice.
"""

import asyncio
import random
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from stratamq.client import Client, SendResult, connect, connect_async
from stratamq.client.received import ReceivedMessage, split_frames
from stratamq.errors import StrataError, UnavailableError
from stratamq.formats.frame_scan import scan_frames
from stratamq.formats.producer_item import PRODUCER_ITEM
from stratamq.rpc.rooms import COMMITLOG
from stratamq_torture.processes.services import Services, until
from stratamq_torture.processes.wire import NOWHERE, Wire
from stratamq_torture.trial import Options, Progress, Report, Trial, TrialFailedError

SETTINGS = ("commitlog.segment_bytes=4194304", "commitlog.followers=", "commitlog.reserve_bytes=0")
TOPIC = "resent"
LONGEST_REST_S = 0.1
PROGRESS_S = 60.0
BURST = 40
LARGEST_BODY = 300
ROUNDS_OF_A_STORE = 100
ACTS = ("cut", "cut", "withhold", "withhold", "kill", "kill and cut")
SHOWN = 5


@dataclass(slots=True)
class Answers:
    """What producers received, by body."""

    acknowledged: dict[bytes, SendResult] = field(default_factory=dict)
    perhaps: set[bytes] = field(default_factory=set)
    refused: dict[bytes, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def stored(self, body: bytes, result: SendResult) -> None:
        with self.lock:
            self.acknowledged[body] = result

    def failed(self, body: bytes, error: StrataError) -> None:
        with self.lock:
            if isinstance(error, UnavailableError) and error.fields.get("perhaps_stored"):
                self.perhaps.add(body)
            else:
                self.refused[body] = str(error)


def broken_promises(answers: Answers, log: Iterable[ReceivedMessage]) -> tuple[int, list[str]]:
    """How many acknowledged messages are missing, and every broken promise in a sentence."""
    places: dict[bytes, list[int]] = defaultdict(list)
    numbers: Counter[str] = Counter()
    for message in log:
        places[message.body].append(message.physical_offset)
        if PRODUCER_ITEM in message.properties:
            numbers[message.properties[PRODUCER_ITEM]] += 1
    lost, sentences = 0, []
    for body, result in answers.acknowledged.items():
        if places[body] != [result.physical_offset]:
            lost += not places[body]
            sentences.append(
                f"{body[:20]!r}, acknowledged at {result.physical_offset}, is at {places[body]}"
            )
    twice = [body for body, found in places.items() if len(found) > 1]
    sentences += [f"{body[:20]!r} is stored twice, at {places[body]}" for body in twice]
    sentences += [f"{item} is in the log {n} times" for item, n in numbers.items() if n > 1]
    sentences += [
        f"{body[:20]!r} is stored, and was refused: {answers.refused[body]}"
        for body in answers.refused
        if places[body]
    ]
    return lost, sentences


class Producers:
    """`with` it four of them run, through `target`, until it ends."""

    def __init__(self, target: str, answers: Answers, seed: int) -> None:
        self._target = target
        self._answers = answers
        self._seed = seed
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=run, args=(name,), name=name)
            for name, run in (
                ("stream", self._stream),
                ("large stream", self._stream),
                ("asyncio", lambda name: asyncio.run(self._asyncio(name))),
                ("calls", self._calls),
            )
        ]

    def __enter__(self) -> "Producers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(3 * PROGRESS_S)
            if thread.is_alive():
                raise TrialFailedError(f"the producer {thread.name} did not end")

    def _bodies(self, name: str) -> "Bodies":
        return Bodies(name, random.Random(f"{self._seed} {name}"))

    def _stream(self, name: str) -> None:
        bodies = self._bodies(name)
        with connect(self._target, retry_timeout_s=PROGRESS_S) as client:
            batch = 64 << 10 if name == "large stream" else 2_000
            with client.producer(batch_bytes=batch, linger_ms=1.0) as producer:
                while not self._ended.is_set():
                    sent = [(body, producer.send(TOPIC, body)) for body in bodies.burst()]
                    for body, delivery in sent:
                        try:
                            self._answers.stored(body, delivery.result(2 * PROGRESS_S))
                        except StrataError as error:
                            self._answers.failed(body, error)

    async def _asyncio(self, name: str) -> None:
        bodies = self._bodies(name)
        async with (
            connect_async(self._target, retry_timeout_s=PROGRESS_S) as client,
            client.producer(batch_bytes=4_000, linger_ms=1.0) as producer,
        ):
            while not self._ended.is_set():
                sent = [(body, await producer.send(TOPIC, body)) for body in bodies.burst()]
                for body, delivery in sent:
                    try:
                        self._answers.stored(body, await delivery.result(2 * PROGRESS_S))
                    except StrataError as error:
                        self._answers.failed(body, error)

    def _calls(self, name: str) -> None:
        bodies = self._bodies(name)
        with connect(self._target, timeout_s=PROGRESS_S, retry_timeout_s=PROGRESS_S) as client:
            while not self._ended.is_set():
                body = bodies.next()
                try:
                    self._answers.stored(body, client.send(TOPIC, body))
                except StrataError as error:
                    self._answers.failed(body, error)


class Bodies:
    """The bodies of one producer, all different."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self._name = name.encode()
        self._chance = chance
        self._count = 0

    def next(self) -> bytes:
        self._count += 1
        filler = b"." * self._chance.randrange(LARGEST_BODY)
        return b"%s %d %s" % (self._name, self._count, filler)

    def burst(self) -> list[bytes]:
        return [self.next() for _ in range(self._chance.randint(1, BURST))]


def run_resends(
    options: Options, progress: Progress = None, settings: tuple[str, ...] = ()
) -> Report:
    """The trial. Real processes decide what happens when. `settings` are the log service's."""
    trial = Trial("resend", options, progress)
    report, perhaps, messages = trial.report, 0, 0
    while trial.in_time and trial.done < options.count and report.passed:
        with tempfile.TemporaryDirectory(prefix="stratamq-resend-") as directory:
            answers = Answers()
            try:
                messages += _play(trial, Path(directory), answers, settings)
            except (TrialFailedError, StrataError) as error:
                report.failures.append(str(error))
        report.seeds += 1
        report.acknowledged_messages += len(answers.acknowledged)
        perhaps += len(answers.perhaps)
    report.rounds = trial.done
    if report.failures:
        report.failures.append(
            f"again: stratamq torture resend --seed {options.seed} --rounds {max(1, trial.done)}"
        )
    report.notes.append(f"{messages} messages stored, {perhaps} perhaps; {trial.summary}")
    return trial.ended()


def _play(trial: Trial, directory: Path, answers: Answers, settings: tuple[str, ...]) -> int:
    """One store; how many messages it holds at the end."""
    options, report, root = trial.options, trial.report, directory / "store"
    with Services(root, directory / "logs", (*SETTINGS, *settings)) as services:

        def log_address() -> str:
            endpoint = services.announced(COMMITLOG)
            return NOWHERE if endpoint is None else endpoint.address

        services.start([COMMITLOG])
        with Wire(log_address, resets=True) as proxy:
            target = f"{COMMITLOG}={proxy.address}"
            with Producers(target, answers, options.seed + report.seeds):
                for _ in range(min(ROUNDS_OF_A_STORE, options.count - trial.done)):
                    if not trial.in_time:
                        break
                    _strike(trial, services, proxy)
                    _wait_for_progress(answers)
                    trial.count()
        report.kills += services.kills
        with connect(root, retry_timeout_s=PROGRESS_S) as client:
            stored = _log(client)
    lost, sentences = broken_promises(answers, stored)
    report.lost += lost
    report.failures += sentences[:SHOWN]
    if len(sentences) > SHOWN:
        report.failures.append(f"and {len(sentences) - SHOWN} more")
    return len(stored)


def _strike(trial: Trial, services: Services, proxy: Wire) -> None:
    act = trial.chance.choice(ACTS)
    trial.met[act] += 1
    _rest(trial)
    if act == "withhold":
        proxy.withhold_answers()
        _rest(trial)
    if act.startswith("kill"):
        services.kill(COMMITLOG)
        if act == "kill and cut":
            proxy.cut()
        services.start([COMMITLOG])
    else:
        proxy.cut()


def _rest(trial: Trial) -> None:
    until(lambda: False, trial.chance.random() * LONGEST_REST_S, LONGEST_REST_S)


def _wait_for_progress(answers: Answers) -> None:
    """Until the load is answered again. TrialFailedError when it is not."""
    before = len(answers.acknowledged)
    if not until(lambda: len(answers.acknowledged) > before + BURST, PROGRESS_S):
        raise TrialFailedError(f"nothing was acknowledged within {PROGRESS_S} s")


def _log(client: Client) -> list[ReceivedMessage]:
    """Every message of the log."""
    messages: list[ReceivedMessage] = []
    for _, frames in client.log_frames(0):  # a piece can end in a blank
        messages += split_frames(frames[: scan_frames(frames).end])
    return messages
