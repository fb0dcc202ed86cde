# Generated from _async/client.py by scripts/gen_sync_client.py (`make client`).
"""The synchronous client. Thread-safe; one connection to each service."""

import random as random_module
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from stratamq.client import forks, group_operations, operations
from stratamq.client._sync import frame_reads
from stratamq.client._sync.admin import AdminClient
from stratamq.client._sync.calls import Calls
from stratamq.client._sync.consumer import Consumer
from stratamq.client._sync.lane import Lane
from stratamq.client._sync.lanes import OneLane
from stratamq.client._sync.producer import Producer
from stratamq.client._sync.sending import Sending
from stratamq.client.checking import checked
from stratamq.client.connections import Connections
from stratamq.client.consuming import (
    EARLIEST,
    Plan,
    Reading,
    Start,
    Subscription,
    Topics,
    Until,
    plan_between,
)
from stratamq.client.hooks import Hooks
from stratamq.client.intake import ProducerSettings
from stratamq.client.operations import Found, Pulled
from stratamq.client.ordering import ordered_place
from stratamq.client.primitives import Event
from stratamq.client.reader_names import reader_name
from stratamq.client.reading_settings import ALONE, ReadingSettings
from stratamq.client.received import ReceivedMessage
from stratamq.client.scaling import drains_asked, drains_of
from stratamq.client.values import (
    GroupMember,
    GroupQueue,
    LogState,
    Message,
    Queue,
    SendResult,
    TimeBoundary,
    Topic,
    Unit,
)
from stratamq.errors import StrataError
from stratamq.files.clock import SystemClock
from stratamq.files.port import Clock, Random
from stratamq.formats.topics import Drain
from stratamq.rpc.backoff import Backoff
from stratamq.rpc.endpoints import Endpoints


@checked
class Client:
    """One broker, or one cluster of brokers of one name; see `connect_async` for several names.
    `retry_timeout_s` is how long calls that change nothing, and a producer's first connection, are
    tried again while their service does not answer. Messages are sent again for `timeout_s` behind
    the first lost answer, and stored once."""

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        timeout_s: float = 30.0,
        retry_timeout_s: float = 0.0,
        hooks: Hooks | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        elsewhere: Callable[[], bool] = lambda: False,
    ) -> None:
        """`elsewhere`: see `Sending`."""
        forks.watch(self)
        self._hooks = hooks or Hooks()
        self._clock = clock or SystemClock()
        self._random = random or random_module.SystemRandom()
        self._connections = connections = Connections(endpoints, timeout_s)
        calls = Calls(
            connections, timeout_s, retry_timeout_s, self._clock, self._random, self._hooks.spans
        )
        self._timeout_s, self._retry_timeout_s = timeout_s, retry_timeout_s
        self._run, self._run_soon = calls.run, calls.run_soon
        self._queue_counts: dict[str, int] = {}
        """Of topics that messages with ordering keys went to."""
        self._sending = Sending(
            calls.run, connections, self._hooks, self._clock, self._random,
            limit_s=timeout_s, unreached_s=retry_timeout_s, elsewhere=elsewhere,
        )  # fmt: skip
        self.admin = AdminClient(calls.run)
        """What operators ask: states of the services, roles, topics, deletion, repair."""

    # --- storing ---

    def send(
        self,
        topic: str,
        body: Any,
        *,
        tag: str = "",
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        ordering_key: str | None = None,
        unique_key: str | None = None,
        delay_level: int = 0,
        half: bool = False,
        wait_store_ok: bool = True,
        require_replicas: bool = False,
    ) -> SendResult:
        """Store one message and wait until it is as safe as the broker promises.

        Raises what kept it from being stored. UnavailableError means *perhaps stored*. A result
        whose status is not PUT_OK is stored, and not confirmed in time. `delay_level` above 0 and
        `half` are refused with InvalidRequestError until such messages are delivered.
        `require_replicas`: BusyError, and nothing is stored, while fewer slaves are connected than
        a SYNC_MASTER requires; NotWritableError of a broker that waits for none.
        Messages of one `ordering_key` go to one queue; it is stored as their first key.
        """
        if ordering_key is not None:
            if topic not in self._queue_counts:
                found = self._run(operations.topics(topic))
                self._queue_counts.update({one.name: one.write_queue_count for one in found})
            queue_id, keys = ordered_place(topic, ordering_key, queue_id, keys, self._queue_counts)
        return self.send_message(
            Message(
                topic,
                body,
                tag,
                keys,
                properties or {},
                queue_id,
                unique_key,
                delay_level=delay_level,
                half=half,
                wait_store_ok=wait_store_ok,
            ),
            require_replicas=require_replicas,
        )

    def send_message(self, message: Message, *, require_replicas: bool = False) -> SendResult:
        """The same for a `Message`."""
        return (self._send_one(message, require_replicas)).check()

    def _send_one(self, message: Message, require_replicas: bool) -> SendResult:
        return self._sending.send_one(message, require_replicas)

    def send_all(
        self,
        messages: Sequence[Message],
        *,
        all_or_nothing: bool = False,
        require_replicas: bool = False,
    ) -> list[SendResult]:
        """Store a few messages by one call. Every result has its message's outcome. For many use a
        producer.

        InvalidRequestError, and nothing is sent, when a body is no bytes, or a message is
        delayed or half.
        """
        return self._sending.send_all(messages, all_or_nothing, require_replicas)

    def producer(
        self,
        *,
        on_result: Callable[[SendResult], None] | None = None,
        on_interruption: Callable[[StrataError | None], None] | None = None,
        settings: ProducerSettings | None = None,
        **changes: Any,
    ) -> Producer:
        """For many messages. `changes` are fields of `ProducerSettings`:
        `client.producer(batch_bytes=1 << 20, delivery_timeout_s=600)`. `on_interruption` is called
        with the error when what was sent is to be sent again, and with None when there is a
        connection for it."""
        settings = settings or ProducerSettings(**changes)
        return Producer(
            self._connections, settings, self._hooks, on_result, self._clock, self._random,
            self._retry_timeout_s, on_interruption,
        )  # fmt: skip

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
    ) -> Pulled:
        """One answer of one queue, as RocketMQ gives it. Without `max_bytes` RocketMQ's limits
        hold; `wait_ms` waits so long for a first message."""
        return self._run(
            operations.pull(
                topic, queue_id, offset, max_messages=max_messages, max_bytes=max_bytes,
                tags=tags, tags_codes=tags_codes, wait_ms=wait_ms,
            )
        )  # fmt: skip

    def consume(
        self,
        topic: Topics,
        *,
        queues: Collection[int] | None = None,
        offset: Start = EARLIEST,
        until: Until | None = None,
        tags: Iterable[str] = (),
        follow: bool = False,
        group: str | None = None,
        max_bytes: int = 0,
        retry_timeout_s: float | None = 30.0,
        refresh_s: float = 30.0,
        commit_interval_s: float = 5.0,
        on_interruption: Callable[[StrataError | None], None] | None = None,
        client_id: str | None = None,
        acknowledged: bool = False,
    ) -> Consumer:
        """Iterate over a topic's messages, in each queue in order:
        `for message in client.consume("orders")`. The queues are read in turn, a piece of
        each, with no order between them.

        `topic` may be several topics, or a compiled pattern in RE2's syntax that whole names match.
        Without `follow` everything that was acknowledged by now, or what of it is before `until`;
        with it also what topics and queues get that appear later. With `group` from its committed
        offsets, where it has any. A service that is away is waited for `retry_timeout_s`, following
        readers wait for ever; `on_interruption` is called with the error when the wait begins, and
        with None when something comes again. The group lists the reader as its member `client_id`,
        HOST@PROCESS#NUMBER unless given. With `acknowledged` it commits what its caller has
        acknowledged, and no more.
        """
        closed = Event()
        lane = self._lane_of_topic(
            topic, queues, offset, until, tags, follow, group, max_bytes, retry_timeout_s,
            refresh_s, commit_interval_s, client_id or reader_name(), acknowledged,
            closed=closed, on_interruption=on_interruption,
        )  # fmt: skip
        lanes = OneLane(lane)
        return Consumer(lanes, clock=self._clock, hooks=self._hooks, closed=closed)

    def _lane_of_topic(
        self,
        topic: Topics,
        queues: Collection[int] | None,
        offset: Start,
        until: Until | None,
        tags: Iterable[str],
        follow: bool,
        group: str | None,
        max_bytes: int,
        retry_timeout_s: float | None,
        refresh_s: float,
        commit_interval_s: float,
        client_id: str,
        acknowledged: bool,
        **shared: Any,
    ) -> Lane:
        """Of a reader as `consume` makes it; `shared`: see `_lane`."""
        settings = ReadingSettings(
            group, client_id, follow, refresh_s, commit_interval_s, acknowledged
        )
        subscription = Subscription(topic, queues, offset, group, follow, until)
        limit_s = None if follow else retry_timeout_s
        return self._lane(subscription.plan, tags, max_bytes, settings, limit_s, **shared)

    def _lane(
        self,
        make_plan: Callable[[], Plan],
        tags: Iterable[str],
        max_bytes: int,
        settings: ReadingSettings,
        retry_timeout_s: float | None,
        *,
        closed: Event,
        on_interruption: Callable[[StrataError | None], None] | None = None,
        broker: str = "",
    ) -> Lane:
        return Lane(
            self._connections,
            self._run,
            make_plan,
            Reading(
                (), tags, max_bytes, settings.group or "", settings.client_id, settings.acknowledged
            ),
            settings,
            backoff=Backoff(retry_timeout_s, self._clock, self._random),
            closed=closed,
            on_interruption=on_interruption,
            broker=broker,
            spans=self._hooks.spans,
        )

    def between(
        self, topic: str, begin_ms: int, end_ms: int, *, tags: Iterable[str] = ()
    ) -> Consumer:
        """Iterate over what was stored from `begin_ms` to `end_ms`, both inclusive."""

        closed = Event()
        lanes = OneLane(self._lane_between(topic, begin_ms, end_ms, tags, closed=closed))
        return Consumer(lanes, clock=self._clock, hooks=self._hooks, closed=closed)

    def _lane_between(
        self, topic: str, begin_ms: int, end_ms: int, tags: Iterable[str], **shared: Any
    ) -> Lane:
        def make_plan() -> Plan:
            return plan_between(topic, begin_ms, end_ms)

        return self._lane(make_plan, tags, 0, ALONE, 30.0, **shared)

    def message_at(self, physical_offset: int) -> ReceivedMessage:
        """By its offset in the log. OffsetOutOfRangeError for one that is not confirmed, too."""
        return self._run(operations.message_at(physical_offset))

    def log_frames(self, begin: int, end: int = 0) -> Iterator[tuple[int, memoryview]]:
        """(log offset, whole frames one behind the other), each verified by the log service.

        `begin` is a frame's beginning, `end` 0 the confirmed offset: nothing above is shown. A
        piece can end in a blank, and holds nothing that is behind it. CorruptionError at the first
        damaged frame, OffsetOutOfRangeError where the log does not hold the range, or has deleted
        it, and UnavailableError when nothing comes for the client's `timeout_s`.
        """
        return frame_reads.log_frames(self._connections, begin, end, self._timeout_s)

    def queue_frames(
        self, ranges: Sequence[tuple[str, int, int, int]], max_bytes: int = 0
    ) -> Iterator[tuple[int, int, memoryview]]:
        """(number of the range, its next offset, whole frames one behind the other).

        A range is `(topic, queue id, begin, end)` in queue offsets; they are read in turn, a piece
        of each. `max_bytes` bounds a piece, 0 leaves that to the service. OffsetOutOfRangeError
        when a queue does not hold what is to be read, and UnavailableError when the service
        stops meanwhile, or nothing comes for the client's `timeout_s`.
        """
        return frame_reads.queue_frames(
            self._connections, self._run, ranges, max_bytes, self._timeout_s
        )

    def message_by_id(self, message_id: str) -> ReceivedMessage:
        """By its offset message id."""
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
        """By a word of KEYS, or a unique key; newest first."""
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
        """The queue offset at a moment; 0 for an unknown queue, as in RocketMQ."""
        return self._run(operations.offset_at_time(topic, queue_id, timestamp_ms, boundary))

    # --- groups ---

    def commit_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """The next offsets a group will read, by (topic, queue id)."""
        self._run(group_operations.commit_offsets(group, offsets))

    def topics_of_group(self, group: str) -> set[str]:
        """Those of which it has committed something."""
        return {topic for topic, _ in self.committed_offsets(group)}

    def committed_offsets(self, group: str, topic: str = "") -> dict[tuple[str, int], int]:
        return self._run(group_operations.committed_offsets(group, topic))

    def groups(self, group: str = "", *, with_lag_s: bool = False) -> list[GroupQueue]:
        """`with_lag_s`: looked up in the log, a read for each queue that has something to read."""
        return self._run(group_operations.groups(group, with_lag_s=with_lag_s))

    def group_members(self, group: str) -> list[GroupMember]:
        """The clients that read with the group's name now, by client id."""
        return self._run(group_operations.group_members(group))

    # --- listings and states ---

    def topics(self, topic: str = "") -> list[Topic]:
        """By name; with `topic` that one alone, if it exists."""
        return self._run(operations.topics(topic))

    def queues(self, topic: str = "") -> list[Queue]:
        """Of one topic, or of all."""
        return self._run(operations.queues(topic))

    def units(self, topic: str, queue_id: int, offset: int, count: int = 32) -> list[Unit]:
        return self._run(operations.units(topic, queue_id, offset, count))

    def log_state(self) -> LogState:
        """Of the commit log service."""
        return self._run(operations.log_state())

    def services(self) -> dict[str, str]:
        """Where the broker's services are, by name. UnavailableError when nothing answers at its
        address, InvalidRequestError when another program does."""
        return self._connections.addresses()

    def shards(self) -> dict[str, "Client"]:
        """A client of each broker name that is known."""
        return {(self.log_state()).broker_name: self}

    def member_drains(self) -> dict[str, Drain | None]:
        """Of one name's brokers, by address: what they have of `admin.drain`; None: no answer."""
        asked, at_members = drains_asked()
        return drains_of(asked, self._connections.ask(at_members))

    # --- the end ---

    def close(self) -> None:
        """End what still reads, and close the connections. Producers and readers are closed by
        their owners before, or lose what they have not sent or committed."""
        self._sending.close()
        self._connections.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
