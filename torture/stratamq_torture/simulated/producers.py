"""What producers send: every kind of append, with sizes from a short list, so that frames of a lost
history and of the one that takes its place begin at the same offsets.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from stratamq_commitlog.engine import CommitLog
from stratamq_commitlog.messages import BatchResult, FrameBatch, FrameRun, PutMessage, PutResult

from stratamq.formats import sysflag
from stratamq.formats.batch_frames import BatchEncoder, FrameShape
from stratamq.formats.frame import encode
from stratamq.formats.hosts import Host, encode_host
from stratamq.formats.message_status import SendStatus
from stratamq.formats.properties import (
    DELAY,
    KEYS,
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    UNIQ_KEY,
    encode_properties,
)
from stratamq.formats.property_crc import reserve
from stratamq.formats.topics import HALF_TOPIC, SCHEDULE_TOPIC
from stratamq_torture.simulated.model import Fate, Grade, Message, Model
from stratamq_torture.simulated.rooms import LogRoom
from stratamq_torture.simulated.world import Sizes, World
from stratamq_torture.trial import Violation

TOPICS = ("orders", "things")
QUEUES = 2
TAG_TEXTS = ("", "tag-a", "tag-b")
KEY_COUNT = 6
BORN = Host("10.0.0.7", 4711)


class Producers:
    """Send to the broker's log, and receive its answers."""

    def __init__(self, world: World, log: LogRoom, sizes: Sizes) -> None:
        self._world = world
        self._log = log
        self._sizes = sizes

    def send(self, kind: str, chance: random.Random) -> str:
        """One call of a producer. What was sent, for the trace."""
        engine = self._log.engine
        call: Callable[[CommitLog, random.Random], Sequence[Message]] = getattr(self, f"_{kind}")
        sent = call(engine, chance)
        return f"{kind}: " + ", ".join(f"#{m.number} {m.topic}/{m.queue_id}" for m in sent)

    # --- kinds ---

    def _one(self, engine: CommitLog, chance: random.Random) -> Sequence[Message]:
        return self._put(engine, [self._message(chance)])

    def _many(self, engine: CommitLog, chance: random.Random) -> Sequence[Message]:
        count = chance.randint(2, 4)
        return self._put(engine, [self._message(chance) for _ in range(count)])

    def _together(self, engine: CommitLog, chance: random.Random) -> Sequence[Message]:
        group = self._model.new_group()
        topic, queue_id = chance.choice(TOPICS), chance.randrange(QUEUES)
        count = chance.randint(2, 4)
        sent = [self._message(chance, topic, queue_id, group=group) for _ in range(count)]
        return self._put(engine, sent, together=True)

    def _unwaited(self, engine: CommitLog, chance: random.Random) -> Sequence[Message]:
        return self._put(engine, [self._message(chance)], wait=False)

    def _delayed(self, engine: CommitLog, chance: random.Random) -> Sequence[Message]:
        level = chance.randint(1, 3)
        return self._stored_elsewhere(
            engine, chance, SCHEDULE_TOPIC, level - 1, {DELAY: str(level)}, delay_level=level
        )

    def _half(self, engine: CommitLog, chance: random.Random) -> Sequence[Message]:
        return self._stored_elsewhere(engine, chance, HALF_TOPIC, 0, {}, half=True)

    def _stored_elsewhere(
        self,
        engine: CommitLog,
        chance: random.Random,
        stored: str,
        stored_queue: int,
        named: dict[str, str],
        **asked: Any,
    ) -> Sequence[Message]:
        """Under a topic of the log's own; the one that was asked for is in the properties."""
        topic, queue_id = chance.choice(TOPICS), chance.randrange(QUEUES)
        named = {**named, REAL_TOPIC: topic, REAL_QID: str(queue_id)}
        message = self._message(chance, stored, stored_queue, named=named)
        own = {name: value for name, value in message.properties.items() if name not in named}
        put = PutMessage(
            topic, message.body, BORN, queue_id, properties=own, flag=message.flag, **asked
        )
        engine.put([put], False, self._answers([message]))
        return [message]

    def _raw(self, engine: CommitLog, chance: random.Random) -> Sequence[Message]:
        """Frames with transaction bits, as replication and a transaction's end store them."""
        bits = (
            sysflag.TRANSACTION_PREPARED,
            sysflag.TRANSACTION_COMMIT,
            sysflag.TRANSACTION_ROLLBACK,
        )
        sent = [
            self._message(chance, sys_flag=chance.choice(bits)) for _ in range(chance.randint(1, 2))
        ]
        frames = []
        for message in sent:
            properties = encode_properties(message.properties)
            if self._world.settings.log.property_checksum:
                properties = reserve(properties)
            frames.append(
                encode(
                    topic=message.topic.encode(),
                    body=message.body,
                    born_host=encode_host(BORN),
                    store_host=engine.store_host,
                    properties=properties,
                    queue_id=message.queue_id,
                    sys_flag=message.sys_flag,
                    flag=message.flag,
                )
            )
        engine.put_raw(frames, self._answers(sent))
        return sent

    def _batch(self, engine: CommitLog, chance: random.Random) -> Sequence[Message]:
        """A batch of the fast stream: all of it or nothing."""
        group = self._model.new_group()
        shape = FrameShape(
            encode_host(BORN), len(engine.store_host), engine.config.property_checksum
        )
        encoder = BatchEncoder(shape)
        sent: list[Message] = []
        runs: list[FrameRun] = []
        for _ in range(chance.randint(1, 3)):
            topic, queue_id = chance.choice(TOPICS), chance.randrange(QUEUES)
            part = [
                self._message(chance, topic, queue_id, group=group, flag=0)
                for _ in range(chance.randint(1, 3))
            ]
            encoder.add(topic, [(m.body, encode_properties(m.properties)) for m in part])
            runs.append(FrameRun(topic, queue_id, len(part)))
            sent += part
        _, frames = encoder.finish()
        batch = FrameBatch(runs, np.array(encoder.lengths, np.uint32), frames)
        engine.puts.batch(batch, self._batch_answer(sent, runs))
        return sent

    # --- messages ---

    @property
    def _model(self) -> Model:
        return self._world.model

    def _message(
        self,
        chance: random.Random,
        topic: str = "",
        queue_id: int | None = None,
        *,
        named: dict[str, str] | None = None,
        sys_flag: int = 0,
        flag: int | None = None,
        group: int = 0,
    ) -> Message:
        sizes = self._sizes
        size = chance.choice(sizes.bodies)
        if chance.randrange(10) < sizes.odd:
            size = chance.randrange(sizes.largest)
        properties = dict(named or {})
        number = len(self._model.messages) + 1
        if sizes.alike or chance.random() < 0.8:
            properties[UNIQ_KEY] = f"U{number:07d}"
        if sizes.alike or chance.random() < 0.7:
            count = 1 if sizes.alike else chance.choice((1, 1, 2))
            keys = [f"key-{chance.randrange(KEY_COUNT)}" for _ in range(count)]
            properties[KEYS] = " ".join(dict.fromkeys(keys))
        tag = chance.choice(TAG_TEXTS[1:] if sizes.alike else TAG_TEXTS)
        if tag:
            properties[TAGS] = tag
        if chance.randrange(10) < sizes.long_properties:
            properties["note"] = f"{number:08d}" * chance.choice((70, 130, 520))
        return self._model.new(
            topic or chance.choice(TOPICS),
            chance.randrange(QUEUES) if queue_id is None else queue_id,
            size,
            properties,
            sys_flag=sys_flag,
            flag=chance.choice((0, 0, 7)) if flag is None else flag,
            group=group,
        )

    def _put(
        self,
        engine: CommitLog,
        sent: Sequence[Message],
        *,
        together: bool = False,
        wait: bool = True,
    ) -> Sequence[Message]:
        asked = [
            PutMessage(
                topic=message.topic,
                body=message.body,
                born_host=BORN,
                queue_id=message.queue_id,
                properties=dict(message.properties),
                flag=message.flag,
                wait_store_ok=wait,
            )
            for message in sent
        ]
        engine.put(asked, together, self._answers(sent, wait=wait))
        return sent

    # --- answers ---

    def _answers(
        self, sent: Sequence[Message], *, wait: bool = True
    ) -> Callable[[list[PutResult]], None]:
        done = self._once(sent)

        def answered(results: list[PutResult]) -> None:
            done()
            if len(results) != len(sent):
                raise Violation("answer", f"{len(results)} answers to {len(sent)} messages")
            for message, result in zip(sent, results, strict=True):
                self._take(message, result.status, result.physical_offset, result, wait=wait)

        return answered

    def _batch_answer(
        self, sent: Sequence[Message], runs: Sequence[FrameRun]
    ) -> Callable[[BatchResult], None]:
        done = self._once(sent)

        def answered(result: BatchResult) -> None:
            done()
            offset = result.physical_offset
            position = 0
            for number, run in enumerate(runs):
                for index in range(run.count):
                    message = sent[position]
                    self._take(message, result.status, offset, None)
                    if offset >= 0:
                        expected = result.first_queue_offsets[number] + index
                        if message.frame and message.queue_offset != expected:
                            raise Violation(
                                "answer", f"{message} has {message.queue_offset}, not {expected}"
                            )
                        offset += len(message.frame)
                    position += 1

        return answered

    def _once(self, sent: Sequence[Message]) -> Callable[[], None]:
        answered = [False]

        def once() -> None:
            if answered[0]:
                raise Violation("answer", f"{sent[0]} was answered twice")
            answered[0] = True

        return once

    def _take(
        self,
        message: Message,
        status: SendStatus,
        offset: int,
        result: PutResult | None,
        *,
        wait: bool = True,
    ) -> None:
        """What the answer to one message promises from now on."""
        world = self._world
        if offset < 0:
            if status.stored:
                raise Violation("answer", f"{message}: {status.name}, and no place")
            message.fate = Fate.REFUSED
            world.refused += 1
            return
        durable = status is SendStatus.PUT_OK and world.sync_flush and wait
        if world.cache_lies and not durable:
            # The place may show anything by now, and nothing is promised.
            return
        segment_bytes = world.segment_bytes
        head = world.disk.read(offset, 4, segment_bytes)
        raw = world.disk.read(offset, int.from_bytes(head, "big"), segment_bytes)
        if world.model.observe(offset, raw, "answer") is not message:
            raise Violation("answer", f"{message} is reported to be at {offset}")
        if result is not None and (result.queue_id, result.queue_offset, result.size) != (
            message.queue_id,
            message.queue_offset,
            len(raw),
        ):
            raise Violation("answer", f"{message}: {result}")
        message.fate = Fate.STORED
        if status is SendStatus.PUT_OK:
            message.acknowledged = True
            world.acknowledged += 1
            message.raise_to(Grade.DURABLE if durable else Grade.CACHED)
        elif status.stored:
            message.raise_to(Grade.CACHED)
