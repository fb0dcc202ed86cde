"""Brokers whose service decides transactions, stepped by hand (`tests/follow/egg_scene.py`), and
what must hold of their logs."""

from dataclasses import replace

from stratamq_delivery.half_messages import CheckRules, Party, TransactionCheck
from stratamq_delivery.records import RECORDS
from stratamq_delivery.taken_over import TakenOver
from stratamq_delivery.transaction_records import MAGIC, Outcome, decode_entries
from stratamq_delivery.transactions import Transactions

from stratamq.follow.fold import FoldPlace
from stratamq.formats.frame import Frame
from stratamq.formats.source_item import MessageSource
from stratamq.formats.sysflag import TRANSACTION_COMMIT, TRANSACTION_MASK
from stratamq.formats.topics import (
    HALF_TOPIC,
    OP_HALF_TOPIC,
    TRANSACTION_CHECK_MAX_TIME_TOPIC,
)
from tests.follow.egg_scene import Broker, Service
from tests.support.logs import batch

GROUP = "payers"
RULES = CheckRules(timeout_ms=6_000, interval_ms=30_000, max_checks=3)


class Asked:
    """Producers that note what they are asked; connected for every topic."""

    def __init__(self) -> None:
        self.connected = {GROUP}
        self.checks: list[tuple[str, TransactionCheck]] = []

    def parties(self) -> list[Party]:
        topics = ("orders", *(f"t{number}" for number in range(3)))
        return [Party(group, topic) for group in self.connected for topic in topics]

    def ask(self, party: Party, check: TransactionCheck) -> None:
        self.checks.append((party.group, check))


class TransactionService(Service):
    """One start of a service that owns transactions alone."""

    name, path = "delivery", "stratamq/delivery.json"

    def state(self, followed: FoldPlace) -> Transactions:
        return Transactions(followed, RULES, self.broker.producers, TakenOver(followed))


class TransactionBroker(Broker):
    """A log and the transactions in it."""

    service_type = TransactionService

    def __init__(self, seed: int = 0, **settings) -> None:
        self.producers = Asked()
        self.answers: list[tuple[tuple[int, ...], Outcome, Exception | None]] = []
        """Of decisions: the halves' offsets, what was asked for, what was answered."""
        super().__init__(seed, **settings)

    @property
    def transactions(self) -> Transactions:
        return self.service.author

    def half(self, body: bytes = b"paid", topic: str = "orders", group: str = GROUP, **more) -> int:
        """A half message. Its offset."""
        properties = {"TRAN_MSG": "true", "PGROUP": group, "KEYS": "k"} | more
        return self.store.put(body, topic, half=True, properties=properties).physical_offset

    def source(self, offset: int) -> MessageSource:
        return MessageSource(self.service.followed.generation_of(offset), offset)

    def decide(self, *offsets: int, outcome: Outcome = Outcome.COMMITTED, group: str = GROUP):
        """What is answered goes to `answers`, when it is."""
        sources = [self.source(offset) for offset in offsets]
        self.transactions.decide(
            group, sources, outcome, lambda error: self.answers.append((offsets, outcome, error))
        )

    def commit(self, *offsets: int) -> None:
        """Until it is answered and shown."""
        self.service.settle()
        self.decide(*offsets)
        self.service.settle()

    def pass_time(self, milliseconds: int) -> None:
        self.store.clock.advance_ms(milliseconds)
        self.service.settle()

    def put_own(self, body: bytes, topic: str) -> None:
        """A message in a system topic, as a broker's service appends it."""
        own = replace(batch([body], topic, properties={"TAGS": "d"}), fence=lambda: None)
        assert self.store.put_batch(own).error is None

    # --- what the log holds ---

    def halves(self) -> dict[int, Frame]:
        return {one.physical_offset: one for one in self.store.frames() if one.topic == HALF_TOPIC}

    def shown(self) -> dict[int, list[Frame]]:
        """Copies by the offset of their half."""
        return self._about(lambda frame: frame.topic not in (HALF_TOPIC, OP_HALF_TOPIC, RECORDS))

    def closed(self) -> list[int]:
        """Queue offsets of the halves that op messages name."""
        ops = [one for one in self.store.frames() if one.topic == OP_HALF_TOPIC]
        assert all((one.queue_id, one.properties["TAGS"]) == (0, "d") for one in ops)
        return [int(one.body) for one in ops]

    def outcomes(self) -> dict[int, Outcome]:
        """The first decision about each half."""
        found: dict[int, Outcome] = {}
        for frame in self.store.frames():
            if frame.topic == RECORDS and frame.body.startswith(MAGIC):
                for outcome, source in decode_entries(frame.body):
                    if outcome is not Outcome.CHECKED:
                        found.setdefault(source.offset, outcome)
        return found

    def check(self) -> None:
        """What the module promises, of a service that has settled."""
        halves, shown, outcomes = self.halves(), self.shown(), self.outcomes()
        assert {*shown} <= {*halves} and {*outcomes} <= {*halves}
        closed = self.closed()
        assert len({*closed}) == len(closed)
        for offset, half in halves.items():
            outcome, copies = outcomes.get(offset), shown.get(offset, [])
            assert (half.queue_offset in closed) == (outcome is not None), offset
            assert len(copies) == (outcome in (Outcome.COMMITTED, Outcome.GIVEN_UP)), offset
            for copy in copies:
                assert (copy.body, copy.properties["KEYS"]) == (half.body, "k")
                if outcome is Outcome.GIVEN_UP:
                    assert copy.topic == TRANSACTION_CHECK_MAX_TIME_TOPIC
                else:
                    assert copy.topic == half.properties["REAL_TOPIC"]
                    assert copy.queue_id == int(half.properties["REAL_QID"])
                    assert copy.sys_flag & TRANSACTION_MASK == TRANSACTION_COMMIT
                    assert copy.prepared_transaction_offset == offset
        for offsets, outcome, error in self.answers:
            if error is None:
                for offset in offsets:
                    assert outcomes.get(offset) is outcome, (offset, outcome)
        undecided = sum(offset not in outcomes for offset in halves)
        assert len(self.transactions) == undecided
        floor = self.transactions.halves.check_floor(0)
        if floor is not None:
            below = {one.queue_offset for one in halves.values() if one.queue_offset < floor.half}
            assert below <= {*closed}
            assert all(one < floor.half for one in closed[: floor.op])
