# Generated from _async/admin.py by scripts/gen_sync_client.py (`make client`).
"""What operators ask of a broker: its services' states, roles, topics, deletion, repair."""

from collections.abc import Sequence

from stratamq.client import admin_operations, forks, group_operations, operations, replication_state
from stratamq.client._sync.calls import run_plan
from stratamq.client.checking import checked
from stratamq.client.consuming import Start
from stratamq.client.group_reset import GroupReset, plan_group_reset
from stratamq.client.operations import RunOperation
from stratamq.client.replication_state import Demotion, Promotion, Removal, ReplicationState
from stratamq.client.scaling import drain_of_topics
from stratamq.client.topic_purge import QueuePurge, delete_topic, plan_purge, purge_topic
from stratamq.client.values import (
    CleaningLook,
    Election,
    FollowerServiceState,
    JanitorState,
    Retention,
    Role,
    TierState,
    Topic,
)
from stratamq.formats.members import Members
from stratamq.formats.topics import DRAIN_TOPIC, Drain

QUEUES_PER_COMMIT = 5_000
"""Of one call: with the longest topic names less than 1 MiB."""


@checked
class AdminClient:
    """`Client.admin`. Of brokers of several names topics and groups are changed at all of
    them, or at none when one has no master; everything else is of one broker, to be chosen by its
    name."""

    def __init__(self, run: RunOperation) -> None:
        forks.watch(self)
        self._run = run

    # --- topics ---

    def put_topic(self, topic: Topic) -> Topic:
        """Create a topic or change its settings; durable on return."""
        return self._run(admin_operations.put_topic(topic))

    def create_topic(self, topic: Topic, *, if_not_exists: bool = False) -> Topic:
        """Durable on return. InvalidRequestError when there is one of this name, unless
        `if_not_exists`, which leaves it as it is."""
        if if_not_exists and (known := self._run(operations.topics(topic.name))):
            return known[0]
        return self._run(admin_operations.put_topic(topic, must_be_new=True))

    def alter_topic(
        self,
        name: str,
        *,
        read_queue_count: int | None = None,
        write_queue_count: int | None = None,
        permission: int | None = None,
        ordered: bool | None = None,
    ) -> Topic:
        """Change what is given, and nothing else; durable on return. Queues that hold messages stay
        readable. NotFoundError when there is no such topic."""
        return self._run(
            admin_operations.alter_topic(
                name, read_queue_count, write_queue_count, permission, ordered
            )
        )

    def plan_purge(
        self, topic: str, before: Start, queue_id: int | None = None
    ) -> list[QueuePurge]:
        """What `purge_topic` would take, by queue: all messages before an offset, a moment, or all
        but the last ones (`-N`); nothing is changed. Of all queues, or of one.
        NotFoundError when there is no such topic, or nothing in it."""
        return run_plan(self._run, plan_purge(topic, before, queue_id))

    def purge_topic(self, topic: str, purges: Sequence[QueuePurge]) -> None:
        """Raise the minimum offsets of queues for good, as planned: consumers get nothing below
        them any more, about a second after this returns; the log's space comes back by retention.
        NotWritableError of a slave."""
        changed = [one for one in purges if one.offset > one.before]
        if changed:
            self._run(purge_topic(topic, changed))

    def delete_topic(self, name: str) -> None:
        """Hide all that the topic has, for good; durable on return.

        Consumers learn it about a second later, and groups forget the topic. Producers are refused
        until `create_topic` makes it again: it goes on behind the offsets that were used. Space is
        freed by retention. NotFoundError; InvalidRequestError for the broker's own topics, and for
        one with messages in more than 1 000 queues; NotWritableError of a slave.
        """
        self._run(delete_topic(name))

    # --- whether it takes messages ---

    def drain(self) -> Drain:
        """Of one broker: whether it takes messages."""
        return drain_of_topics(self._run(operations.topics(DRAIN_TOPIC)))

    def set_drain(self, drain: Drain) -> None:
        """Of one broker, and with it of its slaves; durable on return. NotWritableError of a
        slave."""
        self._run(admin_operations.put_topic(Topic(DRAIN_TOPIC, 1, 1, drain.value)))

    # --- groups ---

    def plan_group_reset(self, group: str, to: Start, topic: str = "") -> list[GroupReset]:
        """Where `group` would continue after a reset, by queue; nothing is changed.

        What a queue does not hold becomes the nearest offset that it does.
        `topic` "": every topic of which the group has committed something. NotFoundError when there
        is none, or no such topic.
        """
        return run_plan(self._run, plan_group_reset(group, to, topic))

    def reset_group(self, group: str, resets: Sequence[GroupReset]) -> None:
        """Commit what was planned, some queues a call: after an error the first ones may be reset.
        A reader of the group that runs commits its own place again: stop them first.
        NotWritableError of a slave."""
        for first in range(0, len(resets), QUEUES_PER_COMMIT):
            some = resets[first : first + QUEUES_PER_COMMIT]
            offsets = {(one.topic, one.queue_id): one.offset for one in some}
            self._run(group_operations.commit_offsets(group, offsets))

    def delete_group(self, group: str, topic: str = "") -> int:
        """Forget where `group` is, in all topics or in one: the number of queues. A reader of the
        group that runs commits its own place again: stop it first. NotWritableError of a slave."""
        return self._run(group_operations.delete_group(group, topic))

    # --- replication ---

    def replication_state(self) -> ReplicationState:
        """A master's slaves, or how a slave follows its master."""
        return self._run(replication_state.replication_state())

    def resync(self) -> None:
        """Let a slave that has nothing in common with its master begin anew; what its log holds is
        kept aside. It happens at its next contact with the master."""
        self._run(replication_state.resync())

    def promote(
        self, role: Role | None = None, *, force: bool = False, succeeds: str = ""
    ) -> Promotion:
        """Make this broker the master: every broker that learns of its higher term stops writing.
        NotWritableError has the reasons against it; `force` does it all the same. `succeeds`: the
        member that has ended its lead for this one, for agents."""
        return self._run(replication_state.promote(role, force, succeeds))

    def demote(self, master: str = "", *, force: bool = False) -> Demotion:
        """Make this broker a slave that follows the master whose slaves connect to `master`; "":
        the other members answer. NotWritableError if no slave has everything, unless `force`."""
        return self._run(replication_state.demote(master, force))

    def remove_member(self, name: str, *, force: bool = False) -> Removal:
        """Take a member that is dead for good out of its cluster, at the master. NotWritableError
        when it answers, or another one lacks something, unless `force`."""
        return self._run(replication_state.remove_member(name, force))

    def admit_member(self, name: str) -> Members:
        """Take a removed member in again, or add one that is configured at this master. It counts
        when it has what this master had confirmed."""
        return self._run(replication_state.admit_member(name))

    # --- failover ---

    def election(self) -> Election:
        """Who leads the cluster, by the broker's agent."""
        return self._run(admin_operations.election())

    def switchover(self, member: str) -> None:
        """Let `member` lead: recorded on return, done when `election` shows it. NotWritableError
        while failover is paused, or when it leads already."""
        self._run(admin_operations.switchover(member))

    def set_failover_paused(self, paused: bool) -> None:
        """Let agents promote nobody, or again; recorded on return."""
        self._run(admin_operations.set_failover_paused(paused))

    def grant_lease(self, term: int, boot: str, until_ns: int, *, ended_reason: str = "") -> None:
        """For agents: let a master of `term` answer up to `until_ns` of CLOCK_BOOTTIME of the
        machine's start `boot`; with `ended_reason` let it answer nothing, whatever was granted up
        to then. NotWritableError of any other log."""
        self._run(admin_operations.grant_lease(term, boot, until_ns, ended_reason))

    # --- deletion ---

    def delete_below(
        self, offset: int, *, max_segments: int = 10, urgent: bool = False
    ) -> tuple[int, tuple[str, ...]]:
        """Let the log delete whole segments below `offset`, oldest first, never the last: its new
        minimum, and the files. `urgent` does not wait for followers."""
        return self._run(
            admin_operations.delete_below(offset, max_segments=max_segments, urgent=urgent)
        )

    def janitor_state(self) -> JanitorState:
        """What the janitor has done and found."""
        return self._run(admin_operations.janitor_state())

    def tier_state(self) -> TierState:
        """What the broker's tier service has uploaded, and what it waits for."""
        return self._run(admin_operations.tier_state())

    def retention(self) -> Retention:
        """The rule by which log segments are deleted, and what it takes from the log as it is."""
        return self._run(admin_operations.retention())

    def set_retention(self, enabled: bool) -> Retention:
        """Enable or disable deletion in this store; durable on return. `disabled` of the answer
        reports whether the setting janitor.enabled overrides it."""
        return self._run(admin_operations.set_retention(enabled))

    def plan_cleaning(self, *, manual: bool = False, trust_clock: bool = False) -> CleaningLook:
        """What the janitor would delete now, as by itself or as if asked; nothing is changed."""
        return self._run(admin_operations.plan_cleaning(manual=manual, trust_clock=trust_clock))

    def run_cleaning(self, *, trust_clock: bool = False) -> CleaningLook:
        """Let the janitor look now, and delete what may go: expired segments at any hour.

        `trust_clock`: the machine's wall clock is right, whatever the janitor makes of it.
        """
        return self._run(admin_operations.run_cleaning(trust_clock=trust_clock))

    # --- the services ---

    def trust_clock(self) -> None:
        """The wall clock is right, however far it has jumped ahead: messages get its time again."""
        self._run(admin_operations.trust_clock())

    def dispatch_state(self) -> FollowerServiceState:
        return self._run(admin_operations.dispatch_state())

    def index_state(self) -> FollowerServiceState:
        return self._run(admin_operations.index_state())

    def rebuild_index(self, start_offset: int = 0, end_offset: int = 0) -> tuple[int, int]:
        """Build the index of a part of the log anew; files and items written."""
        return self._run(admin_operations.rebuild_index(start_offset, end_offset))
