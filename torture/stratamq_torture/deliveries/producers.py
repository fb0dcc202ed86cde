"""Producers of a simulated broker: delayed messages, messages of shared groups, and transactions
with their checks. Each public method is something that may happen next, and says what it was.
"""

from typing import NamedTuple

from stratamq_commitlog.messages import PutMessage, PutResult
from stratamq_delivery.delayed_copies import WaitEnd
from stratamq_delivery.ending import HalfPlace
from stratamq_delivery.half_messages import Party
from stratamq_delivery.transaction_records import Outcome as Decision

from stratamq.errors import DecidedTransactionError, StrataError
from stratamq.formats.frame import Frame, decode
from stratamq.formats.message_status import SendStatus
from stratamq.formats.properties import TAGS
from stratamq.formats.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from stratamq_torture.deliveries.ledger import (
    LATER,
    MESSAGE_GROUP,
    PAID,
    RED,
    STEPS,
    WORK,
)
from stratamq_torture.deliveries.service import BORN, Service
from stratamq_torture.deliveries.world import World
from stratamq_torture.trial import Violation

PAYERS = "payers"


class Transaction(NamedTuple):
    """Half messages that were stored. `wish`: what their producer wants; None: it has forgotten."""

    bodies: tuple[bytes, ...]
    halves: tuple[HalfPlace, ...]
    wish: Decision | None


class Producers:
    """All of them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._numbers = 0
        self._open: list[Transaction] = []
        self._wishes: dict[bytes, Decision | None] = {}

    def _body(self) -> bytes:
        self._numbers += 1
        return b"%05d" % self._numbers + b"." * self._world.chance.choice((0, 0, 40, 700))

    def _put(self, topic: str, body: bytes, **fields: object) -> str:
        """Its answer is a claim."""
        log, ledger, epoch = self._world.master.log, self._world.ledger, self._world.ledger.epoch
        if log is None or not log.gate.open:
            return "no log"
        fields = {"queue_id": self._world.chance.randrange(2), **fields}
        message = PutMessage(topic, body, BORN, born_timestamp_ms=1, **fields)  # type: ignore[arg-type]

        def answered(results: list[PutResult]) -> None:
            (result,) = results
            if not result.status.stored:
                ledger.refused.add(body)
            elif epoch == ledger.epoch and result.status is SendStatus.PUT_OK:
                ledger.stored[body] = topic, result.physical_offset + result.size

        log.put([message], False, answered)
        return repr(body[:5])

    def delay(self) -> str:
        return self._put(LATER, self._body(), delay_level=self._world.chance.randint(1, 4))

    def deliver_at(self) -> str:
        at_ms = self._world.clock.wall_ms() + self._world.chance.randrange(-100, 20_000)
        return self._put(LATER, self._body(), properties={"TIMER_DELIVER_MS": str(at_ms)})

    def work(self) -> str:
        chance = self._world.chance
        tags = [chance.choice((*RED, "blue", "blue")) for _ in range(chance.randint(1, 4))]
        return ", ".join(self._put(WORK, self._body(), properties={TAGS: tag}) for tag in tags)

    def ordered(self) -> str:
        name = self._world.chance.choice(("", "x", "x", "y"))
        return self._put(STEPS, self._body(), properties={MESSAGE_GROUP: name} if name else {})

    def half(self) -> str:
        """The messages of a transaction; its producer hears of all of them, or has forgotten it."""
        log = self._world.master.log
        if log is None or not log.gate.open:
            return "no log"
        chance = self._world.chance
        bodies = tuple(self._body() for _ in range(chance.randint(1, 3)))
        wish = chance.choice((Decision.COMMITTED, Decision.COMMITTED, Decision.ROLLED_BACK, None))
        self._wishes.update(dict.fromkeys(bodies, wish))
        messages = [
            PutMessage(
                PAID,
                body,
                BORN,
                queue_id=chance.randrange(2),
                properties={"TRAN_MSG": "true", "PGROUP": PAYERS, "UNIQ_KEY": body.decode()},
                born_timestamp_ms=1,
                half=True,
            )
            for body in bodies
        ]

        def answered(results: list[PutResult]) -> None:
            if all(one.status.stored for one in results):
                halves = tuple(
                    HalfPlace(PAID, one.physical_offset, body.decode())
                    for one, body in zip(results, bodies, strict=True)
                )
                self._open.append(Transaction(bodies, halves, wish))

        log.put(messages, False, answered)
        return f"{len(bodies)}: {bodies[0][:5]!r}"

    def decide(self) -> str:
        service, chance = self._world.up(), self._world.chance
        if service is None or not self._open:
            return "nothing"
        one = chance.choice(self._open[-6:])
        outcome = one.wish
        if outcome is None or chance.random() < 0.1:
            outcome = chance.choice((Decision.COMMITTED, Decision.ROLLED_BACK))
        service.spawn(self._end(service, one.bodies, one.halves, outcome))
        return f"{outcome.name} {one.bodies[0][:5]!r}"

    async def _end(
        self,
        service: Service,
        bodies: tuple[bytes, ...],
        halves: tuple[HalfPlace, ...],
        outcome: Decision,
    ) -> None:
        ledger, epoch = self._world.ledger, self._world.ledger.epoch
        is_current = service.is_current
        try:
            await service.ending.end(PAYERS, halves, outcome)
        except DecidedTransactionError:
            if all(ledger.decided.get(body, (None, 0))[0] is outcome for body in bodies):
                sentence = f"{bodies} are {outcome.name}, and it says no"
                raise Violation("decision", sentence) from None
            return
        except StrataError:
            return
        if epoch != ledger.epoch or not is_current:
            return
        for body in bodies:
            known = ledger.decided.setdefault(body, (outcome, service.followed.applied))
            if known[0] is not outcome:
                raise Violation("decision", f"{body!r}: {known[0].name}, then {outcome.name}")
        ledger.counts["decisions answered"] += 1

    def schedule(self) -> str:
        """An operator cancels a delayed message, or wants it now."""
        service, frames = self._world.up(), self._world.master.queues.all
        delayed = [one for one in frames[-60:] if one.topic in (SCHEDULE_TOPIC, TIMER_TOPIC)]
        if service is None or not delayed:
            return "nothing"
        frame = self._world.chance.choice(delayed)
        wanted = self._world.chance.choice((WaitEnd.CANCELLED, WaitEnd.DELIVERED))
        service.spawn(self._end_wait(service, frame, wanted))
        return f"{wanted.name} {frame.body[:5]!r}"

    async def _end_wait(self, service: Service, frame: Frame, wanted: WaitEnd) -> None:
        ledger, epoch = self._world.ledger, self._world.ledger.epoch
        if wanted is WaitEnd.CANCELLED:
            ledger.perhaps_cancelled.add(frame.body)
        else:
            ledger.wanted_now.add(frame.body)
        source, is_current = service.levels.copies.source(frame.physical_offset), service.is_current
        try:
            await service.schedule.end(source, wanted)
        except StrataError:
            return
        ledger.counts[f"schedule: {wanted.name.lower()}"] += 1
        if wanted is WaitEnd.CANCELLED and is_current and epoch == ledger.epoch:
            ledger.cancelled[frame.body] = service.followed.applied

    def listen(self) -> str:
        """A producer answers checks from now on, as long as this service lives."""
        service = self._world.up()
        if service is not None:
            service.spawn(self._answer_checks(service))
        return "" if service is not None else "nothing"

    async def _answer_checks(self, service: Service) -> None:
        async for check in service.checkers.checks({Party(PAYERS, PAID)}):
            frame = decode(check.frame)
            assert isinstance(frame, Frame)
            self._world.ledger.counts["checks"] += 1
            half = HalfPlace(PAID, check.source.offset, frame.properties["UNIQ_KEY"])
            wish = self._wishes[frame.body]
            if wish is not None and self._world.chance.random() < 0.7:
                await self._end(service, (frame.body,), (half,), wish)
