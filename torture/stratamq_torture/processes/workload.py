"""Producers and consumers that run while services die, and record what they received.

Three kinds of producers: a fast stream that never sends twice, a fast stream that sends again what
was not answered, and unary calls one at a time, which do, too. Two kinds of consumers: one follows
a topic with `consume`, one pulls queue by queue. They know nothing of kills: a call that fails is
noted and the next one tried.
"""

import random
import threading
from collections import deque
from pathlib import Path

from stratamq.client import (
    Client,
    Consumer,
    Delivery,
    Message,
    Producer,
    PullStatus,
    SendResult,
    connect,
)
from stratamq.client.received import ReceivedMessage
from stratamq.errors import (
    NotWritableError,
    OffsetOutOfRangeError,
    StrataError,
    UnavailableError,
)
from stratamq.files.clock import SystemClock
from stratamq_torture.processes.ledger import GROUP, QUEUES, TOPICS, Ledger, Messages, Queue
from stratamq_torture.processes.services import until

ANSWER_LIMIT_S = 60.0
"""No answer for so long, with the services up again, is a fault of its own."""
TIMEOUT_S = 20.0
"""The limit of a unary call: longer than any pause of a trial, so that each has an end."""
RETRY_WAIT_S = 0.02
BURSTS_IN_FLIGHT = 4
LARGEST_BURST = 32
STREAM, REPEATING, UNARY = 0, 1, 2
PRODUCER_KINDS = (STREAM, REPEATING, UNARY)


class Workload:
    """Over the broker in `root`. `pace_s` is the longest rest of a producer between two bursts.
    Producers are numbered from `first_producer` on: two workloads of the same
    messages have others.

    `with Workload(…)` starts it paused; `resume` and `pause` may be called repeatedly. When `pause`
    has returned, what the threads received is complete, and everything sent is answered or given
    up.
    """

    def __init__(
        self,
        root: Path,
        messages: Messages,
        ledger: Ledger,
        *,
        pace_s: float = 0.04,
        kinds: tuple[int, ...] = PRODUCER_KINDS,
        consumers: bool = True,
        first_producer: int = 0,
    ) -> None:
        self.ledger = ledger
        self.messages = messages
        self._root = root
        self._pace_s = pace_s
        self._clock = SystemClock()
        self._go = threading.Event()
        self._ended = threading.Event()
        producers = list(enumerate(kinds, first_producer))
        self._resting = {number: threading.Event() for number, _ in producers}
        self._sent = dict.fromkeys(self._resting, 0)
        self._client = connect(root, timeout_s=TIMEOUT_S)
        self._followers: list[Consumer] = []
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._produce, args=(number, kind), name=f"producer-{number}")
            for number, kind in producers
        ]
        if consumers:
            self._threads += [
                threading.Thread(target=self._follow, args=(TOPICS[0],), name="follower"),
                threading.Thread(target=self._pull, name="puller"),
            ]

    @property
    def sent(self) -> int:
        """Messages given up for sending so far."""
        return sum(self._sent.values())

    @property
    def unanswered(self) -> int:
        """Messages that were given up for sending and not answered yet."""
        ledger = self.ledger
        return self.sent - len(ledger.acknowledged) - len(ledger.perhaps) - len(ledger.refused)

    @property
    def client(self) -> Client:
        """A client of the broker, for questions of others."""
        return self._client

    def resume(self) -> None:
        for each in self._resting.values():
            each.clear()
        self._go.set()

    def pause(self) -> None:
        """Return when every producer rests, everything answered. The services must be up."""
        self._go.clear()
        for each in self._resting.values():
            if not each.wait(ANSWER_LIMIT_S + TIMEOUT_S):
                self.ledger.fault(f"a producer had no answer within {ANSWER_LIMIT_S} s")

    def __enter__(self) -> "Workload":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End producers and consumers. Once more does nothing."""
        self._ended.set()
        self._go.set()
        with self._lock:
            followers = list(self._followers)
        for consumer in followers:
            consumer.close()
        for thread in self._threads:
            thread.join(ANSWER_LIMIT_S)
            if thread.is_alive():
                self.ledger.fault(f"the {thread.name} did not end within {ANSWER_LIMIT_S} s")
        self._client.close()

    # --- producers ---

    def _produce(self, number: int, kind: int) -> None:
        chance = random.Random(f"{self.messages.seed}/{number}")
        while not self._ended.is_set():
            if not self._go.is_set():
                self._resting[number].set()
                self._go.wait()
                continue
            if kind == UNARY:
                self._call(number)
                self._ended.wait(chance.random() * self._pace_s / LARGEST_BURST)
            else:
                self._stream(number, kind, chance)

    def _next(self, number: int) -> Message:
        message = self.messages.message(number, self._sent[number])
        self._sent[number] += 1
        return message

    def _call(self, number: int) -> None:
        message = self._next(number)
        try:
            result = self._client.send_message(message)
        except StrataError as error:
            self.ledger.failed(message.unique_key or "", error)
            self._ended.wait(RETRY_WAIT_S)
        else:
            self.ledger.answer(message.unique_key or "", result, self._clock.monotonic_ns())

    def _stream(self, number: int, kind: int, chance: random.Random) -> None:
        """One producer of the client's, until the workload pauses."""
        retry = kind == REPEATING
        in_flight: deque[list[tuple[str, Delivery]]] = deque()
        arrived: dict[int, int] = {}

        def note(result: SendResult) -> None:
            if result.stored:
                arrived[result.physical_offset] = self._clock.monotonic_ns()

        producer = self._client.producer(
            on_result=note, retry=retry, linger_ms=1.0, batch_bytes=16 << 10
        )
        try:
            while self._go.is_set() and not self._ended.is_set():
                failed = self._burst(producer, number, chance.randint(1, LARGEST_BURST), in_flight)
                if len(in_flight) > BURSTS_IN_FLIGHT:
                    failed |= self._collect(in_flight.popleft(), arrived)
                self._ended.wait(RETRY_WAIT_S if failed else chance.random() * self._pace_s)
            while in_flight:
                self._collect(in_flight.popleft(), arrived)
        finally:
            try:
                producer.close(1.0)
            except StrataError as error:
                self.ledger.fault(f"a producer that had all its answers did not close: {error}")

    def _burst(
        self,
        producer: Producer,
        number: int,
        count: int,
        in_flight: deque[list[tuple[str, Delivery]]],
    ) -> bool:
        deliveries = []
        failed = False
        for _ in range(count):
            message = self._next(number)
            key = message.unique_key or ""
            try:
                deliveries.append((key, producer.send_message(message)))
            except StrataError as error:
                self.ledger.failed(key, error)
                failed = True
        in_flight.append(deliveries)
        return failed

    def _collect(self, deliveries: list[tuple[str, Delivery]], arrived: dict[int, int]) -> bool:
        """Wait for the answers; `arrived` has their times, by log offset. True when one failed."""
        failed = False
        for key, delivery in deliveries:
            try:
                result = delivery.result(ANSWER_LIMIT_S)
            except StrataError as error:
                self.ledger.failed(key, error)
                failed = True
            else:
                now_ns = self._clock.monotonic_ns()
                at_ns = arrived.pop(result.physical_offset, now_ns)
                self.ledger.answer(key, result, at_ns)
        return failed

    # --- consumers ---

    def _saw(self, message: ReceivedMessage, queue: Queue, offset: int) -> None:
        if (message.topic, message.queue_id, message.queue_offset) != (*queue, offset):
            self.ledger.fault(
                f"{queue[0]}/{queue[1]} at {offset} gave {message.topic}/{message.queue_id} "
                f"at {message.queue_offset}"
            )
        difference = self.messages.difference(message)
        if difference:
            self.ledger.fault(f"consumers of {queue[0]}/{queue[1]} at {offset}: {difference}")
        self.ledger.saw(*queue, offset, place_of(message))

    def _follow(self, topic: str) -> None:
        """One `consume` forever: each queue without a gap and without a repetition."""
        expected: dict[Queue, int] = {}
        consumer = self._open_follower(topic)
        if consumer is None:
            return
        try:
            for message in consumer:
                queue = (message.topic, message.queue_id)
                self._saw(message, queue, expected.get(queue, 0))
                expected[queue] = message.queue_offset + 1
        except StrataError as error:
            if not self._ended.is_set():
                self.ledger.fault(f"a consumer that follows ended: {type(error).__name__}: {error}")

    def _open_follower(self, topic: str) -> Consumer | None:
        while not self._ended.is_set():
            try:
                consumer = self._client.consume(topic, follow=True, refresh_s=0.5)
            except UnavailableError:
                self._ended.wait(RETRY_WAIT_S)
                continue
            with self._lock:
                self._followers.append(consumer)
            return consumer
        return None

    def _pull(self) -> None:
        """Queue by queue, from where the last pull ended."""
        queues = [(topic, queue_id) for topic in TOPICS[1:] for queue_id in range(QUEUES)]
        offsets = dict.fromkeys(queues, 0)
        client = connect(self._root, timeout_s=TIMEOUT_S)
        while not self._ended.is_set():
            found = False
            for queue in queues:
                try:
                    found |= self._pull_once(client, queue, offsets)
                except (UnavailableError, OffsetOutOfRangeError):
                    self._ended.wait(RETRY_WAIT_S)
                except StrataError as error:
                    self.ledger.fault(f"a pull failed: {type(error).__name__}: {error}")
                    self._ended.wait(RETRY_WAIT_S)
            if found:
                self._commit(client, offsets)
            else:
                self._ended.wait(RETRY_WAIT_S)
        client.close()

    def _commit(self, client: Client, offsets: dict[Queue, int]) -> None:
        self.ledger.tried_to_commit(offsets)
        try:
            client.commit_offsets(GROUP, offsets)
        except (UnavailableError, NotWritableError, OffsetOutOfRangeError):
            # The next commit repeats it, here or at the new master; of messages that were lost
            # unacknowledged the reader learns by its next pull.
            self._ended.wait(RETRY_WAIT_S)

    def _pull_once(self, client: Client, queue: Queue, offsets: dict[Queue, int]) -> bool:
        pulled = client.pull(*queue, offsets[queue], max_messages=256, max_bytes=1 << 20)
        if pulled.status is not PullStatus.FOUND:
            return False
        for offset, message in enumerate(pulled.messages, offsets[queue]):
            self._saw(message, queue, offset)
        offsets[queue] += len(pulled.messages)
        return True


def place_of(message: ReceivedMessage) -> tuple[int, int]:
    """Return (physical offset, hash of the bytes), which must not change once a reader has seen
    them."""
    return message.physical_offset, hash(message.frame)


def make_topics(client: Client) -> None:
    """The trial's topics with their queues, before anything is stored."""
    from stratamq.client import Topic

    for name in TOPICS:
        client.admin.put_topic(Topic(name, read_queue_count=QUEUES, write_queue_count=QUEUES))


def wait_for(workload: Workload, messages: int, limit_s: float) -> bool:
    """Until `messages` more than now are acknowledged; False when that takes too long."""
    goal = len(workload.ledger.acknowledged) + messages
    return until(lambda: len(workload.ledger.acknowledged) >= goal, limit_s)
