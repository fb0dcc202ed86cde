"""`stratamq torture delivery`: what is delivered later, while processes are killed at random, and
volumes fill, masters are lost and clocks jump (`delivery_events.py`), each on stores of its own.

Producers send delayed messages, transactions that are committed, rolled back or left to a check,
and messages of a shared group, whose workers acknowledge some, return some and forget some. At the
end, when nothing is left to do:

* each delayed message that was acknowledged is in its topic once (`stratamq audit delivery`, which
  reads the log's records, says also that none was early);
* each message of a committed transaction is there once, and none of one that was rolled back;
* no worker was given a message in a call that began after its acknowledgement was answered;
* every message of the group that was stored came to a worker that acknowledged it.
"""

import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from stratamq_delivery import records
from stratamq_delivery.audit import audit
from stratamq_delivery.entries import HandedOut
from stratamq_delivery.receipts import decode_receipt

from stratamq.client import Client, SendStatus, connect
from stratamq.errors import StrataError
from stratamq_torture.processes.delivery_events import EVENTS, PROGRESS_S, Site
from stratamq_torture.processes.services import until
from stratamq_torture.trial import Deck, Options, Progress, Report, Trial, TrialFailedError

LATER, PAID, WORK = "later", "paid", "work"
GROUP = "payers"
STEPS = 20
"""What has to be answered between two rounds."""
LONGEST_REST_S = 0.3
INVISIBLE_S = 2.0
LONGEST_DELAY_S = 6.0
SHOWN = 8


@dataclass(slots=True)
class Ledger:
    """What was answered. By body."""

    delayed: set[bytes] = field(default_factory=set)
    sent: set[bytes] = field(default_factory=set)
    """To the group's topic."""
    committed: set[bytes] = field(default_factory=set)
    rolled_back: set[bytes] = field(default_factory=set)
    left: set[bytes] = field(default_factory=set)
    """Messages of transactions that a check has to decide."""
    acknowledged: dict[bytes, float] = field(default_factory=dict)
    """With the time of the answer, by the monotonic clock."""
    perhaps: set[bytes] = field(default_factory=set)
    """Acknowledged without an answer."""
    again: list[str] = field(default_factory=list)
    doubtful: list[tuple[int, str]] = field(default_factory=list)
    """What came again, perhaps from a master that did not know of its demotion, with the token of
    the hand-out."""
    steps: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, where: set[bytes], *bodies: bytes) -> None:
        with self.lock:
            where.update(bodies)
            self.steps += 1

    def given(
        self, body: bytes, asked_at: float, token: int = 0, one_master_since: float = 0.0
    ) -> None:
        with self.lock:
            done = self.acknowledged.get(body)
            if done is None or done >= asked_at:
                return
            sentence = f"{body!r} came again after its acknowledgement"
            if asked_at < one_master_since:
                self.doubtful.append((token, sentence))
            else:
                self.again.append(sentence)

    def recorded(self, tokens: Container[int]) -> None:
        """What a former master handed out meanwhile is not in the log; these are the log's."""
        self.again += [sentence for token, sentence in self.doubtful if token in tokens]
        self.doubtful = [one for one in self.doubtful if one[0] not in tokens]


class Load:
    """`with` it producers and workers run until it ends."""

    def __init__(self, site: Site, ledger: Ledger, seed: int) -> None:
        self._site, self._ledger, self._seed = site, ledger, seed
        self._producing, self._working = threading.Event(), threading.Event()
        self._failures: list[str] = []
        self._abandoned = False
        works = {
            "delays": self._delays,
            "transactions": self._transactions,
            "sender": self._send,
            "checks": self._answer_checks,
            **{f"worker {number}": self._work for number in range(3)},
        }
        self._threads = {
            name: threading.Thread(target=self._run, args=(work, name), daemon=True)
            for name, work in works.items()
        }

    def __enter__(self) -> "Load":
        for thread in self._threads.values():
            thread.start()
        return self

    def __exit__(self, error_type: object, *_: object) -> None:
        self._producing.set()
        self._working.set()
        if error_type is not None:
            self._abandoned = True  # their calls would be tried again until their time is over
            return
        self.stop_producing()
        # The one that answers checks waits for the next check: it ends with its process.
        self._join([one for one in self._threads if one.startswith("worker")])

    def stop_producing(self) -> None:
        self._producing.set()
        self._join(["delays", "transactions", "sender"])

    def require(self) -> None:
        if self._failures:
            raise TrialFailedError(self._failures[0])

    def _join(self, names: list[str]) -> None:
        for name in names:
            thread = self._threads[name]
            thread.join(3 * PROGRESS_S)
            if thread.is_alive():
                raise TrialFailedError(f"{name} did not end: {_stack(thread)}")

    def _run(self, work: Callable[[Client, Random, str], None], name: str) -> None:
        ended = self._producing if name in ("delays", "transactions", "sender") else self._working
        chance = Random(f"{self._seed} {name}")
        try:
            with connect(self._site.target, timeout_s=10, retry_timeout_s=PROGRESS_S) as client:
                while not ended.is_set():
                    work(client, chance, f"{name} {chance.getrandbits(48)}")
        except Exception as error:
            if self._abandoned:
                return
            self._failures.append(f"{name} ended: {type(error).__name__}: {error}")
            raise

    def _delays(self, client: Client, chance: Random, name: str) -> None:
        body = name.encode()
        soon = (
            {"delay_level": 1}
            if chance.random() < 0.5
            else {"delay": chance.random() * LONGEST_DELAY_S}
        )
        with suppress(StrataError):  # perhaps stored: then the audit knows it
            if client.send(LATER, body, **soon).status is SendStatus.PUT_OK:
                self._ledger.note(self._ledger.delayed, body)

    def _send(self, client: Client, chance: Random, name: str) -> None:
        body = name.encode()
        with suppress(StrataError):
            result = client.send(WORK, body, queue_id=chance.randrange(2))
            if result.status is SendStatus.PUT_OK:
                self._ledger.note(self._ledger.sent, body)

    def _transactions(self, client: Client, chance: Random, name: str) -> None:
        """Perhaps decided is not in the ledger, and the audit judges it."""
        ledger, kind = self._ledger, chance.choice(("commit", "commit", "rollback", "leave"))
        transaction, bodies, is_safe = client.transaction(GROUP), [], True
        with suppress(StrataError):
            for number in range(1 if kind == "leave" else chance.randint(1, 3)):
                bodies.append(f"{kind} {name} {number}".encode())
                is_safe &= transaction.send(PAID, bodies[-1]).status is SendStatus.PUT_OK
            if kind == "commit":
                transaction.commit()
                ledger.note(ledger.committed, *bodies)
            elif kind == "rollback":
                transaction.rollback()
                ledger.note(ledger.rolled_back, *bodies)
            elif is_safe:
                ledger.note(ledger.left, *bodies)

    def _answer_checks(self, client: Client, chance: Random, name: str) -> None:
        with suppress(StrataError):
            for check in client.transaction_checks(GROUP, [PAID]):
                with suppress(StrataError):
                    check.commit()
                    self._ledger.note(self._ledger.committed, check.message.body)
                if self._working.is_set():
                    return

    def _work(self, client: Client, chance: Random, name: str) -> None:
        ledger = self._ledger
        with client.subscribe(WORK, GROUP, client_id=name, invisible_s=INVISIBLE_S) as reader:
            while not self._working.is_set():
                asked_at, given = time.monotonic(), []
                with suppress(StrataError):
                    given = reader.receive(chance.randint(1, 8), wait_s=0.5)
                for message in given:
                    token = decode_receipt(message.receipt, GROUP, WORK, 0).token
                    ledger.given(message.body, asked_at, token, self._site.two_masters_until)
                    dice = 0.0 if self._producing.is_set() else chance.random()
                    if dice > 0.9:
                        continue  # forgotten
                    try:
                        if dice > 0.8:
                            message.nack(0.001)
                            continue
                        message.ack()
                        with ledger.lock:
                            ledger.acknowledged[message.body] = time.monotonic()
                            ledger.steps += 1
                    except StrataError:
                        ledger.perhaps.add(message.body)


def _stack(thread: threading.Thread) -> str:
    """Where it is now, the innermost call last."""
    frame = sys._current_frames().get(thread.ident or 0)
    calls = traceback.extract_stack(frame) if frame else []
    return " > ".join(f"{Path(one.filename).name}:{one.lineno} {one.name}" for one in calls)


def run_deliveries(options: Options, progress: Progress = None, event: str = "") -> Report:
    """The trial. The real processes decide what happens when: a seed brings the same events in the
    same order. `event`: only this one."""
    obstacles = {name: EVENTS[name].obstacle() for name in ([event] if event else EVENTS)}
    possible = [name for name, obstacle in obstacles.items() if not obstacle]
    if not possible:
        return Report("delivery", skipped=f"{event} {obstacles[event]}")
    trial = Trial("delivery", options, progress)
    report, seen, deck = trial.report, Counter[str](), Deck(trial.chance, possible)
    with trial.interruptible():
        while trial.in_time and trial.done < options.count and report.passed:
            with tempfile.TemporaryDirectory(prefix="stratamq-deliveries-") as directory:
                try:
                    seen += _play(trial, EVENTS[deck.draw()](Path(directory)))
                except (TrialFailedError, StrataError) as error:
                    report.failures.append(str(error))
            report.seeds += 1
    report.rounds = trial.done
    if report.failures:
        only = f" --event {event}" if event else ""
        report.failures.append(
            f"again: stratamq torture delivery --seed {options.seed} "
            f"--rounds {max(1, trial.done)}{only}"
        )
    counted = ", ".join(f"{count} {what}" for what, count in sorted(seen.items()))
    report.notes.append(f"{counted}; {trial.summary}")
    left_out = [f"{name} {obstacle}" for name, obstacle in obstacles.items() if obstacle]
    report.notes += [f"left out: {one}" for one in left_out]
    return trial.ended()


def _play(trial: Trial, site: Site) -> Counter[str]:
    """One store, or two; what its log held at the end."""
    options, report, ledger = trial.options, trial.report, Ledger()
    kills, promotions = report.kills, report.promotions
    with site:
        with Load(site, ledger, options.seed + report.seeds) as load:
            _wait_for_progress(ledger, load)
            for _ in range(min(site.rounds, options.count - trial.done)):
                if not trial.in_time:
                    break
                _strike(trial, site)
                report.kills = kills + site.kills
                report.promotions = promotions + site.promotions
                _wait_for_progress(ledger, load)
                trial.count()
            load.stop_producing()
            site.calm()
            with connect(site.root, timeout_s=10, retry_timeout_s=PROGRESS_S) as client:
                _settle(client, ledger, load)
                ledger.recorded(_tokens(client))
                paid, later = (
                    Counter(one.body for one in client.consume(t)) for t in (PAID, LATER)
                )
        faults = site.stop()
        _judge(report, ledger, paid, later)
        found = audit(site.root, settled=True)
    faults += [fault for fault in found.faults if not site.excuses(fault)]
    report.failures += faults[:SHOWN]
    report.lost += sum(fault.endswith("lost") for fault in faults)
    report.acknowledged_messages += len(ledger.delayed) + len(ledger.sent) + len(ledger.committed)
    known = len(ledger.doubtful) + sum(map(site.excuses, found.faults))
    return found.counts + Counter({"faults of known defects": known})


def _strike(trial: Trial, site: Site) -> None:
    chance = trial.chance
    until(lambda: False, chance.random() * LONGEST_REST_S, LONGEST_REST_S)
    trial.met[site.strike(chance)] += 1


def _tokens(client: Client) -> set[int]:
    """All hand-outs of the log."""
    entries = (
        entry
        for one in client.consume(records.RECORDS)
        if one.body.startswith(records.MAGIC)
        for _, entry in records.decode(one.body).entries
    )
    return {entry.token for entry in entries if isinstance(entry, HandedOut)}


def _wait_for_progress(ledger: Ledger, load: Load) -> None:
    before = ledger.steps
    if not until(lambda: ledger.steps > before + STEPS, PROGRESS_S):
        load.require()
        raise TrialFailedError(f"no {STEPS} calls were answered within {PROGRESS_S} s")
    load.require()


def _settle(client: Client, ledger: Ledger, load: Load) -> None:
    """Until nothing is left to do; workers acknowledge all that they are given now."""

    def left() -> list[bytes]:
        load.require()
        with ledger.lock:
            undone = ledger.sent - {*ledger.acknowledged} - ledger.perhaps
            return [*undone, *(ledger.left - ledger.committed)]

    # A busy machine may be slow: what counts is that it gets on.
    while before := left():
        if not until(lambda before=before: len(left()) < len(before), PROGRESS_S, 0.1):
            raise TrialFailedError(
                f"{len(before)} messages came to no worker that acknowledged them, or were not "
                f"decided, and none did within {PROGRESS_S} s: {before[:SHOWN]}"
            )
    if not until(lambda: not client.held_messages(GROUP), PROGRESS_S, 0.1):
        raise TrialFailedError(f"the group holds messages after {PROGRESS_S} s")
    if not until(lambda: client.admin.delivery_state().parts == 0, PROGRESS_S, 0.1):
        raise TrialFailedError(f"delayed messages were not delivered within {PROGRESS_S} s")
    missing = ledger.committed
    if not until(lambda: missing <= {one.body for one in client.consume(PAID)}, PROGRESS_S, 0.5):
        raise TrialFailedError("messages of committed transactions are not in their topic: lost")


def _judge(report: Report, ledger: Ledger, paid: Counter[bytes], later: Counter[bytes]) -> None:
    faults = [*ledger.again]
    faults += [f"{body!r} was acknowledged and is lost" for body in ledger.delayed - {*later}]
    faults += [f"{body!r} was rolled back and seen" for body in ledger.rolled_back & {*paid}]
    for body, count in (paid + later).items():
        if count > 1:
            report.duplicates += count - 1
            faults.append(f"{body!r} was delivered {count} times")
    report.lost += len(ledger.delayed - {*later})
    report.failures += faults[:SHOWN]
