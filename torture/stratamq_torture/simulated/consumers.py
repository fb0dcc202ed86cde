"""What consumers do, and what they remember: whatever they were shown must stay what it was."""

import random

from stratamq_dispatcher.engine import DispatchEngine
from stratamq_dispatcher.pull import PullAnswer, PullLimits, PullQuery
from stratamq_index.query import KeyQuery, QueryAnswer

from stratamq.errors import CorruptionError, StrataError, UnavailableError
from stratamq.formats.frame_layout import BLANK
from stratamq.formats.message_status import PullStatus
from stratamq.formats.properties import KEYS, UNIQ_KEY, split_keys
from stratamq_torture.simulated.model import Grade, Message
from stratamq_torture.simulated.producers import KEY_COUNT, TOPICS
from stratamq_torture.simulated.rooms import (
    DISPATCHER,
    INDEX,
    FollowerRoom,
)
from stratamq_torture.simulated.world import World
from stratamq_torture.trial import Violation

QueueKey = tuple[str, int]
LIMITS = PullLimits()
REWOUND = 0.25


class Consumers:
    """One reader of each queue, and people who ask for keys."""

    def __init__(self, world: World, dispatcher: FollowerRoom, index: FollowerRoom) -> None:
        self._world = world
        self._dispatcher = dispatcher
        self._index = index
        self._next: dict[QueueKey, int] = {}
        self.pulled = 0
        self.questions = 0

    # --- pulls ---

    def pull(self, chance: random.Random) -> str:
        """A pull from one queue, from where its reader is or from somewhere before."""
        engine = self._dispatcher.engine
        if DISPATCHER in self._world.uncut:
            return "pull: the dispatcher has not learned yet that the log was cut"
        keys = sorted({(q.topic, q.queue_id) for q in engine.queues} | self._next.keys())
        if not keys:
            return "pull: no queue"
        key = chance.choice(keys)
        reached = self._next.get(key, 0)
        offset = chance.randrange(reached + 1) if chance.random() < REWOUND else reached
        return f"pull {key[0]}/{key[1]} from {offset}: {self.pull_from(engine, key, offset)}"

    def pull_all(self, engine: DispatchEngine, key: QueueKey) -> None:
        """Everything there is, from the reader's place on."""
        for _ in range(1000):
            before = self._next.get(key, 0)
            self.pull_from(engine, key, before)
            if self._next.get(key, 0) == before:
                return

    def pull_from(self, engine: DispatchEngine, key: QueueKey, offset: int) -> str:
        world = self._world
        try:
            answer = self._pull(engine, PullQuery(*key, offset, 16, 0))
        except UnavailableError:
            return "not served yet"
        except (CorruptionError, OSError) as error:
            if self._dispatcher.excused or world.cache_lies:
                return f"not read: {error}"
            raise Violation("pull", f"{key[0]}/{key[1]} at {offset}: {error}") from error
        try:
            self._judge(key, offset, answer)
        except Violation as violation:
            if violation.rule == "bytes" and self._unguarded:
                return "torn properties, which no checksum guards"
            raise
        return f"{answer.status.name}, next {answer.next_offset}"

    @property
    def _unguarded(self) -> bool:
        """Without the record checksum torn properties cannot be distinguished from written ones,
        in pages that the kernel has dropped after their write-back had failed, and before a flush
        reports it."""
        world = self._world
        return world.cache_lies and not world.settings.log.property_checksum

    def _pull(self, engine: DispatchEngine, query: PullQuery) -> PullAnswer:
        plan = engine.plan_pull(query, LIMITS)
        return plan if isinstance(plan, PullAnswer) else plan.run(engine.hot_log())

    def _judge(self, key: QueueKey, offset: int, answer: PullAnswer) -> None:
        reached = self._next.get(key, 0)
        if answer.status is PullStatus.FOUND:
            expected = offset
            for message in self._messages(answer):
                if (message.topic, message.queue_id) != key or message.queue_offset != expected:
                    raise Violation(
                        "pull", f"{key[0]}/{key[1]} at {expected} is {message}, "
                        f"number {message.queue_offset}"
                    )  # fmt: skip
                self.saw(message)
                expected += 1
            self._next[key] = max(reached, expected)
            self.pulled += expected - offset
        elif answer.status is PullStatus.OFFSET_TOO_SMALL:
            self._went_on(key, offset, answer)
        elif answer.maximum < reached:
            raise Violation(
                "seen", f"{key[0]}/{key[1]} ends at {answer.maximum}: consumers came to {reached}"
            )

    def _messages(self, answer: PullAnswer) -> list[Message]:
        raw = b"".join(bytes(piece) for piece in answer.pieces)
        found = []
        position = 0
        while position < len(raw):
            size, _ = BLANK.unpack_from(raw, position)
            frame = raw[position : position + size]
            offset = int.from_bytes(frame[28:36], "big", signed=True)
            found.append(self._world.model.observe(offset, frame, "pull"))
            position += size
        if len(found) != answer.count:
            raise Violation(
                "pull", f"{len(found)} frames, and the answer has the count {answer.count}"
            )
        return found

    def _went_on(self, key: QueueKey, offset: int, answer: PullAnswer) -> None:
        """Deletion moves a reader forward, over deleted messages only."""
        model = self._world.model
        for message in model.log:
            if (message.topic, message.queue_id) == key and message.counted:
                passed = offset <= message.queue_offset < answer.next_offset
                if passed and message.offset >= model.deleted_below and message.grade > Grade.NONE:
                    raise Violation("pull", f"{message} was passed over, and is not deleted")
        self._next[key] = max(self._next.get(key, 0), answer.next_offset)

    def saw(self, message: Message) -> None:
        message.seen = True
        message.raise_to(Grade.DURABLE if self._world.sync_flush else Grade.CACHED)

    def lose(self, kept: dict[QueueKey, int]) -> None:
        """The log was cut where that is allowed: readers begin again where it ends."""
        for key, reached in self._next.items():
            self._next[key] = min(reached, kept.get(key, 0))

    # --- questions ---

    def ask(self, chance: random.Random) -> str:
        """A question for one key; its answer comes later."""
        if INDEX in self._world.uncut:
            return "ask: the index has not learned yet that the log was cut"
        topic = chance.choice(TOPICS)
        if chance.random() < 0.3 and self._world.model.messages:
            key = chance.choice(self._world.model.messages).properties.get(UNIQ_KEY, "none")
        else:
            key = f"key-{chance.randrange(KEY_COUNT)}"
        return self.ask_for(topic, key)

    def ask_for(self, topic: str, key: str) -> str:
        engine, world, index = self._index.engine, self._world, self._index
        minimum, position = engine.followed.minimum, engine.followed.applied
        life = index.starts, engine.cut_count

        def done(answer: QueryAnswer | None, error: BaseException | None) -> None:
            if error is not None:
                excused = isinstance(error, StrataError) and (index.excused or world.cache_lies)
                if not (excused or isinstance(error, UnavailableError)):
                    raise Violation("query", f"{topic}#{key}: {error!r}")
            elif answer is not None:
                self.questions += 1
                # An index that has not received the log's cut yet answers for the lost history.
                cut_received = INDEX not in world.uncut and not world.cache_lies
                whole = cut_received and life == (index.starts, engine.cut_count)
                self._judge_answer(topic, key, answer, minimum, position if whole else 0)

        try:
            engine.ask(KeyQuery(topic, key, max_messages=10_000, end_ms=None), done)
        except UnavailableError:
            return f"ask {topic}#{key}: not served yet"
        return f"ask {topic}#{key} below {position}"

    def _judge_answer(
        self, topic: str, key: str, answer: QueryAnswer, minimum: int, position: int
    ) -> None:
        """Nothing else, and nothing missing that was indexed when the question came."""
        model = self._world.model
        found = set()
        for offset, frame in answer.frames:
            message = model.observe(offset, frame, "query")
            if message.topic != topic or not has_key(message, key):
                raise Violation("query", f"{topic}#{key} gave {message}")
            self.saw(message)
            found.add(message.number)
        if len(found) != len(answer.frames):
            raise Violation("query", f"{topic}#{key}: a message twice")
        minimum = max(minimum, model.deleted_below)
        for message in model.messages:
            there = message.grade > Grade.NONE and minimum <= message.offset < position
            meant = message.topic == topic and message.indexed and has_key(message, key)
            if there and meant and message.number not in found:
                raise Violation("query", f"{topic}#{key} did not give {message}")


def has_key(message: Message, key: str) -> bool:
    """Whether the index finds a message under a key."""
    if message.properties.get(UNIQ_KEY) == key:
        return True
    return key in split_keys(message.properties.get(KEYS, ""))
