"""What the clients of a broker were told, and what must be true of its log for that.

An answer is a claim: what it says lies in the log below the place that the log had come to. A log
that may lose its end (a loss of power with ASYNC_FLUSH, the promotion of a slave that lacks
something) takes the claims above that back; all others hold to the end. By body, which no two
messages share.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from stratamq_delivery import records
from stratamq_delivery.audit import Audit
from stratamq_delivery.entries import HandedOut, Moved, Started, Stopped
from stratamq_delivery.records import GroupPlace
from stratamq_delivery.shared_queue import SharedQueue
from stratamq_delivery.transaction_records import Outcome

from stratamq.formats.frame import Frame
from stratamq.formats.properties import DELIVERED_NOW, TAGS
from stratamq.formats.topics import DEAD_LETTER_PREFIX, TRANSACTION_CHECK_MAX_TIME_TOPIC
from stratamq.store.log_pieces import read_pieces
from stratamq_torture.deliveries.broker import SEGMENT_BYTES, Broker
from stratamq_torture.trial import Violation

LATER, PAID, WORK, STEPS = "later", "paid", "work", "steps"
RED = ("red",)
MESSAGE_GROUP = "__SHARDINGKEY"
READ_MESSAGES = 4_096
SHOWN = 3

Key = tuple[str, bytes]
"""A group, and a message."""


@dataclass(slots=True)
class Acknowledged:
    end: int
    moment: int


@dataclass(slots=True)
class Held:
    """A message in a worker's hands."""

    group: str
    topic: str
    body: bytes
    receipt: bytes
    until_ms: int
    worker: str


@dataclass(slots=True)
class Ledger:
    """`moment` counts what clients do, so that it can be said what began after what."""

    moment: int = 0
    epoch: int = 0
    """Another one after each loss and promotion: an answer across it is no claim."""
    stored: dict[bytes, tuple[str, int]] = field(default_factory=dict)
    """Topic, and the claim."""
    decided: dict[bytes, tuple[Outcome, int]] = field(default_factory=dict)
    acknowledged: dict[Key, Acknowledged] = field(default_factory=dict)
    asked: Counter[Key] = field(default_factory=Counter)
    """Acknowledgements that were not refused."""
    cancelled: dict[bytes, int] = field(default_factory=dict)
    """Delayed messages, and the claim."""
    perhaps_cancelled: set[bytes] = field(default_factory=set)
    """Operators wanted that, whether it was answered or not."""
    wanted_now: set[bytes] = field(default_factory=set)
    """Delayed messages that operators want at once."""
    refused: set[bytes] = field(default_factory=set)
    """What the log answered that it has not stored."""
    holds: dict[Key, Held] = field(default_factory=dict)
    """Who has a message until when; forgotten when the log may not know it."""
    stopping: set[str] = field(default_factory=set)
    put_back: bool = False
    """Whether a wall clock was: store times stand still then."""
    counts: Counter[str] = field(default_factory=Counter)

    def begin(self) -> int:
        self.moment += 1
        return self.moment

    def lose(self, end: int) -> None:
        """The log goes on at `end`."""
        self.stored = {body: one for body, one in self.stored.items() if one[1] <= end}
        self.decided = {body: one for body, one in self.decided.items() if one[1] <= end}
        self.cancelled = {body: one for body, one in self.cancelled.items() if one <= end}
        known = self.acknowledged.items()
        self.acknowledged = {key: one for key, one in known if one.end <= end}

    def forget_holds(self) -> None:
        """A hand-out that is not in the log, perhaps, brings its messages back early."""
        self.epoch += 1
        self.holds.clear()

    def stop(self, group: str) -> None:
        """It goes back to its floors: what was acknowledged above comes again."""
        self.stopping.add(group)
        self.acknowledged = {key: one for key, one in self.acknowledged.items() if key[0] != group}
        self.holds = {key: one for key, one in self.holds.items() if key[0] != group}

    # --- hand-outs ---

    def handed(self, one: Held, asked_at: int, epoch: int, now_ms: int, leased: bool) -> None:
        """`leased`: how long it is hidden is not known."""
        key = one.group, one.body
        done = self.acknowledged.get(key)
        if done is not None and done.moment < asked_at:
            raise Violation("back", f"{one.body!r} comes back to {one.group}, acknowledged before")
        self.counts["handed out"] += 1
        if epoch != self.epoch:
            return  # by a service that may be no master's any more
        before = self.holds.get(key)
        if before is not None and before.until_ms > now_ms and before.receipt != one.receipt:
            raise Violation(
                "two", f"{before.worker} of {one.group} has {one.body!r}, and {one.worker} gets it"
            )
        if leased:
            self.holds.pop(key, None)
        else:
            self.holds[key] = one

    def in_order(self, group: str, frame: Frame, queue: list[Frame], state: SharedQueue) -> None:
        """Nothing is handed out before all in front of it in its message group is finished:
        acknowledged, or handed out too often, by answers that no worker got, perhaps."""
        name = frame.properties.get(MESSAGE_GROUP)
        for offset, earlier in enumerate(queue[: frame.queue_offset] if name else ()):
            if earlier.properties.get(MESSAGE_GROUP) != name or self.asked[group, earlier.body]:
                continue
            if state.first_unfinished(offset, offset + 1) is not None:
                raise Violation("order", f"{frame.body!r} is handed out before {earlier.body!r}")

    def acknowledges(self, held: Iterable[Held]) -> None:
        self.asked.update((one.group, one.body) for one in held)

    def settled(self, one: Held, refused: bool, end: int | None) -> None:
        """An acknowledgement was answered. `end`: the claim; None: it is none."""
        key = one.group, one.body
        if refused:
            self.asked[key] -= 1
            return
        self.counts["acknowledged"] += 1
        self.holds.pop(key, None)
        if end is not None and one.group not in self.stopping:
            self.acknowledged.setdefault(key, Acknowledged(end, self.begin()))

    # --- the end ---

    def unfinished(self, group: str, topic: str, broker: Broker) -> list[bytes]:
        """What the log has for a group, and no worker has finished."""
        frames = _queues_of(broker, topic)
        if tags := tags_of(group):
            frames = [one for one in frames if one.properties.get(TAGS) in tags]
        dead = {one.body for one in _queues_of(broker, DEAD_LETTER_PREFIX + group)}
        bodies = [one.body for one in frames if not self.asked[group, one.body]]
        return [body for body in bodies if body not in dead]

    def check(self, broker: Broker, groups: dict[str, str]) -> None:
        """Everything has come to rest."""
        self._check_stored(broker, groups)
        self._check_transactions(broker)
        _check_attempts(broker)
        self._audit(broker)

    def _check_stored(self, broker: Broker, groups: dict[str, str]) -> None:
        later = _queues_of(broker, LATER)
        shown = Counter(one.body for one in later)
        early = {one.body for one in later if DELIVERED_NOW in one.properties}
        if early - self.wanted_now:
            raise Violation("early", f"no operator wanted {min(early - self.wanted_now)!r} at once")
        for body, (topic, _) in self.stored.items():
            least = 0 if body in self.perhaps_cancelled else 1
            if topic == LATER and not least <= shown[body] <= 1:
                raise Violation("lost", f"{body!r} was stored, and is {shown[body]} times there")
        if twice := [body for body, count in shown.items() if count > 1]:
            raise Violation("twice", f"{twice[0]!r} was delivered {shown[twice[0]]} times")
        if wrong := self.cancelled.keys() & shown.keys():
            raise Violation("cancelled", f"{min(wrong)!r} was cancelled, and is delivered")
        if wrong := self.refused & {*shown}:
            raise Violation("refused", f"{min(wrong)!r} was refused, and is delivered")
        for group, topic in groups.items():
            if left := self.unfinished(group, topic, broker):
                raise Violation("lost", f"{left[:SHOWN]} came to no worker of {group} in the end")
            there = {one.body for one in _queues_of(broker, topic)}
            kept = [body for body, (name, _) in self.stored.items() if name == topic]
            if gone := [body for body in kept if body not in there]:
                raise Violation("lost", f"{gone[:SHOWN]} are not in {topic}")

    def _check_transactions(self, broker: Broker) -> None:
        shown = Counter(one.body for one in _queues_of(broker, PAID))
        given_up = Counter(one.body for one in _queues_of(broker, TRANSACTION_CHECK_MAX_TIME_TOPIC))
        for body, (outcome, _) in self.decided.items():
            if shown[body] != (outcome is Outcome.COMMITTED) or given_up[body]:
                text = f"{outcome.name.lower()}, and is shown {shown[body]} times"
                raise Violation("decision", f"{body!r} was {text}")
        for body, count in (shown + given_up).items():
            if count > 1:
                raise Violation("twice", f"{body!r} of a transaction is there {count} times")

    def _audit(self, broker: Broker) -> None:
        """By the log's records alone. With a clock that was put back, the log's times do not say
        when something was decided: `handed` and the machines' own look at the clock do."""
        assert broker.service is not None and broker.service.followed.segments is not None
        audit, followed = Audit(0), broker.service.followed
        window, end = followed.segments.window, followed.applied
        for piece in read_pieces(window, SEGMENT_BYTES, READ_MESSAGES, 0, end):
            audit.read(piece)
        audit.end()
        by_time = (" ms early", "to two workers at once")
        faults = [
            one for one in audit.faults if not (self.put_back and any(t in one for t in by_time))
        ]
        if faults:
            raise Violation("audit", "; ".join(faults[:SHOWN]))
        self.counts.update({f"audited: {name}": n for name, n in audit.counts.items()})


def tags_of(group: str) -> tuple[str, ...]:
    """Which messages its workers want; none: all."""
    return RED if group == "red" else ()


def _queues_of(broker: Broker, topic: str) -> list[Frame]:
    queues = broker.queues.messages.items()
    return [frame for (name, _), queue in queues if name == topic for frame, _ in queue]


def _check_attempts(broker: Broker) -> None:
    """The log has every attempt of each message once, one after the other."""
    attempts: dict[GroupPlace, dict[int, tuple[int, int]]] = defaultdict(dict)
    for frame in broker.queues.all:
        if frame.topic != records.RECORDS or not frame.body.startswith(records.MAGIC):
            continue
        record = records.decode(frame.body)
        for place, entry in () if record.is_piece else record.entries:
            known = attempts[place]
            if isinstance(entry, Started | Stopped):
                known.clear()
            elif isinstance(entry, HandedOut | Moved):
                new = entry.new if isinstance(entry, Moved) else entry
                # The hand-out that a moved one replaces may be lost: its receipt has the attempt.
                # What no worker got was no attempt, so that a moved one has one less.
                steps = (0, 1, -1) if isinstance(entry, Moved) else (1,)
                for start, end in entry.runs:
                    for offset in range(start, end):
                        token, before = known.get(offset, (0, new.attempt - steps[0]))
                        if offset not in known and isinstance(entry, HandedOut):
                            before = 0
                        if token != new.token and new.attempt - before not in steps:
                            raise Violation(
                                "attempts",
                                f"{place.group}: {place.topic} {place.queue_id} {offset} has "
                                f"attempt {new.attempt} behind {before}",
                            )
                        known[offset] = new.token, new.attempt
