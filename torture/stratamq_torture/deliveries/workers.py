"""Workers of shared groups, and those who administer the groups. Each public method is something
that may happen next, and says what it was.
"""

from stratamq_delivery.entries import Configured
from stratamq_delivery.receipts import SingleMessage
from stratamq_delivery.records import GroupPlace
from stratamq_delivery.waiting_line import Wish

from stratamq.errors import InvalidRequestError, StrataError
from stratamq.formats.frame import Frame, decode
from stratamq.formats.properties import TAGS
from stratamq_torture.deliveries.ledger import (
    STEPS,
    WORK,
    Held,
    tags_of,
)
from stratamq_torture.deliveries.service import Service
from stratamq_torture.deliveries.world import World
from stratamq_torture.trial import Violation

GROUPS = {"pool": WORK, "audit": WORK, "red": WORK, "line": STEPS}
"""And what they read."""
AT_ONCE_MS = 1
"""Clients give back for so long what no worker got."""


class Workers:
    """All of them. What one was given it keeps in its hands, whatever became of it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._held: list[Held] = []

    def receive(self) -> str:
        service, chance = self._world.up(), self._world.chance
        if service is None:
            return "nothing"
        group = chance.choice((*GROUPS, "pool", "line"))
        wish = Wish(
            group,
            GROUPS[group],
            f"worker {chance.randrange(4)}",
            chance.randint(1, 6),
            chance.choice((50, 1_000, 5_000, 30_000)),
            chance.choice((0, 0, 500, 3_000)),
            attempt_id=chance.choice(("", f"{chance.getrandbits(32)}")),
            leased=chance.random() < 0.1,
            tags=tags_of(group),
        )
        service.spawn(self.hand_out(service, wish, chance.random() < 0.3))
        return f"{wish.client} of {group}"

    async def hand_out(self, service: Service, wish: Wish, again: bool) -> list[Held]:
        """`again`: the answer is lost, and the worker asks once more."""
        ledger, ordered = self._world.ledger, wish.group == "line"
        asked_at, epoch = ledger.begin(), ledger.epoch
        try:
            in_force = service.groups.settings.in_force(wish.group)
            if in_force.ordered is not ordered:
                await service.sharing.configure(wish.group, Configured(ordered=ordered))
            asked_ms = service.sharing.now_ms()
            handed = await handed_to(service, wish)
            taken = self._take(service, wish, handed, asked_at, epoch)
            if again and wish.attempt_id and handed:
                known = [one.receipt for one in taken]
                await self._ask_again(service, wish, known, asked_ms + wish.invisible_ms)
        except StrataError:
            return []
        self._held += taken
        return taken

    async def _ask_again(
        self, service: Service, wish: Wish, known: list[bytes], until_ms: int
    ) -> None:
        """No hand-out of the first answer ends before `until_ms`."""
        ledger, epoch = self._world.ledger, self._world.ledger.epoch
        handed = await handed_to(service, wish)
        if epoch != ledger.epoch or service.sharing.now_ms() >= until_ms:
            return
        ledger.counts["asked again"] += 1
        has = {one.receipt for one in ledger.holds.values()}
        if has.issuperset(known) and not {*known} <= {one.receipt for one in handed}:
            raise Violation("again", f"{wish.client} gets fewer than before")

    def _take(
        self, service: Service, wish: Wish, handed: list[SingleMessage], asked_at: int, epoch: int
    ) -> list[Held]:
        now_ms, taken = service.sharing.now_ms(), []
        for one in handed:
            frame = decode(one.frame)
            assert isinstance(frame, Frame)
            if wish.tags and frame.properties.get(TAGS) not in wish.tags:
                raise Violation("tag", f"{frame.body!r} is handed to {wish.group}")
            held = Held(wish.group, wish.topic, frame.body, one.receipt, one.until_ms, wish.client)
            self._world.ledger.handed(held, asked_at, epoch, now_ms, wish.leased)
            state = service.groups.queue(GroupPlace(wish.group, wish.topic, 0, frame.queue_id))
            if wish.group == "line" and state is not None and epoch == self._world.ledger.epoch:
                known = self._world.master.queues.messages.get((wish.topic, frame.queue_id), [])
                self._world.ledger.in_order(wish.group, frame, [one for one, _ in known], state)
            taken.append(held)
        return taken

    def _some_held(self) -> list[Held]:
        """A worker settles what one call gave it, or several."""
        chance = self._world.chance
        if not self._held:
            return []
        first = chance.choice(self._held[-20:])
        alike = [one for one in self._held[-40:] if one.group == first.group]
        some = [first, *chance.sample(alike, min(len(alike), chance.choice((0, 2, 5))))]
        return list({one.receipt: one for one in some}.values())

    def acknowledge(self) -> str:
        service, some = self._world.up(), self._some_held()
        some = [one for one in some if not is_poison(one)]
        if service is None or not some:
            return "nothing"
        service.spawn(self.settle(service, some))
        return f"{some[0].group} {[one.body[:5] for one in some]}"

    async def settle(self, service: Service, some: list[Held]) -> None:
        ledger, epoch = self._world.ledger, self._world.ledger.epoch
        ledger.acknowledges(some)
        is_current = service.is_current
        receipts = [one.receipt for one in some]
        try:
            settled = await service.sharing.acknowledge(some[0].group, some[0].topic, receipts)
        except StrataError:
            return
        for one, outcome in zip(some, settled, strict=True):
            end = service.followed.applied if is_current and epoch == ledger.epoch else None
            ledger.settled(one, outcome.error is not None, end)

    def give_back(self) -> str:
        service, some = self._world.up(), self._some_held()
        if service is None or not some:
            return "nothing"
        service.spawn(
            self._hide(service, some, self._world.chance.choice((AT_ONCE_MS, 500, 10_000)))
        )
        return f"{some[0].group} {[one.body[:5] for one in some]}"

    async def _hide(self, service: Service, some: list[Held], for_ms: int) -> None:
        ledger = self._world.ledger
        group, topic = some[0].group, some[0].topic
        for one in some:
            ledger.holds.pop((group, one.body), None)
        receipts = [one.receipt for one in some]
        try:
            settled = await service.sharing.hide(
                group, topic, receipts, lambda _: for_ms, unseen=for_ms == AT_ONCE_MS
            )
        except StrataError:
            return
        for one, outcome in zip(some, settled, strict=True):
            if outcome.error is None:
                one.receipt = outcome.receipt
                ledger.counts["returned"] += 1

    def renew(self) -> str:
        service, client = self._world.up(), f"worker {self._world.chance.randrange(4)}"
        if service is None or not service.appends.is_active:
            return "nothing"
        service.sharing.renew(self._world.chance.choice([*GROUPS]), client, 10_000)
        return client

    def configure(self) -> str:
        service, chance = self._world.up(), self._world.chance
        if service is None:
            return "nothing"
        group, attempts = chance.choice([*GROUPS]), chance.choice((0, 2, 4))
        settings = Configured(group == "line", attempts, chance.random() < 0.7)
        service.spawn(self._configured(service, group, settings))
        return f"{group}: {settings}"

    async def _configured(self, service: Service, group: str, settings: Configured) -> None:
        try:
            await service.sharing.configure(group, settings)
        except StrataError:
            return
        if service.groups.settings.in_force(group) is settings and not settings.enabled:
            try:
                await service.sharing.receive(Wish(group, GROUPS[group], "w", 1, 1_000, 0))
            except InvalidRequestError:
                self._world.ledger.counts["refused: switched off"] += 1
            except StrataError:
                return
            else:
                raise Violation("enabled", f"{group} is switched off, and gets messages")

    def stop_sharing(self) -> str:
        service = self._world.up()
        if service is None:
            return "nothing"
        service.spawn(self._stop(service, "audit"))
        return ""

    async def _stop(self, service: Service, group: str) -> None:
        ledger = self._world.ledger
        ledger.stop(group)
        try:
            await service.sharing.stop(group)
            ledger.counts["stopped sharing"] += 1
        except StrataError:
            return
        finally:
            ledger.stop(group)
            ledger.stopping.discard(group)


async def handed_to(service: Service, wish: Wish) -> list[SingleMessage]:
    return [message for one in await service.sharing.receive(wish) for message in one.each()]


def is_poison(one: Held) -> bool:
    """Every seventh message is one that no worker ever acknowledges."""
    return int(one.body[:5]) % 7 == 0
