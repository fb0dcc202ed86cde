"""Order within message groups: over every interleaving, and on a broker of processes."""

import asyncio
import random
from types import SimpleNamespace

import grpc
import pytest
from stratamq_delivery.entries import Completed, Configured, HandedOut, Moved, Started
from stratamq_delivery.group_settings import place_of
from stratamq_delivery.message_groups import MessageGroups
from stratamq_delivery.reading import ReadMessages
from stratamq_delivery.records import GroupPlace
from stratamq_delivery.shared_groups import SharedGroups
from stratamq_delivery.shared_queue import MAX_UNFINISHED, Hold

from stratamq.client import connect
from stratamq.errors import BusyError, InvalidRequestError, NotFoundError
from stratamq.follow.fold import FoldPlace
from stratamq.formats.properties import MESSAGE_GROUP
from tests.delivery.test_sharing import (
    DELIVERY,
    ROOMS,
    acknowledge,
    dead_letters,
    drained,
    numbers,
    receive,
    settle,
)
from tests.support.brokers import Broker
from tests.support.sampling import few
from tests.support.waiting import until

PLACE = GroupPlace("billing", "orders", 0, 0)
SEEDS = few(range(60), 12)


class Messages:
    """A queue whose messages have these message groups; "": none. Reads as the dispatcher's do."""

    def __init__(self, keys: list[str]) -> None:
        self.keys = keys
        self.minimum = 0
        self.read_messages = 0

    async def read(self, place, start, count, attempt, token) -> ReadMessages:
        await asyncio.sleep(0)
        first = min(max(start, self.minimum), start + count)
        end = min(start + count, len(self.keys))
        messages = [
            SimpleNamespace(queue_offset=offset, properties={MESSAGE_GROUP: self.keys[offset]})
            for offset in range(first, end)
        ]
        self.read_messages += len(messages)
        return ReadMessages((start, first), messages, attempt, token)


class Queue:
    """One queue of an ordered group, with workers that do anything."""

    def __init__(self, keys: list[str]) -> None:
        self.messages = Messages(keys)
        self.groups = SharedGroups(FoldPlace())
        self.groups.decide(PLACE, Started(0))
        self.start()
        self.now_ms = 0
        self.tokens = 0
        self.held: dict[int, tuple[int, int]] = {}
        """By offset: token and until."""
        self.finished: list[int] = []

    def start(self) -> None:
        """The service starts: what it knew of message groups is gone."""
        self.groups.orders.of.clear()
        self.order = MessageGroups(self.groups, self.messages)

    def hand_out(self, most: int, for_ms: int = 10) -> list[int]:
        reads = asyncio.run(self.order.read(PLACE, most, self.now_ms, len(self.messages.keys)))
        given = []
        for read in reads:
            if read.gone[0] < read.gone[1]:
                self.groups.decide(PLACE, Completed((read.gone,), read.token))
            if not read.messages:
                continue
            self.tokens += 1
            until_ms = self.now_ms + for_ms
            entry = HandedOut(read.runs, self.tokens, read.attempt, until_ms, "a", False)
            self.groups.decide(PLACE, entry)
            for message in read.messages:
                self.held[message.queue_offset] = self.tokens, until_ms
                given.append(message.queue_offset)
        return given

    def acknowledge(self, offset: int) -> None:
        token, _ = self.held.pop(offset)
        self.groups.decide(PLACE, Completed(((offset, offset + 1),), token))
        self.finished.append(offset)

    def give_back(self, offset: int, for_ms: int) -> None:
        old, _ = self.held[offset]
        self.tokens += 1
        run, until_ms = ((offset, offset + 1),), self.now_ms + for_ms
        new = HandedOut(run, self.tokens, 1, until_ms, "a", False)
        self.groups.decide(PLACE, Moved(run, old, new))
        self.held[offset] = self.tokens, until_ms

    def check(self, given: list[int]) -> None:
        """Each message group has one message handed out, its first that is not finished."""
        keys, unfinished = self.messages.keys, {*range(len(self.messages.keys))}
        unfinished -= {*self.finished}
        for offset in given:
            key = keys[offset]
            first = min(one for one in unfinished if keys[one] == key)
            assert not key or offset == first, "a successor before the first"
        held = [
            keys[offset]
            for start, end, holder in self.groups.queue(PLACE)
            for offset in range(start, end)
            if isinstance(holder, Hold) and keys[offset]
        ]
        assert len(held) == len({*held}), "two of a message group at a time"


@pytest.mark.parametrize("seed", SEEDS)
def test_of_each_message_group_one_message_at_a_time_and_in_order(seed):
    chance = random.Random(seed)
    names = ["", *"abcdefgh"[: chance.randrange(1, 9)]]
    queue = Queue([chance.choice(names) for _ in range(chance.randrange(1, 120))])
    for _ in range(4_000):
        match chance.randrange(5):
            case 0:
                most = chance.randrange(1, 6)
                given = queue.hand_out(most)
                assert len(given) <= most
                queue.check(given)
            case 1 | 2 if queue.held:
                queue.acknowledge(chance.choice([*queue.held]))
            case 3 if queue.held:
                queue.give_back(chance.choice([*queue.held]), chance.randrange(1, 20))
            case 4:
                queue.now_ms += chance.randrange(1, 15)
                if chance.random() < 0.1:
                    queue.start()
        if len(queue.finished) == len(queue.messages.keys):
            break
    assert sorted(queue.finished) == [*range(len(queue.messages.keys))], "all, each once"


def test_a_message_group_that_stands_still_holds_up_no_other_and_is_read_once():
    keys = ["stuck"] * 3_000 + ["free"] + ["stuck"] * 3_000
    queue = Queue(keys)
    assert queue.hand_out(1, for_ms=1 << 40) == [0]
    assert queue.hand_out(1) == [3_000]
    queue.acknowledge(3_000)
    for _ in range(100):
        assert queue.hand_out(32) == []
    assert queue.messages.read_messages < 2 * len(keys)
    assert len([*queue.groups.queue(PLACE)]) == 4, "its successors are a run"
    queue.acknowledge(0)
    assert queue.hand_out(32) == [1]


def test_what_waits_for_a_message_group_is_bounded():
    queue = Queue(["stuck"] * (MAX_UNFINISHED + 10))
    assert queue.hand_out(1) == [0]
    with pytest.raises(BusyError, match="100000 messages"):
        queue.hand_out(1)
    queue.acknowledge(0)
    assert queue.hand_out(1) == [1]


def test_messages_that_the_log_has_deleted_hold_nothing_up():
    queue = Queue(["a", "a", "a", "b", "a"])
    assert queue.hand_out(9) == [0, 3]
    queue.messages.minimum = 3
    queue.acknowledge(0)
    for _ in range(2):
        assert queue.hand_out(9) == [], "the next one is gone, which is decided now"
    assert queue.hand_out(9) == [4]
    queue.start()
    queue.messages.minimum = 5
    queue.now_ms = 10
    assert queue.hand_out(9) == [] and queue.groups.queue(PLACE).floor == 5


def test_what_an_acknowledgement_of_a_lost_hand_out_left_behind_is_handed_out():
    queue = Queue(["a", "", "a", "b"])
    queue.groups.decide(PLACE, Completed(((2, 3),), 7))
    assert sorted(queue.hand_out(9)) == [0, 1, 3]


# --- on a broker ---


@pytest.fixture
def broker(tmp_path):
    with Broker(tmp_path / "store", tmp_path / "logs") as broker:
        yield broker.start(ROOMS)


def fill(broker: Broker, keys: str) -> None:
    """One message of each message group that is named, in one queue; "-": of none."""
    with connect(broker.root, retry_timeout_s=60) as client, client.producer() as producer:
        for number, key in enumerate(keys):
            properties = {} if key == "-" else {MESSAGE_GROUP: key}
            producer.send("orders", b"%d" % number, queue_id=0, properties=properties)


def test_a_group_in_order_on_a_broker_that_is_killed(broker):
    fill(broker, "aab-abb")
    with connect(broker.root, retry_timeout_s=60) as client:
        settings = client.admin.create_group("billing", ordered=True, retries=1)
        assert (settings.ordered, settings.retries) == (True, 1)
        with pytest.raises(InvalidRequestError, match="has settings"):
            client.admin.create_group("billing")
        first = receive(broker)
        assert numbers(first) == [0, 2, 3] and not receive(broker, wait_ms=0)
        # An answer of the log: what was handed out before is in it, too.
        settle(broker, "ChangeInvisibleTime", first[1:], invisible_ms=3_600_000)
        broker.kill(DELIVERY)
        broker.start((DELIVERY,))
        assert not receive(broker, wait_ms=0), "what is held is held, and its successors wait"
        assert acknowledge(broker, first[:1]) == [""]
        (second,) = receive(broker)
        assert numbers([second]) == [1]
        # It fails, and is handed out again before its successor, until it is a dead letter.
        settle(broker, "ReturnMessages", [second], invisible_ms=1)
        (again,) = receive(broker)
        assert numbers([again]) == [1] and again.attempt == 2
        settle(broker, "ReturnMessages", [again], invisible_ms=1)
        assert numbers(receive(broker)) == [4]
        until(lambda: len(dead_letters(broker)) == 1, "the one that failed is a dead letter")
        (found,) = client.group_settings("billing")
        assert found == settings
        client.admin.alter_group("billing", ordered=False)
        assert numbers(drained(broker)) == [5, 6]


def test_settings_of_a_group(broker):
    fill(broker, "a")
    with connect(broker.root, retry_timeout_s=60) as client:
        with pytest.raises(NotFoundError, match="no settings"):
            client.group_settings("billing")
        made = client.admin.alter_group("billing", consume_enabled=False)
        assert (made.ordered, made.retries, made.consume_enabled) == (False, 16, False)
        with pytest.raises(grpc.RpcError, match="switched off for group billing"):
            receive(broker)
        broker.kill_all()
        (broker.root / "stratamq" / "delivery.json").unlink(missing_ok=True)
        broker.start(ROOMS)
        assert client.group_settings("billing") == [made] == client.group_settings()
        with pytest.raises(InvalidRequestError, match="retries is from 0 to 9999"):
            client.admin.alter_group("billing", retries=10_000)
        client.admin.delete_group_settings("billing")
        with pytest.raises(NotFoundError):
            client.group_settings("billing")
    assert numbers(receive(broker)) == [0]


def test_settings_are_in_the_whole_state_and_in_the_snapshot():
    groups = SharedGroups(FoldPlace())
    for number in range(600):
        groups.decide(place_of(f"g{number}"), Configured(ordered=True, attempts=number))
    pieces = [*groups._whole()]
    folded = SharedGroups(FoldPlace())
    for piece in pieces:
        for place, entry in piece.entries:
            folded._enter(place, entry, is_piece=True)
    assert pieces[0].is_first and pieces[-1].is_last and not pieces[1].is_first
    restored = SharedGroups(FoldPlace())
    restored.restore(folded.snapshot()())
    assert len(restored.settings.folded) == 600
    assert restored.settings.in_force("g599") == Configured(ordered=True, attempts=599)
