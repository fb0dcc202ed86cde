# Generated from _async/admin.py by scripts/gen_sync_client.py (`make client`).
"""What operators ask of a broker: its services' states, roles, topics, deletion, repair."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TypeVar

from stratamq.api.v1 import delivery_pb2
from stratamq.client import admin_operations, forks, group_operations, operations, replication_state
from stratamq.client._sync.brokers import Broker, Brokers
from stratamq.client._sync.calls import run_plan
from stratamq.client.checking import checked
from stratamq.client.group_receipts import GroupSettings, alter_group
from stratamq.client.group_reset import GroupReset, plan_group_reset
from stratamq.client.operations import Operation
from stratamq.client.primitives import AtOnce
from stratamq.client.reading import Start
from stratamq.client.replication_state import Demotion, Promotion, Removal, ReplicationState
from stratamq.client.scaling import drain_of_topics
from stratamq.client.storage_map import StorageMap, storage_map_of, storage_questions
from stratamq.client.topic_purge import QueuePurge, delete_topic, plan_purge, purge_topic
from stratamq.client.values import (
    CleaningLook,
    ConsoleState,
    DeadLetterPage,
    DeadLetterReplay,
    Election,
    FollowerServiceState,
    GatewayState,
    HeldSchedule,
    JanitorState,
    Retention,
    ScheduledMessages,
    TierState,
    Topic,
)
from stratamq.errors import InvalidRequestError, NotFoundError, NotWritableError
from stratamq.formats.log_state import Role
from stratamq.formats.members import Members
from stratamq.formats.topic_types import MessageType
from stratamq.formats.topics import DRAIN_TOPIC, Drain

P = TypeVar("P", GroupReset, QueuePurge)
R = TypeVar("R")
QUEUES_PER_COMMIT = 5_000
"""The queues of one call: less than 1 MiB with the longest topic names."""


@checked
class AdminClient:
    """The operator's calls: `Client.admin`. With several brokers, topics and groups are
    changed at all of them, or at none when one has no master; every other call is for a single
    broker, chosen by its name."""

    def __init__(self, brokers: Brokers) -> None:
        forks.watch(self)
        self._brokers = brokers
        self._run = brokers.whole.run

    # --- topics ---

    def put_topic(self, topic: Topic) -> Topic:
        """Create a topic or change its settings; durable on return."""
        brokers = self._open_to(topic.name)
        return (self._change(brokers, admin_operations.put_topic(topic)))[0]

    def create_topic(self, topic: Topic, *, if_not_exists: bool = False) -> Topic:
        """Create a topic, except at brokers that are drained; durable on return. Raises
        InvalidRequestError when the topic exists, unless `if_not_exists`, which leaves it
        unchanged."""
        several = len(self._brokers.all()) > 1
        have = self._that_have(topic.name) if several or if_not_exists else {}
        if have and not if_not_exists:
            raise InvalidRequestError(
                f"there is a topic {topic.name} at {_names(have)}: nothing was changed"
            )
        brokers = [one for one in self._open_to(topic.name) if one not in have]
        made = self._change(brokers, admin_operations.put_topic(topic, must_be_new=True))
        return (made or list(have.values()))[0]

    def alter_topic(
        self,
        name: str,
        *,
        read_queue_count: int | None = None,
        write_queue_count: int | None = None,
        permission: int | None = None,
        ordered: bool | None = None,
        message_type: MessageType | None = None,
    ) -> Topic:
        """Change only the given settings of a topic; durable on return. Queues that hold messages
        stay readable, and messages of another type than `message_type` stay. NotFoundError when
        there is no such topic."""
        altered = admin_operations.alter_topic(
            name, read_queue_count, write_queue_count, permission, ordered, message_type
        )
        return (self._change(self._with_topic(name), altered))[0]

    def plan_purge(
        self, topic: str, before: Start, queue_id: int | None = None
    ) -> list[QueuePurge]:
        """List what `purge_topic` would remove from all queues or one: the messages before an
        offset or a time, or all but the last ones (`-N`). Changes nothing.
        NotFoundError when there is no such topic, or nothing in it."""
        return self._brokers.merged(
            lambda broker: run_plan(broker.run, plan_purge(topic, before, queue_id)), whole=True
        )

    def purge_topic(self, topic: str, purges: Sequence[QueuePurge]) -> None:
        """Raise the minimum offsets of queues permanently, as planned. About a second later
        consumers get no messages below them; retention frees the space. NotWritableError at a
        slave."""
        by_broker = self._by_broker([one for one in purges if one.offset > one.before])
        self._brokers.change(
            list(by_broker), lambda broker: broker.run(purge_topic(topic, by_broker[broker]))
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic and hide its messages permanently; durable on return.

        Consumers learn it about a second later, and groups forget the topic. Producers are refused
        until `create_topic` makes it again: it goes on behind the offsets that were used. Space is
        freed by retention. NotFoundError; InvalidRequestError for the broker's own topics, and for
        one with messages in more than 1 000 queues; NotWritableError of a slave.
        """
        self._change(self._with_topic(name), delete_topic(name))

    # --- which brokers are changed: a single one answers for itself ---

    def _change(self, brokers: list[Broker], operation: Operation[R]) -> list[R]:
        return self._brokers.change(brokers, lambda broker: broker.run(operation))

    def _that_have(self, topic: str) -> dict[Broker, Topic]:
        operation = operations.topics(topic)
        found = self._brokers.read(lambda broker: broker.run(operation), whole=True)
        return {broker: some[0] for broker, some in found if some}

    def _with_topic(self, name: str) -> list[Broker]:
        """Where the topic is; NotFoundError when it is nowhere."""
        brokers = list((self._brokers.all()).values())
        if len(brokers) == 1:
            return brokers
        have = self._that_have(name)
        if not have:
            raise NotFoundError(f"there is no topic {name}")
        return list(have)

    def _open_to(self, topic: str) -> list[Broker]:
        """Where the topic is, and where messages are taken. NotWritableError when there is no such
        broker."""
        brokers = list((self._brokers.all()).values())
        if len(brokers) == 1:
            return brokers
        have = self._that_have(topic)
        operation = operations.topics(DRAIN_TOPIC)
        found = self._brokers.read(lambda broker: broker.run(operation), whole=True)
        drained = {broker for broker, mark in found if drain_of_topics(mark) is not Drain.OPEN}
        chosen = [broker for broker in brokers if broker in have or broker not in drained]
        if not chosen:
            raise NotWritableError(
                f"all brokers are drained ({_names(brokers)}): let one take messages again "
                "(`stratamq cluster drain-shard NAME --undo`)",
                "drained",
            )
        return chosen

    def _by_broker(self, planned: Sequence[P]) -> dict[Broker, list[P]]:
        """What was planned, by the broker of its queue."""
        brokers = self._brokers.all()
        found: dict[Broker, list[P]] = {}
        for one in planned:
            broker = brokers.get(one.broker) or brokers.get("")
            if broker is None:
                raise InvalidRequestError(f"there is no broker {one.broker!r}: plan it again")
            found.setdefault(broker, []).append(one)
        return found

    # --- whether it takes messages ---

    def drain(self) -> Drain:
        """Return whether one broker takes messages."""
        return drain_of_topics(self._run(operations.topics(DRAIN_TOPIC)))

    def set_drain(self, drain: Drain) -> None:
        """Set whether one broker and its slaves take messages; durable on return. NotWritableError
        at a slave."""
        self._run(admin_operations.put_topic(Topic(DRAIN_TOPIC, 1, 1, drain.value)))

    # --- groups ---

    def plan_group_reset(self, group: str, to: Start, topic: str = "") -> list[GroupReset]:
        """List where `group` would continue after a reset, by queue. Changes nothing.

        What a queue does not hold becomes the nearest offset that it does.
        `topic` "": every topic of which the group has committed something. NotFoundError when there
        is none, or no such topic.
        """
        return self._brokers.merged(
            lambda broker: run_plan(broker.run, plan_group_reset(group, to, topic)), whole=True
        )

    def reset_group(self, group: str, resets: Sequence[GroupReset]) -> None:
        """Commit the planned offsets, some queues a call: after an error the first ones may be
        reset. Stop the group's readers first: they commit their own offsets again. NotWritableError
        at a slave."""
        by_broker = self._by_broker(resets)

        def reset(broker: Broker) -> None:
            planned = by_broker[broker]
            for first in range(0, len(planned), QUEUES_PER_COMMIT):
                some = planned[first : first + QUEUES_PER_COMMIT]
                offsets = {(one.topic, one.queue_id): one.offset for one in some}
                broker.run(group_operations.commit_offsets(group, offsets))

        self._brokers.change(list(by_broker), reset)

    def delete_group(self, group: str, topic: str = "") -> int:
        """Delete the committed offsets of a group, in all topics or in one, and return the number
        of queues. Stop the group's readers first: they commit their own offsets again.
        NotWritableError at a slave."""
        brokers = list((self._brokers.all()).values())
        return sum(self._change(brokers, group_operations.delete_group(group, topic)))

    def create_group(
        self,
        group: str,
        *,
        ordered: bool = False,
        retries: int | None = None,
        consume_enabled: bool = True,
    ) -> GroupSettings:
        """Give a shared group settings; durable on return. `ordered`: of each message group, one
        message at a time. `retries` None: as the broker's setting says. InvalidRequestError when it
        has settings."""
        change = delivery_pb2.GROUP_CHANGE_CREATE
        return self._alter_group(alter_group(group, change, ordered, retries, consume_enabled))

    def alter_group(
        self,
        group: str,
        *,
        ordered: bool | None = None,
        retries: int | None = None,
        consume_enabled: bool | None = None,
    ) -> GroupSettings:
        """Change only the given settings of a shared group; durable on return. The order holds for
        what is handed out for the first time from then on."""
        change = delivery_pb2.GROUP_CHANGE_UNSPECIFIED
        return self._alter_group(alter_group(group, change, ordered, retries, consume_enabled))

    def delete_group_settings(self, group: str) -> None:
        """Let a shared group be served as the broker's settings say; durable on return."""
        self._alter_group(alter_group(group, delivery_pb2.GROUP_CHANGE_DELETE))

    def _alter_group(self, operation: Operation[GroupSettings]) -> GroupSettings:
        brokers = list((self._brokers.all()).values())
        return (self._change(brokers, operation))[0]

    # --- replication ---

    def replication_state(self) -> ReplicationState:
        """Return a master's slaves, or how a slave follows its master."""
        return self._run(replication_state.replication_state())

    def resync(self) -> None:
        """Let a slave that has nothing in common with its master copy the whole log again, at its
        next contact with the master; its present log is moved aside."""
        self._run(replication_state.resync())

    def promote(
        self, role: Role | None = None, *, force: bool = False, succeeds: str = ""
    ) -> Promotion:
        """Promote this broker to master: brokers that learn of its higher term stop writing.
        NotWritableError gives the reasons against it; `force` promotes it anyway. `succeeds`, for
        agents: the member that has stepped down for this one."""
        return self._run(replication_state.promote(role, force, succeeds))

    def demote(self, master: str = "", *, force: bool = False) -> Demotion:
        """Demote this broker to a slave of the master whose slaves connect to `master`; "": the
        other members tell which. NotWritableError if no slave has everything, unless `force`."""
        return self._run(replication_state.demote(master, force))

    def remove_member(self, name: str, *, force: bool = False) -> Removal:
        """Remove a permanently lost member from its cluster; call it at the master.
        NotWritableError when the member answers, or another one lacks messages, unless
        `force`."""
        return self._run(replication_state.remove_member(name, force))

    def admit_member(self, name: str) -> Members:
        """Admit a removed member again, or add one that is configured at this master. The quorum
        counts it once it has all that this master had confirmed."""
        return self._run(replication_state.admit_member(name))

    # --- failover ---

    def election(self) -> Election:
        """Return who leads the cluster, according to the broker's agent."""
        return self._run(admin_operations.election())

    def switchover(self, member: str) -> None:
        """Ask for `member` as the master. The request is recorded on return, and done when
        `election` shows it. NotWritableError while failover is paused, or when it leads already."""
        self._run(admin_operations.switchover(member))

    def set_failover_paused(self, paused: bool) -> None:
        """Pause or resume failover: agents promote no broker while it is paused. Recorded on
        return."""
        self._run(admin_operations.set_failover_paused(paused))

    def grant_lease(self, term: int, boot: str, until_ns: int, *, ended_reason: str = "") -> None:
        """Grant a lease, for agents: a master of `term` may answer until `until_ns` of
        CLOCK_BOOTTIME, counted from the machine's start `boot`. `ended_reason` ends every earlier
        lease instead. NotWritableError at any other log."""
        self._run(admin_operations.grant_lease(term, boot, until_ns, ended_reason))

    # --- deletion ---

    def delete_below(
        self, offset: int, *, max_segments: int = 10, urgent: bool = False
    ) -> tuple[int, tuple[str, ...]]:
        """Delete whole segments below `offset` from the log, oldest first, but never the last.
        Returns the log's new minimum and the deleted files. `urgent` does not wait for
        followers."""
        return self._run(
            admin_operations.delete_below(offset, max_segments=max_segments, urgent=urgent)
        )

    def janitor_state(self) -> JanitorState:
        """Return what the janitor has done and found."""
        return self._run(admin_operations.janitor_state())

    def storage_map(self, largest: int = 20) -> StorageMap:
        """Return where a broker's bytes are: its segments and what becomes of them, the topics with
        the most bytes, index files, the tier; of slightly different moments. All but the log are
        asked at once, for 3 s; the dispatcher, which counts, for `timeout_s`. What they do not
        answer is missing, and `problems` say why."""
        log = self._run(operations.log_state())
        asked, run_soon = storage_questions(log, largest), self._brokers.whole.run_soon
        runs = [(self._run if one.counts else run_soon, one.operation) for one in asked.values()]
        answers = AtOnce.results([partial(*one) for one in runs])
        return storage_map_of(log, asked, answers)

    def tier_state(self) -> TierState:
        """Return what the broker's tier service has uploaded, and what it waits for."""
        return self._run(admin_operations.tier_state())

    def retention(self) -> Retention:
        """Return the retention rule, and the segments that it would delete now."""
        return self._run(admin_operations.retention())

    def set_retention(self, enabled: bool) -> Retention:
        """Enable or disable deletion in this store; durable on return. The answer's `disabled`
        tells whether the setting janitor.enabled overrides it."""
        return self._run(admin_operations.set_retention(enabled))

    def plan_cleaning(self, *, manual: bool = False, trust_clock: bool = False) -> CleaningLook:
        """Return what the janitor would delete now by itself, or with `manual` on request. Changes
        nothing."""
        return self._run(admin_operations.plan_cleaning(manual=manual, trust_clock=trust_clock))

    def run_cleaning(self, *, trust_clock: bool = False) -> CleaningLook:
        """Let the janitor check now and delete what may go: expired segments at any hour.

        `trust_clock`: the machine's wall clock is right, even if the janitor doubts it.
        """
        return self._run(admin_operations.run_cleaning(trust_clock=trust_clock))

    # --- the services ---

    def trust_clock(self) -> None:
        """Accept the wall clock, however far it has jumped ahead: messages get its time again."""
        self._run(admin_operations.trust_clock())

    def dispatch_state(self) -> FollowerServiceState:
        return self._run(admin_operations.dispatch_state())

    def index_state(self) -> FollowerServiceState:
        return self._run(admin_operations.index_state())

    def gateway_state(self) -> GatewayState:
        """Who is connected with RocketMQ's own clients. UnavailableError where the broker has no
        gateway."""
        return self._run(admin_operations.gateway_state())

    def console_state(self) -> ConsoleState:
        """Where the pages in the browser are. UnavailableError: no console runs."""
        return self._run(admin_operations.console_state())

    def delivery_state(self) -> FollowerServiceState:
        return self._run(admin_operations.delivery_state())

    def held_schedule(self) -> HeldSchedule:
        """What another program stored and left pending, and is not delivered."""
        return self._run(admin_operations.held_schedule())

    def enable_schedule(self) -> HeldSchedule:
        """Deliver what another program stored and left pending, and check its half messages; final
        on return. Returns what was held."""
        return self._run(admin_operations.enable_schedule())

    def scheduled_messages(self, topic: str = "", limit: int = 100) -> ScheduledMessages:
        """The messages that wait for their time, soonest first, of one topic or of all; at most
        1 000."""
        return self._run(admin_operations.scheduled_messages(topic, limit))

    def cancel_scheduled(self, place: str) -> None:
        """Never deliver a message that waits for its time; final on return. NotFoundError says why
        it does not wait."""
        self._run(admin_operations.cancel_scheduled(place))

    def deliver_scheduled_now(self, place: str) -> None:
        """Deliver a message that waits for its time at once, and not again at its time; final on
        return. NotFoundError says why it does not wait."""
        self._run(admin_operations.deliver_scheduled_now(place))

    def dead_letters(self, group: str, begin: int = 0, limit: int = 100) -> DeadLetterPage:
        """What workers of a shared group failed at too often, in the order of its dead-letter
        topic from this offset on; at most 1 000."""
        return self._run(admin_operations.dead_letters(group, begin, limit))

    def replay_dead_letters(
        self, group: str, places: Sequence[str] = (), limit: int = 100
    ) -> tuple[DeadLetterReplay, ...]:
        """Hand dead letters to the workers of their group again, and to no other group; final on
        return. Without places the first ones that were not replayed, at most 256 in a call."""
        return self._run(admin_operations.replay_dead_letters(group, places, limit))

    def rebuild_index(self, start_offset: int = 0, end_offset: int = 0) -> tuple[int, int]:
        """Rebuild the index of a part of the log. Returns the number of files and of items."""
        return self._run(admin_operations.rebuild_index(start_offset, end_offset))


def _names(brokers: Iterable[Broker]) -> str:
    return ", ".join(one.name for one in brokers)
