"""Calls of a shared group's workers, for any protocol: handing out messages, and settling them.

A hand-out first reads the messages from the dispatcher, then decides, and is answered without
waiting for the log. While it reads, no other call hands out messages of that queue. A call that
settles messages is answered when the log has flushed the decision (`SharedGroups.promise`).

Workers that find nothing wait in line. An arrival, or the time at which a message is ready again,
wakes the one that has waited longest; one that leaves wakes the next.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import NamedTuple

from stratamq.errors import (
    BusyError,
    InvalidRequestError,
    NotFoundError,
    StrataError,
    UnavailableError,
)
from stratamq.files.port import Random
from stratamq.follow.fold import FoldPlace
from stratamq.follow.followed_topics import Export
from stratamq.follow.own_appends import OwnAppends
from stratamq.follow.queues import QueueCalls
from stratamq.formats.topics import retry_topic
from stratamq.service.awaiting import succeeded
from stratamq_delivery.asked_burials import AskedBurials
from stratamq_delivery.backlogs import Backlogs
from stratamq_delivery.burials import Burials
from stratamq_delivery.entries import (
    Completed,
    Configured,
    HandedOut,
    Moved,
    Started,
    Stopped,
)
from stratamq_delivery.floors import Floors
from stratamq_delivery.gone_messages import PLACES_AT_ONCE, GoneMessages
from stratamq_delivery.group_settings import SettingsOfGroups, place_of
from stratamq_delivery.judging import Judge, by_hand_out
from stratamq_delivery.known_ends import KnownEnds
from stratamq_delivery.leases import LONGEST_MS, AttemptsUnderWay, free_token, tokens_of
from stratamq_delivery.message_groups import MessageGroups
from stratamq_delivery.reading import MessageReader, ReadMessages, runs_of
from stratamq_delivery.receipts import Handed, bytes_of, encode_receipt, handed_of
from stratamq_delivery.records import GroupPlace
from stratamq_delivery.replaying import Replaying
from stratamq_delivery.replays import Replays
from stratamq_delivery.shared_groups import SharedGroups
from stratamq_delivery.shared_queue import SharedQueue
from stratamq_delivery.waiting_line import WaitingLine, Wish

OfAttempt = Callable[[int], int]
ANSWER_BYTES, READ_S = 4 << 20, 0.1


class Settled(NamedTuple):
    """What became of a receipt. `receipt` replaces it, if there is one."""

    error: StrataError | None = None
    receipt: bytes = b""


Work = Coroutine[None, None, None]


class Sharing:
    """All shared groups of a broker. Belongs to one event loop."""

    def __init__(
        self,
        groups: SharedGroups,
        replays: Replays,
        ends: KnownEnds,
        followed: FoldPlace,
        appends: OwnAppends,
        queues: QueueCalls,
        random: Random,
        moved: Callable[[], None],
        attempts: int,
    ) -> None:
        """`moved`: something was decided."""
        self._groups = groups
        self._ends = ends
        self._followed = followed
        self._appends = appends
        self._queues = queues
        self._random = random
        self._moved = moved
        self.lines = ends.lines
        self._replays, self._calls = replays, AttemptsUnderWay()
        self._reader = MessageReader(queues, lambda: groups.epoch)
        self._busy: set[GroupPlace] = set()
        """Queues of which a hand-out or a burial is being read."""
        self._gone = GoneMessages(groups, appends, queues, moved)
        self._judge = Judge(groups, followed, self._gone.minimum)
        self._floors = Floors(groups, appends, queues)
        self._backlogs = Backlogs(groups, ends, followed, appends, queues)
        self._in_order = MessageGroups(groups, self._reader)
        self.burials = Burials(groups, appends, self._reader, self._busy, moved, attempts)
        judged = groups, self._judge, self._reader
        self.asked_burials = AskedBurials(*judged, self.now_ms, self._promise)
        self.replaying = Replaying(groups, replays, followed, appends, queues, moved)

    def start(self, spawn: Callable[[Work], object], export: Export) -> None:
        """Start what is done without a call. `export` reads the log's table of topics."""
        for part in (self.burials, self._floors, self._backlogs, self._gone):
            spawn(part.run())
        spawn(self._gone.topics.follow(export))

    # --- hand out ---

    async def receive(self, wish: Wish) -> list[Handed]:
        """Messages that are this worker's until their time is over; none, if none came in time.
        NotWritableError on a slave, also when the broker becomes one; UnavailableError when the
        service stops."""
        return (await self.receive_each((wish,)))[0]

    async def receive_each(self, wishes: Sequence[Wish]) -> list[list[Handed]]:
        """The same for each of several workers of a topic, as soon as one of them has some. A queue
        that is being read for others is waited for."""
        topic = wishes[0].topic
        self._ends.begin_waiting(topic)
        try:
            with self.lines.used(wishes[0].group, topic) as line, self._calls.made(wishes):
                return await self._first_found(wishes, line)
        finally:
            self._moved()
            self._ends.end_waiting(topic)
            self._forget_unknown(topic)

    async def _first_found(self, wishes: Sequence[Wish], line: WaitingLine) -> list[list[Handed]]:
        loop, wish = asyncio.get_running_loop(), wishes[0]
        began = loop.time()
        deadline = began + wish.wait_ms / 1000
        while True:
            self.now_ms()
            self.lines.require_open()
            self._calls.require_newest(wish)
            news = line.news
            if not self._groups.settings.in_force(wish.group).enabled:
                raise InvalidRequestError(f"consuming is switched off for group {wish.group}")
            self._gone.topics.require_permission(wish.topic)
            queues = await self._all_queues_of(wish.group, wish.topic)
            handed = await self._look_for_each(wishes, line, queues)
            now = loop.time()
            looks_on = line.news != news and now < began + READ_S
            if any(handed) or (now >= deadline and self._busy.isdisjoint(queues) and not looks_on):
                return handed
            if line.news == news:
                await line.wait(max(deadline, now + READ_S), self._ready_at(queues))

    def _forget_unknown(self, topic: str) -> None:
        """A topic of which nothing was learned, because it does not exist, perhaps."""
        if not self._ends.of(topic) and not self.lines.is_used(topic):
            self._ends.drop(topic)

    async def _all_queues_of(self, group: str, topic: str) -> list[GroupPlace]:
        """Those of the topic, and of what was replayed of it for this group."""
        queues = await self._queues_of(group, topic)
        if end := self._replays.end_of(group, topic):
            retry = retry_topic(group, topic)
            # The state has the end already: the dispatcher may not have read the message yet.
            self._ends.watch(retry)
            self._ends.learn(retry, [(0, end)])
            queues += await self._queues_of(group, retry)
        return queues

    async def _queues_of(self, group: str, topic: str) -> list[GroupPlace]:
        """The topic's queues, all of which the group has from here on."""
        if self._ends.of(topic) is None:
            await self._ends.ask(topic, self._queues, self._followed.applied)
        places = [GroupPlace(group, topic, 0, queue_id) for queue_id in self._ends.of(topic) or ()]
        new = [place for place in places if self._groups.queue(place) is None]
        if new:
            floors = await self._queues.committed(group, topic)
            bounds = await self._queues.bounds(topic, self._followed.applied)
            starts = []
            for place in new:
                first = bounds.get(place.queue_id, (0, 0))[0]
                starts.append((place, max(first, floors.get(place.queue_id, first))))
            offsets = [(topic, place.queue_id, floor) for place, floor in starts]
            await self._queues.share(group, offsets)
            self.now_ms()
            for place, floor in starts:
                if self._groups.queue(place) is None:
                    self._groups.decide(place, Started(floor))
            self._moved()
        return places

    async def _again(self, wish: Wish, queues: Sequence[GroupPlace]) -> list[Handed]:
        """What this attempt was handed out already, and still has."""
        now_ms, handed = self.now_ms(), list[Handed]()
        if wish.leased:
            self.renew(wish.group, wish.client, min(wish.invisible_ms, LONGEST_MS))
        tokens = tokens_of(wish.client, wish.attempt_id)
        for place in queues if wish.attempt_id else ():
            queue = self._groups.queue(place)
            if queue is None or not queue.has_any(tokens):
                continue
            for token in tokens:
                queue = self._groups.queue(place)  # a read may have waited for a cut
                hand_out = None if queue is None else queue.hand_out(token)
                if queue is None or hand_out is None or queue.until_ms(hand_out[0]) <= now_ms:
                    continue
                hold, runs = hand_out
                for start, end in runs:
                    read = await self._reader.read(place, start, end - start, hold.attempt, token)
                    handed += handed_of(place, read, token, hold.until_ms, self._followed)
        return handed

    async def _look_for_each(
        self, wishes: Sequence[Wish], line: WaitingLine, queues: Sequence[GroupPlace]
    ) -> list[list[Handed]]:
        """An answer has no end in bytes but this one: who comes behind it asks again."""
        found: list[list[Handed]] = [[] for _ in wishes]
        size = 0
        for number, wish in enumerate(wishes):
            try:
                handed = await self._again(wish, queues) or await self._look(wish, line, queues)
            except BusyError:
                if not size:
                    raise
                break
            found[number] = handed
            size += bytes_of(handed)
            if size >= ANSWER_BYTES:
                break
        return found

    async def _look(
        self, wish: Wish, line: WaitingLine, queues: Sequence[GroupPlace]
    ) -> list[Handed]:
        """Into each queue in turn, until as much was found as is wished for; by priority into the
        highest one first, and last into what was replayed."""
        handed: list[Handed] = []
        line.turn += 1
        if self._gone.topics.is_by_priority(wish.topic):
            queues = sorted(queues, key=lambda one: (one.topic != wish.topic, -one.queue_id))
        else:
            first = line.turn % max(len(queues), 1)
            queues = [*queues[first:], *queues[:first]]
        for number, place in enumerate(queues):
            queue = self._groups.queue(place)
            most = wish.most - sum([len(one.messages) for one in handed])
            if most <= 0 or bytes_of(handed) >= ANSWER_BYTES:
                break
            if queue is None or place in self._busy or not self._has_some(place, queue):
                continue
            self._busy.add(place)
            try:
                handed += await self._hand_out(wish, line, place, most)
            except BusyError:
                if not handed and number == len(queues) - 1:
                    raise
            finally:
                self._busy.discard(place)
        return handed

    def _has_some(self, place: GroupPlace, queue: SharedQueue) -> bool:
        ready_ms = queue.next_ready_ms()
        is_ready = ready_ms is not None and ready_ms <= self.now_ms()
        return is_ready or queue.has_passed_over or queue.next < self._end_of(place)

    async def _read(
        self, wish: Wish, place: GroupPlace, queue: SharedQueue, most: int
    ) -> list[ReadMessages]:
        """What is ready again, then what a power loss left behind, then new messages."""
        now_ms, end = self.now_ms(), self._end_of(place)
        if self._groups.settings.in_force(place.group).ordered:
            reads = await self._in_order.read(place, most, now_ms, end)
            return [read.only(wish.tags) for read in reads]
        reads = []
        for (start, stop), attempt, token in queue.wanted(now_ms, most, end):
            if wish.tags and start == queue.next:
                reads.append(await self._reader.tagged(place, start, stop - start, end, wish.tags))
            else:
                read = await self._reader.read(place, start, stop - start, attempt, token)
                reads.append(read.only(wish.tags))
        return reads

    async def _hand_out(
        self, wish: Wish, line: WaitingLine, place: GroupPlace, most: int
    ) -> list[Handed]:
        queue, epoch = self._groups.queue(place), self._groups.epoch
        assert queue is not None
        try:
            reads = await self._read(wish, place, queue, most)
            self._calls.require_newest(wish)
            now_ms, queue = self.now_ms(), self._in_order.queue(place, epoch)
        except StrataError:
            self._in_order.forget(place)
            raise
        until_ms = now_ms + wish.invisible_ms
        handed, tokens = list[Handed](), dict[int, int]()
        for read in [one.still_free(queue, now_ms) for one in reads]:
            if read.attempt > self.burials.attempts(place.group):
                self.burials.bury(place, read)
                continue
            if read.left_out:
                self._groups.decide(place, Completed(read.left_out, read.token))
                line.news += 1  # there may be more behind it
            if not read.messages:
                continue
            token = tokens.get(read.attempt) or self._token(wish, place)
            tokens[read.attempt] = token
            self.burials.expect(place, read.attempt, until_ms)
            entry = HandedOut(read.runs, token, read.attempt, until_ms, wish.client, wish.leased)
            self._groups.decide(place, entry)
            handed += handed_of(place, read, token, until_ms, self._followed)
        return handed

    def _token(self, wish: Wish, place: GroupPlace) -> int:
        queue, token = self._groups.queue(place), None
        if wish.attempt_id and queue is not None:
            token = free_token(queue, wish.client, wish.attempt_id)
        return self._random.getrandbits(63) if token is None else token

    # --- settle ---

    def renew(self, group: str, client: str, for_ms: int) -> int:
        """The client lives: what it has with a lease stays hidden. Returns until when."""
        return self._groups.leases.renew(group, client, self.now_ms(), for_ms)

    async def acknowledge(self, group: str, topic: str, receipts: Sequence[bytes]) -> list[Settled]:
        """Each message is finished, or its outcome says why nothing was changed."""
        now_ms, judge, settled = self.now_ms(), self._judge, list[Settled]()
        for data in receipts:
            if (run := judge.held_run(group, topic, data, now_ms)) is not None:
                self._groups.decide(run.place, Completed(((run.start, run.end),), run.token))
                settled += [Settled()] * (run.end - run.start)
                continue
            judged = judge.each(group, topic, (data,), now_ms, finishing=Completed)
            for (place, token), offsets in by_hand_out(judged).items():
                self._groups.decide(place, Completed(tuple(runs_of(offsets)), token))
            settled += [Settled(error) for error, *_ in judged]
        await self._promise()
        return settled

    async def hide(
        self, group: str, topic: str, receipts: Iterable[bytes], for_ms: OfAttempt, *, unseen: bool
    ) -> list[Settled]:
        """Each message is ready again after `for_ms(attempt)` from now; its receipt is replaced.
        `unseen`: no worker got it, so that this was no attempt."""
        now_ms = self.now_ms()
        judged = self._judge.each(group, topic, receipts, now_ms)
        replaced: dict[tuple[GroupPlace, int], HandedOut] = {}
        for (place, old), offsets in by_hand_out(judged).items():
            queue = self._groups.queue(place)
            assert queue is not None
            hold = queue.held(offsets[0])
            sample = next(r for e, p, r in judged if not e and p == place and r.token == old)
            attempt, client = (hold.attempt, hold.client) if hold else (sample.attempt, "")
            token, until_ms = self._random.getrandbits(63), now_ms + for_ms(attempt)
            runs, attempt = tuple(runs_of(offsets)), max(0, attempt - unseen)
            new = HandedOut(runs, token, attempt, until_ms, client, False)
            self._groups.decide(place, Moved(runs, old, new))
            self.burials.expect(place, attempt, until_ms)
            replaced[place, old] = new
        outcomes = []
        for error, place, receipt in judged:
            if error is not None:
                outcomes.append(Settled(error))
                continue
            new = replaced[place, receipt.token]
            new_receipt = receipt._replace(
                token=new.token, attempt=new.attempt, until_ms=new.until_ms
            )
            outcomes.append(Settled(None, encode_receipt(place, new_receipt)))
        await self._promise()
        self.lines.wake(group, topic)
        return outcomes

    async def _promise(self) -> None:
        def promise(done: Callable[[StrataError | None], None]) -> None:
            self._groups.promise(done)
            self._moved()

        await succeeded(promise)

    # --- the groups ---

    def settings(self) -> SettingsOfGroups:
        self.now_ms()
        return self._groups.settings

    async def configure(self, group: str, settings: Configured | None) -> None:
        """How the group is served from now on; None: as the broker's settings say."""
        self.now_ms()
        self._groups.decide(place_of(group), Stopped() if settings is None else settings)
        self.burials.look_again()
        await self._promise()

    async def queues_of(
        self, group: str, only: tuple[str, int] | None = None
    ) -> list[tuple[GroupPlace, SharedQueue]]:
        """Those that the group has, in order, or one of a topic and number alone."""
        self.now_ms()
        found, is_shared = [], False
        for number, place in enumerate(self._groups.places()):
            if number % PLACES_AT_ONCE == PLACES_AT_ONCE - 1:
                await asyncio.sleep(0)
            if place.group == group and (queue := self._groups.queue(place)) is not None:
                is_shared = True
                if only in (None, (place.topic, place.queue_id)):
                    found.append((place, queue))
        if not is_shared:
            raise NotFoundError(f"group {group} is not shared")
        return sorted(found, key=lambda one: one[0])

    async def stop(self, group: str) -> int:
        """The group commits its own offsets again. Returns how many queues it had."""
        queues = await self.queues_of(group)
        floors = [(place.topic, place.queue_id, queue.floor) for place, queue in queues]
        for place, _ in queues:
            self._groups.decide(place, Stopped())
        await self._promise()
        await self._queues.share(group, floors, shared=False)
        return len(queues)

    # --- inside ---

    def now_ms(self) -> int:
        """The store's clock. StrataError where this service does not decide."""
        self._appends.require_active("delivery")
        now_ms = self._appends.time.now_ms()
        if now_ms is None:
            raise UnavailableError("the delivery service does not hand out yet")
        self._groups.leases.begin(self._groups.epoch, now_ms)
        return now_ms

    def _end_of(self, place: GroupPlace) -> int:
        return (self._ends.of(place.topic) or {}).get(place.queue_id, 0)

    def _ready_at(self, queues: Sequence[GroupPlace]) -> float:
        """When the first message is ready again, by the loop's clock."""
        times = [
            ready_ms
            for place in queues
            if (queue := self._groups.queue(place)) is not None
            and (ready_ms := queue.next_ready_ms()) is not None
        ]
        now_ms = self._appends.time.now_ms()
        if not times or now_ms is None:
            return float("inf")
        # At least a little later: a queue that another worker is reading has its time over.
        return asyncio.get_running_loop().time() + max(5, min(times) - now_ms) / 1000
