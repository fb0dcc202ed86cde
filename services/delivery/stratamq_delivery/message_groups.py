"""Order within message groups: a queue of an ordered group has at most one message of each message
group handed out and not finished, and hands them out in the order of the queue.

Only the message itself names its message group; the delivery's records do not. Unfinished messages
are read once, when a worker first asks after a start or a change of the master. From then on each
message is read when it is passed over, and when its turn comes. Memory holds runs: consecutive
messages of a message group are one.
"""

from stratamq.errors import UnavailableError
from stratamq.formats.properties import MESSAGE_GROUP
from stratamq_delivery.entries import Completed, PassedOver
from stratamq_delivery.queue_order import Key, QueueOrder
from stratamq_delivery.reading import CheckedMessage, MessageReader, ReadMessages, runs_of
from stratamq_delivery.records import GroupPlace
from stratamq_delivery.shared_groups import SharedGroups
from stratamq_delivery.shared_queue import SharedQueue

READ_MESSAGES = 256


class MessageGroups:
    """Reads what may be handed out of queues of ordered groups. Belongs to one event loop; a queue
    is read by one call at a time."""

    def __init__(self, groups: SharedGroups, reader: MessageReader) -> None:
        self._groups = groups
        self._reader = reader
        self._orders = groups.orders.of
        self._epoch = groups.epoch

    def forget(self, place: GroupPlace) -> None:
        self._orders.pop(place, None)

    async def read(self, place: GroupPlace, most: int, now_ms: int, end: int) -> list[ReadMessages]:
        """What is ready again, then what its message group no longer holds back, then new messages
        below `end`. Those that have to wait are decided to be passed over."""
        epoch = self._groups.epoch
        if self._epoch != epoch:
            self._orders.clear()
            self._epoch = epoch
        queue = self.queue(place, epoch)
        reads: list[ReadMessages] = []
        for (start, stop), hold in queue.ready(now_ms, most):
            count = stop - start
            reads.append(await self._reader.read(place, start, count, hold.attempt + 1, hold.token))
            most -= count
        order = await self._caught_up(place, epoch)
        for start, stop in runs_of(order.free(self.queue(place, epoch), most)):
            reads.append(await self._reader.read(place, start, stop - start, 1, 0))
            most -= stop - start
        if most > 0 and (not reads or self.queue(place, epoch).has_room):
            reads += await self._new(place, most, end, epoch)
        return reads

    async def _caught_up(self, place: GroupPlace, epoch: int) -> QueueOrder:
        """Every unfinished message of the queue is seen."""
        queue = self.queue(place, epoch)
        order = self._orders.setdefault(place, QueueOrder(queue.floor))
        order.drop_below(queue.floor)
        while order.end < queue.next:
            start = queue.first_unfinished(order.end, queue.next)
            order.skip_to(queue.next if start is None else start)
            if start is None:
                break
            count = min(READ_MESSAGES, queue.next - start)
            read = await self._reader.read(place, start, count, 1, 0)
            queue = self.queue(place, epoch)
            if read.gone[0] < read.gone[1]:
                self._groups.decide(place, Completed((read.gone,), 0))
                order.skip_to(read.gone[1])
                queue = self.queue(place, epoch)
            elif not read.messages:
                raise UnavailableError(f"queue {place.queue_id} of {place.topic} cannot be read")
            for message in read.messages:
                offset = message.queue_offset
                key: Key | None = _message_group(message)
                if queue.first_unfinished(offset, offset + 1) is None:
                    key = None
                elif key is None and queue.held(offset) is None:
                    key = offset
                order.add(offset, key)
                order.change(key)
        return self._orders.setdefault(place, order)

    async def _new(self, place: GroupPlace, most: int, end: int, epoch: int) -> list[ReadMessages]:
        """Never handed out: `most` messages at the most, each of another message group."""
        count = most
        while (start := (queue := self.queue(place, epoch)).next) < end:
            count = min(count, end - start, queue.room())
            read = await self._reader.read(place, start, count, 1, 0)
            order = await self._caught_up(place, epoch)
            queue = self.queue(place, epoch)
            if queue.next != start:
                # An acknowledgement of a hand-out that a power loss took.
                continue
            chosen = self._choose(place, read, order, queue, most)
            if chosen.messages:
                return [chosen]
            if not read.messages:
                return []
            count = READ_MESSAGES
        return []

    def _choose(
        self,
        place: GroupPlace,
        read: ReadMessages,
        order: QueueOrder,
        queue: SharedQueue,
        most: int,
    ) -> ReadMessages:
        first, stop = read.gone
        if first < stop:
            self._groups.decide(place, Completed((read.gone,), 0))
        at = first = stop
        chosen = list[CheckedMessage]()
        for message in read.messages:
            if len(chosen) == most:
                break
            key = _message_group(message)
            if not order.is_locked(key, queue):
                chosen.append(message)
            order.add(message.queue_offset, key)
            at = message.queue_offset + 1
        if at - first > len(chosen):
            self._groups.decide(place, PassedOver(((first, at),)))
        return ReadMessages((first, first), chosen, read.attempt, read.token)

    def queue(self, place: GroupPlace, epoch: int) -> SharedQueue:
        """Return it as it is now: a decision may replace it. UnavailableError: the log may have
        been cut since."""
        queue = self._groups.queue(place)
        if queue is None or self._groups.epoch != epoch:
            raise UnavailableError("the log has changed its master, or was restarted: ask again")
        return queue


def _message_group(message: CheckedMessage) -> str | None:
    return message.properties.get(MESSAGE_GROUP) or None
