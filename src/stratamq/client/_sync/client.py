# Generated from _async/client.py by scripts/gen_sync_client.py (`make client`).
"""The synchronous client. Thread-safe; one connection to each service."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from stratamq.client import forks, group_operations, operations
from stratamq.client._sync import frame_reads
from stratamq.client._sync.admin import AdminClient
from stratamq.client._sync.brokers import Broker, Brokers, Routing
from stratamq.client._sync.calls import run_plan
from stratamq.client._sync.consumer import Consumer
from stratamq.client._sync.lanes import Lanes
from stratamq.client._sync.lookup import Lookup
from stratamq.client._sync.producer import Producer
from stratamq.client._sync.shared_reader import SharedReader
from stratamq.client._sync.together import CallsOfGroups
from stratamq.client._sync.transactions import (
    Transaction,
    TransactionCheck,
    transaction_checks,
)
from stratamq.client.checking import checked
from stratamq.client.client_settings import ClientSettings
from stratamq.client.consuming import Plan, Subscription, Topics, plan_between
from stratamq.client.group_operations import GroupPage
from stratamq.client.group_receipts import (
    GroupSettings,
    HeldMessages,
    group_settings,
    held_messages,
    stop_sharing,
)
from stratamq.client.intake import ProducerSettings
from stratamq.client.members import MemberLook, plan_members
from stratamq.client.operations import Found, Pulled, TopicPage
from stratamq.client.reading import Reading, reader_name
from stratamq.client.received import ReceivedMessage
from stratamq.client.storage_map import plan_groups_with_losses
from stratamq.client.values import (
    GroupMember,
    GroupQueue,
    HalfMessage,
    Message,
    Queue,
    SendResult,
    TimeBoundary,
    Topic,
    Unit,
)
from stratamq.errors import InvalidRequestError, StrataError, UnavailableError
from stratamq.formats.log_state import LogState
from stratamq.rpc.endpoints import Endpoints


@checked
class Client:
    """A client of one broker, or of several with different names (shards), each of which may be a
    cluster.

    Each message goes to one of the brokers. Readers and listings cover all brokers; topics and
    groups are changed at all. Every other call is for a single broker, and raises
    InvalidRequestError when there are several. Calls that change nothing, and a producer's first
    connection, are tried again for `retry_timeout_s` while their service does not answer. A message
    whose answer is lost, or does not come for `timeout_s`, is sent again for as long, and stored
    once."""

    def __init__(self, where: Endpoints | Broker, **settings: Any) -> None:
        """`settings`: fields of `ClientSettings`. `where`: a broker of another client, or where to
        look."""
        forks.watch(self)
        self._settings = shared = ClientSettings(**settings)
        self._brokers = Brokers(where, shared)
        self._routing = Routing(self._brokers)
        self._connections = self._brokers.whole.connections
        self._run = self._brokers.whole.run
        self._group_calls = CallsOfGroups(shared.clock)
        self.admin = AdminClient(self._brokers)
        """What operators ask: states of the services, roles, topics, deletion, repair."""
        self.lookup = Lookup(self._brokers, shared.timeout_s)
        """One message by any of its names, and all that is known of it."""

    # --- storing ---

    def send(
        self,
        topic: str,
        body: Any,
        *,
        ordering_key: str | None = None,
        require_replicas: bool = False,
        properties: Mapping[str, str] | None = None,
        **fields: Annotated[Any, Message],
    ) -> SendResult:
        """Store one message and wait until it is as safe as the broker promises. `fields` are those
        of `Message`: `client.send("orders", b"...", tag="paid", keys=["order-1"])`.

        Raises the reason when the message is not stored; after UnavailableError it may be stored. A
        result with a status other than PUT_OK means stored, but not confirmed in time. The result
        of a delayed message (`delay`, `deliver_at`, `delay_level`) names the place where it waits.
        With `require_replicas` nothing is stored and BusyError is raised while fewer slaves are
        connected than a SYNC_MASTER requires; other brokers raise NotWritableError. Messages with
        the same `ordering_key` go to one queue; it becomes their first key.
        """
        message = Message(topic, body, properties=properties or {}, **fields)
        if ordering_key is None:
            return self.send_message(message, require_replicas=require_replicas)
        broker, queue_id, keys = self._routing.slot(
            topic, ordering_key, message.queue_id, message.keys
        )
        message = replace(message, queue_id=queue_id, keys=keys)
        return self._send_one([broker], message, require_replicas)

    def send_message(self, message: Message, *, require_replicas: bool = False) -> SendResult:
        """Store one `Message`; see `send`."""
        only = self._brokers.whole
        if self._brokers.fixed and not only.name:  # most clients: nothing to choose or to name
            return (only.sending.send_one(message, require_replicas)).check()
        order = self._routing.order(message.topic, message.queue_id)
        return self._send_one(order, message, require_replicas)

    def _send_one(
        self, order: Sequence[Broker], message: Message, require_replicas: bool
    ) -> SendResult:
        def send(broker: Broker) -> list[SendResult]:
            return [broker.sending.send_one(message, require_replicas)]

        return (self._routing.send_in_turn(order, send))[0].check()

    def send_all(
        self,
        messages: Sequence[Message],
        *,
        all_or_nothing: bool = False,
        require_replicas: bool = False,
    ) -> list[SendResult]:
        """Store a few messages by one call, and return one result for each. For many messages use a
        producer.

        With several brokers, messages without a queue go together to one that accepts their topics;
        if it stores none of them, to another one. `all_or_nothing` needs a single broker. Raises
        InvalidRequestError, and sends nothing, when a body is not bytes, a message is half, or
        delayed with `all_or_nothing`.
        """
        parts: dict[tuple[Broker, ...], list[int]] = {}
        for number, message in enumerate(messages):
            order = self._routing.order(message.topic, message.queue_id)
            parts.setdefault(tuple(order), []).append(number)
        if all_or_nothing and len(parts) > 1:
            raise InvalidRequestError(
                "all_or_nothing is of one broker: choose it, connect(..., broker=NAME)"
            )
        results: dict[int, SendResult] = {}
        for brokers, numbers in parts.items():
            some = [messages[number] for number in numbers]

            def send(broker: Broker, some: Sequence[Message] = some) -> Sequence[SendResult]:
                return broker.sending.send_all(some, all_or_nothing, require_replicas)

            results.update(zip(numbers, self._routing.send_in_turn(brokers, send), strict=True))
        return [results[number] for number in range(len(messages))]

    def producer(
        self,
        *,
        on_result: Callable[[SendResult], None] | None = None,
        on_interruption: Callable[[StrataError | None], None] | None = None,
        settings: ProducerSettings | None = None,
        **changes: Any,
    ) -> Producer:
        """Make a producer, for many messages. `changes` are fields of `ProducerSettings`:
        `client.producer(batch_bytes=4 << 20, delivery_timeout_s=600)`. `on_interruption` is called
        with the error when a connection is lost and messages have to be sent again, and with None
        when there is a connection again."""
        settings = settings or ProducerSettings(**changes)
        return Producer(self._brokers, settings, on_result, on_interruption)

    # --- transactions ---

    def transaction(self, group: str) -> Transaction:
        """Begin a transaction of a producer group: `with client.transaction("billing") as
        tx`, and `tx.send("orders", b"...")` in the block. Leaving it commits the messages, an
        exception rolls them back; consumers see all of them, or none. Of several brokers one has
        the whole transaction: the one that took its first message."""
        return Transaction(group, self._routing)

    def end_transaction(self, group: str, halves: Sequence[HalfMessage], *, commit: bool) -> None:
        """Decide about half messages that another client sent; `Transaction` does it for its
        own. DecidedTransactionError when one was decided the other way before."""
        self._run(operations.end_transaction(group, halves, commit))

    def transaction_checks(self, group: str, topics: Sequence[str]) -> Iterator[TransactionCheck]:
        """Iterate, without end, over the messages to these topics that producers of the group have
        left undecided: `for check in client.transaction_checks("billing", ["orders"])`. Each
        check goes to one caller. Of several brokers all are asked, and one that is away is asked
        again; a single one raises UnavailableError when it is away for `retry_timeout_s`."""
        return transaction_checks(self._brokers, group, topics)

    # --- reading ---

    def pull(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int = 32,
        max_bytes: int = 0,
        tags: Iterable[str] = (),
        tags_codes: Iterable[int] = (),
        wait_ms: int = 0,
        group: str = "",
        client_id: str = "",
    ) -> Pulled:
        """Pull once from one queue, as RocketMQ does. Without `max_bytes` RocketMQ's limits apply.
        `wait_ms`: how long to wait for a first message. With `group` and `client_id` the client is
        listed as a member of the group.

        A promotion under ASYNC_MASTER may replace messages below an offset that you keep. Keep the
        unique key of the last message with it, and pull that message again: if it is another one
        now, or is not there, go back. `consume` does so while it runs, and with a group."""
        return self._run(
            operations.pull(
                topic, queue_id, offset, max_messages=max_messages, max_bytes=max_bytes,
                tags=tags, tags_codes=tags_codes, wait_ms=wait_ms, group=group,
                client_id=client_id,
            )
        )  # fmt: skip

    def consume(self, topic: Topics, reading: Reading | None = None, **options: Any) -> Consumer:
        """Iterate over the messages of a topic: `for message in client.consume("orders")`.
        Messages of one queue come in order. Queues are read in turn, some messages of each, with no
        order between queues. With several brokers the queues of all are read, and each message has
        its `broker`.

        `topic` may be several topics, or a compiled pattern in RE2's syntax that matches whole
        names. `options` are fields of `Reading`:
        `client.consume("orders", group="billing", follow=True)`. Without `follow` the reader ends
        with the last message acknowledged by now, or before `until`; with it, it also reads topics
        and queues that appear later. With `group` it begins at the group's committed offsets.

        When a service is away, the reader waits for `retry_timeout_s`; one that follows waits
        forever. `on_interruption` is called with the error when the wait begins, and with None when
        messages come again. When one of several brokers is away, the others are read, and without
        `on_interruption` a warning is logged; a reader that does not follow raises the error at its
        end.
        """
        reading = reading or Reading(**options)
        if not reading.client_id:
            reading = replace(reading, client_id=reader_name())
        subscription = Subscription(topic, reading)
        return self._reader(lambda: replace(subscription).plan, reading)

    def subscribe(
        self,
        topic: str,
        group: str,
        *,
        client_id: str = "",
        batch: int = 32,
        invisible_s: float = 30,
        leased: bool = False,
        tags: Iterable[str] = (),
    ) -> SharedReader:
        """Share the messages of a topic with the other workers of a group: iterate over what this
        returns, and call each message's `ack` when it is done.

        Each message is handed to one worker, and hidden from the others for `invisible_s`; if it is
        not acknowledged by then, it is handed out again. `batch`: how many are asked for at once;
        all wait for this worker in their time. Without a lease the client receives ahead what fast
        workers take in 0.1 s. `leased`: they stay hidden as long as this worker asks for messages,
        or calls `renew`, too. `tags`: messages with one of them alone; the others are finished for
        the group, so that all of its workers should have the same ones. A group is shared or read
        with `consume`, not both. All brokers are read."""
        name = client_id or (reader_name() if leased else self._group_calls.client_id)
        return SharedReader(
            self._brokers,
            self._group_calls,
            topic,
            group,
            name,
            batch,
            invisible_s,
            leased=leased,
            tags=tuple(sorted({*operations.tag_list(tags)})),
        )

    def between(
        self, topic: str, begin_ms: int, end_ms: int, *, tags: Iterable[str] = ()
    ) -> Consumer:
        """Iterate over the messages stored from `begin_ms` to `end_ms`, both inclusive."""

        def make_plan() -> Plan:
            return plan_between(topic, begin_ms, end_ms)

        return self._reader(lambda: make_plan, Reading(tags=tags))

    def _reader(self, make_plans: Callable[[], Callable[[], Plan]], reading: Reading) -> Consumer:
        return Consumer(Lanes(self._brokers, make_plans, reading), self._settings)

    def message_at(self, physical_offset: int) -> ReceivedMessage:
        """Read the message at an offset of the log. OffsetOutOfRangeError also when it is not
        confirmed yet."""
        return self._run(operations.message_at(physical_offset))

    def log_frames(self, begin: int, end: int = 0) -> Iterator[tuple[int, memoryview]]:
        """Iterate over the log as pairs (log offset, whole frames one after the other). The log
        service verifies each frame.

        `begin` is where a frame begins. `end` 0 means the confirmed offset; nothing above it is
        read. A piece may end with a blank, and never holds a frame behind it. Raises
        CorruptionError at the first damaged frame, OffsetOutOfRangeError when the log does not hold
        the range any more, or not yet, and UnavailableError when nothing comes for the client's
        `timeout_s`.
        """
        return frame_reads.log_frames(self._connections, begin, end, self._settings.timeout_s)

    def log_heads(self, begin: int, end: int = 0) -> Iterator[tuple[int, memoryview, bytes]]:
        """Iterate over the log as triples (log offset, heads, lengths): whole frames without bodies
        and properties, and for each its length in the log, a big-endian u32
        (`formats/frame_heads.py`). Bodies are not verified.

        A blank has no head, and a length up to its segment's end. A log service of an earlier
        version sends whole frames as `log_frames` does, and no lengths. The rest is as there.
        """
        return frame_reads.log_heads(self._connections, begin, end, self._settings.timeout_s)

    def queue_frames(
        self, ranges: Sequence[tuple[str, int, int, int]], max_bytes: int = 0
    ) -> Iterator[tuple[int, int, memoryview]]:
        """Iterate over ranges of queues as (number of the range, its next offset, whole frames one
        after the other).

        A range is `(topic, queue id, begin, end)` in queue offsets. Ranges are read in turn, a
        piece of each, of at most `max_bytes` (0: the service decides). Raises OffsetOutOfRangeError
        when a queue does not hold the range, and UnavailableError when the service stops meanwhile,
        or nothing comes for the client's `timeout_s`.
        """
        return frame_reads.queue_frames(
            self._connections, self._run, ranges, max_bytes, self._settings.timeout_s
        )

    def message_by_id(self, message_id: str) -> ReceivedMessage:
        """Read a message by its offset message id."""
        return self._run(operations.message_by_id(message_id))

    def query_key(
        self,
        topic: str,
        key: str,
        *,
        max_messages: int = 32,
        begin_ms: int = 0,
        end_ms: int = 0,
        oldest_first: bool = False,
    ) -> Found:
        """Find messages by one of their keys, or by their unique key; the newest come first."""
        return self._run(
            operations.query_key(
                topic, key, max_messages=max_messages, begin_ms=begin_ms, end_ms=end_ms,
                oldest_first=oldest_first,
            )
        )  # fmt: skip

    def query_unique_key(self, topic: str, unique_key: str, *, max_messages: int = 32) -> Found:
        return self._run(
            operations.query_key(topic, unique_key, max_messages=max_messages, unique=True)
        )

    def offset_at_time(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: int,
        boundary: TimeBoundary = TimeBoundary.LOWER,
    ) -> int:
        """Return the queue offset at a time; 0 for an unknown queue, as in RocketMQ."""
        return self._run(operations.offset_at_time(topic, queue_id, timestamp_ms, boundary))

    # --- groups ---

    def commit_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Set the offsets that a group reads next, by (topic, queue id)."""
        self._run(group_operations.commit_offsets(group, offsets))

    def topics_of_group(self, group: str) -> set[str]:
        """Return the topics for which the group has committed offsets."""
        operation = group_operations.committed_offsets(group, "")
        found = self._brokers.read(lambda broker: broker.run(operation))
        return {topic for _, offsets in found for topic, _ in offsets}

    def committed_offsets(self, group: str, topic: str = "") -> dict[tuple[str, int], int]:
        return self._run(group_operations.committed_offsets(group, topic))

    def groups(
        self, group: str = "", *, with_lag_s: bool = False, with_losses: bool = False
    ) -> list[GroupQueue]:
        """List groups by group, topic, broker and queue. `with_lag_s` costs a read of the log for
        each queue that has unread messages; `with_losses` that, and a list of the segments."""
        operation = group_operations.groups(group, with_lag_s=with_lag_s)
        found = self._brokers.merged(
            lambda broker: (
                run_plan(broker.run, plan_groups_with_losses(group))
                if with_losses
                else broker.run(operation)
            )
        )
        return sorted(found, key=lambda one: (one.group, one.topic, one.broker, one.queue_id))

    def groups_page(self, token: str = "", *, limit: int = 500) -> GroupPage:
        """Return at most `limit` queues of groups, in the order in which the groups came, from
        where the page before ended. `groups` reads all pages."""
        return self._run(group_operations.groups_page(token, limit))

    def groups_of_topic(self, topic: str) -> list[GroupQueue]:
        """List groups that have committed an offset of a topic, by group, broker and queue."""
        operation = group_operations.groups(topic=topic)
        found = self._brokers.merged(lambda broker: broker.run(operation))
        return sorted(found, key=lambda one: (one.group, one.broker, one.queue_id))

    def group_members(self, group: str) -> list[GroupMember]:
        """List the clients that read for the group now, by client id and broker. Those of
        RocketMQ's classic protocol are left out while no delivery service answers."""
        found = self._brokers.merged(lambda broker: _members(broker, group))
        return sorted(found, key=lambda one: (one.client_id, one.broker))

    # --- listings and states ---

    def held_messages(self, group: str) -> list[HeldMessages]:
        """What the workers of a shared group hold: at most 1 000 runs of messages of each broker.
        NotFoundError for a group that is not shared."""
        return self._brokers.merged(lambda broker: broker.run(held_messages(group)))

    def group_settings(self, group: str = "") -> list[GroupSettings]:
        """How each broker serves a shared group that has settings of its own (`admin.create_group`,
        `admin.alter_group`). NotFoundError when it has none at one of them. Without a name: all
        groups that have some."""
        return self._brokers.merged(lambda broker: broker.run(group_settings(group)))

    def stop_sharing(self, group: str) -> int:
        """Let a group be read with `consume` again, from the floors of its queues on, which repeats
        what was acknowledged above them. Returns the number of its queues."""
        operation = stop_sharing(group)
        found = self._brokers.read(lambda broker: broker.run(operation), whole=True)
        return sum(queues for _, queues in found)

    def topics(self, topic: str = "", *, contains: str = "") -> list[Topic]:
        """List topics by name and broker; with `topic` only that one, if it exists; with `contains`
        those whose names have this text in them, ignoring case."""
        operation = operations.topics(topic, contains)
        found = self._brokers.merged(lambda broker: broker.run(operation))
        return sorted(found, key=lambda one: (one.name, one.broker))

    def topics_page(self, position: int = 0, count: int = 50, contains: str = "") -> TopicPage:
        """List some topics of one broker, in the order in which they became known: those from
        `position` on, which is 0 or a page's `next_position`, whose names have `contains` in them,
        ignoring case. A page may have none and still have a next one: the broker looks at some
        thousand names for each."""
        return self._run(operations.topics_page(position, count, contains))

    def queues(self, topic: str = "") -> list[Queue]:
        """List the queues of one topic, or of all, by topic, broker and number."""
        found = self._brokers.merged(lambda broker: broker.run(operations.queues(topic)))
        return sorted(found, key=lambda one: (one.topic, one.broker, one.queue_id))

    def units(self, topic: str, queue_id: int, offset: int, count: int = 32) -> list[Unit]:
        return self._run(operations.units(topic, queue_id, offset, count))

    def log_state(self) -> LogState:
        """Return how far the log is stored and confirmed, and the broker's role."""
        return self._run(operations.log_state())

    def services(self) -> dict[str, str]:
        """Return the addresses of the broker's services, by name. UnavailableError when nothing
        answers at its address, InvalidRequestError when another program does."""
        self._brokers.all()
        return self._connections.addresses()

    def shards(self) -> dict[str, "Client"]:
        """Return a client for each known broker name."""
        brokers = self._brokers.all()
        if brokers == {"": self._brokers.whole}:
            return {(self.log_state()).broker_name: self}
        given = {one: getattr(self._settings, one) for one in ClientSettings.__slots__}
        return {name: Client(broker, **given) for name, broker in brokers.items()}

    def members(self) -> list[MemberLook]:
        """Ask each broker at the client's addresses, of every name, all at once, for its log's
        state and its drain. Who does not answer within 3 s, or `timeout_s`, has a reason instead.
        `stratamq.client.shards_of` orders them by shard."""
        if self._brokers.whole.endpoints.searched:
            return self._connections.ask(plan_members)
        return [MemberLook("", self.log_state(), self.admin.drain())]

    # --- the end ---

    def close(self) -> None:
        """Stop all reading and close the connections. Close producers and readers first: they lose
        what they have not sent or committed."""
        self._brokers.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _members(broker: Broker, group: str) -> list[GroupMember]:
    found = broker.run(group_operations.group_members(group))
    try:
        return found + broker.run_soon(group_operations.classic_members(group))
    except (UnavailableError, InvalidRequestError):
        return found  # no delivery service answers, or an older one
