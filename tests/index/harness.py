"""A log made for tests, and an engine that follows it without a network."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from stratamq_index.engine import IndexEngine
from stratamq_index.persistence import EngineSettings
from stratamq_index.query import KeyQuery, QueryAnswer
from stratamq_index.rebuild import Rebuild, Rebuilt, Wait

from stratamq.files.port import Files
from stratamq.files.simulated import SimulatedClock, SimulatedScheduler
from stratamq.follow.protocol import Event, Opened
from stratamq.formats import sysflag
from stratamq.formats.dispatch import dispatch_columns, scan_lengths
from stratamq.formats.file_names import index_name, offset_name, parse_offset_name
from stratamq.formats.frame import Frame, decode, encode, encode_blank
from stratamq.formats.frame_layout import fits
from stratamq.formats.index_columns import index_keys
from stratamq.formats.properties import encode_properties, split_keys
from tests.support.index_files import IndexFilesBuilder

SEGMENT_BYTES = 4096
SLOTS, ITEMS = 8, 16
START_MS = 1_795_000_000_000
HOST = bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big")
GENERATION = 7


@dataclass(slots=True)
class Message:
    offset: int
    frame: Frame


class TestLog:
    """Segments written through the port. `appended` grows; nothing is flushed without a call."""

    __test__ = False

    def __init__(self, files: Files, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.files = files
        self.segment_bytes = segment_bytes
        self.end = 0
        self.minimum = 0
        self.time_ms = START_MS
        self.messages: list[Message] = []

    def append(
        self,
        keys: str = "",
        unique: str | None = None,
        *,
        topic: str = "orders",
        tags: str | None = None,
        transaction: int = 0,
        step_ms: int = 7,
        body: bytes = b"body",
    ) -> int:
        """One message; its offset."""
        self.time_ms += step_ms
        properties = {"KEYS": keys or None, "UNIQ_KEY": unique, "TAGS": tags}
        raw = encode(
            topic=topic.encode(),
            body=body,
            born_host=HOST,
            store_host=HOST,
            properties=encode_properties(properties),
            sys_flag=transaction,
            store_timestamp_ms=self.time_ms,
            physical_offset=0,
        )
        remaining = self.segment_bytes - self.end % self.segment_bytes
        if not fits(len(raw), remaining):
            self._write(encode_blank(remaining))
            self.end += remaining
        raw = raw[:28] + self.end.to_bytes(8, "big") + raw[36:]
        offset = self.end
        self._write(raw)
        frame = decode(raw)
        assert isinstance(frame, Frame)
        self.messages.append(Message(offset, frame))
        self.end += len(raw)
        return offset

    def fill(self, count: int, seed: int = 1, *, keyless: bool = False) -> None:
        """`count` messages of all kinds."""
        chance = random.Random(seed)
        for number in range(count):
            words = [f"key-{chance.randrange(12)}" for _ in range(chance.choice((0, 1, 1, 2, 3)))]
            self.append(
                "" if keyless else " ".join(words),
                None if keyless or chance.random() < 0.2 else f"U{seed}-{number:06d}",
                topic=chance.choice(("orders", "payments", "%RETRY%billing")),
                tags=chance.choice((None, "TagA", "TagB")),
                transaction=chance.choice((0, 0, 0, *sysflag_values())),
                step_ms=chance.choice((0, 1, 40, 700, 2500)),
                body=b"x" * chance.randrange(1, 60),
            )

    def cut(self, offset: int) -> None:
        """Remove everything from `offset` on, as a cut of the log does."""
        self.messages = [m for m in self.messages if m.offset < offset]
        for entry in self.files.list("commitlog"):
            start = parse_offset_name(entry.name)
            if start is not None and start >= offset:
                self.files.unlink(f"commitlog/{entry.name}")
        start = offset - offset % self.segment_bytes
        if start < offset:
            file = self.files.open(f"commitlog/{offset_name(start)}", writable=True)
            file.zero(offset - start, self.segment_bytes - (offset - start))
            file.close()
        self.end = offset

    def delete_below(self, offset: int) -> None:
        for entry in self.files.list("commitlog"):
            start = parse_offset_name(entry.name)
            if start is not None and start + self.segment_bytes <= offset:
                self.files.unlink(f"commitlog/{entry.name}")
                self.minimum = start + self.segment_bytes

    def events(
        self, start: int, generation: int, *, flushed: int | None = None, count: int = 5,
        bare: bool = False,
    ) -> Iterator[Event]:  # fmt: skip
        """The ranges from `start` to the end, `count` members each, each in one segment."""
        flushed = self.end if flushed is None else flushed
        while start < self.end:
            base = start - start % self.segment_bytes
            file = self.files.open(f"commitlog/{offset_name(base)}")
            stop = min(self.end, base + self.segment_bytes)
            lengths = scan_lengths(file.read(start - base, stop - start), start, stop, count)
            file.close()
            end = start + int(lengths.sum(dtype=np.int64))
            yield Event(
                generation, start, end, self.end, flushed, self.minimum, None if bare else lengths
            )
            start = end

    def index_files(self, slots: int = SLOTS, items: int = ITEMS, start: int = 0) -> list[bytes]:
        """What the index of the whole log must be, byte for byte."""
        builder = IndexFilesBuilder(slots, items)
        for event in self.events(start, 1, count=1000):
            base = event.start - event.start % self.segment_bytes
            file = self.files.open(f"commitlog/{offset_name(base)}")
            raw = file.read(event.start - base, event.end - event.start)
            file.close()
            assert event.lengths is not None
            builder.put(index_keys(dispatch_columns(raw, event.start, event.lengths)))
        return builder.files()

    def scan(self, question: KeyQuery) -> list[int]:
        """The linear scan: the offsets of all messages that a question is about, oldest first."""
        found = []
        for message in self.messages:
            frame, properties = message.frame, message.frame.properties
            words = [] if question.unique_only else split_keys(properties.get("KEYS", ""))
            if question.key not in (properties.get("UNIQ_KEY"), *words):
                continue
            if frame.topic != question.topic or message.offset < self.minimum:
                continue
            if frame.sys_flag & sysflag.TRANSACTION_MASK == sysflag.TRANSACTION_ROLLBACK:
                continue
            end_ms = question.end_ms if question.end_ms is not None else 1 << 62
            if question.begin_ms <= frame.store_timestamp_ms <= end_ms:
                found.append(message.offset)
        return found

    def questions(self) -> Iterator[tuple[str, str]]:
        """(topic, key) of every key there is."""
        seen = set()
        for message in self.messages:
            properties = message.frame.properties
            words = [properties.get("UNIQ_KEY"), *split_keys(properties.get("KEYS", ""))]
            for word in words:
                if word and (message.frame.topic, word) not in seen:
                    seen.add((message.frame.topic, word))
                    yield message.frame.topic, word

    def _write(self, raw: bytes) -> None:
        start = self.end - self.end % self.segment_bytes
        path = f"commitlog/{offset_name(start)}"
        if self.files.entry(path) is None:
            self.files.create(path, self.segment_bytes)
        file = self.files.open(path, writable=True)
        file.write(self.end - start, raw)
        file.flush()
        file.close()


def sysflag_values() -> tuple[int, ...]:
    return (
        sysflag.TRANSACTION_PREPARED,
        sysflag.TRANSACTION_COMMIT,
        sysflag.TRANSACTION_ROLLBACK,
    )


@dataclass
class Follower:
    """An engine, its lanes, and the conversation with the log that the client would have."""

    log: TestLog
    settings: EngineSettings = field(
        default_factory=lambda: EngineSettings(index_slots=SLOTS, index_items=ITEMS)
    )
    seed: int = 0
    files: Files | None = None

    def __post_init__(self) -> None:
        self.clock = SimulatedClock()
        self.lanes = SimulatedScheduler(random.Random(self.seed))
        files = self.files or self.log.files
        self.engine = IndexEngine(
            files, self.settings, self.lanes.worker(), self.lanes.worker(), self.clock
        )
        self.generation = GENERATION

    def load(self) -> "Follower":
        self.engine.load()
        return self

    def connect(self, cut_to: int | None = None, generation: int = GENERATION) -> int:
        """As the log answers: everything of another generation is unknown to it."""
        known, position = self.engine.fold.resume_point()
        if cut_to is None:
            cut_to = max(position, self.log.minimum) if known == generation else self.log.minimum
            cut_to = min(cut_to, self.log.end)
        self.generation = generation
        self.engine.fold.opened(
            Opened(
                generation=generation,
                generation_start=0,
                cut_to=cut_to,
                minimum=self.log.minimum,
                confirmed=self.log.end,
                flushed=self.log.end,
                segment_bytes=self.log.segment_bytes,
            )
        )
        return cut_to

    def apply(
        self,
        *,
        flushed: int | None = None,
        count: int = 5,
        bare: bool = False,
        between: Callable[[], object] | None = None,
    ) -> None:
        """Everything up to the log's end."""
        self.settle()
        position = self.engine.series.position
        for event in self.log.events(
            position, self.generation, flushed=flushed, count=count, bare=bare
        ):
            for _ in self.engine.fold.apply(event):
                if self.lanes.pending:
                    self.lanes.run_one()
            if between is not None:
                between()

    def settle(self) -> None:
        """Let the lanes do all that waits."""
        self.lanes.run_until_idle()

    def sync(self) -> None:
        """What a second later would be written is written."""
        self.settle()
        self.clock.advance_ms(60_000)
        self.engine.tick()
        self.settle()

    def start(self) -> "Follower":
        """Load, connect, catch up, write."""
        self.load().connect()
        self.settle()
        self.apply()
        self.sync()
        return self

    def stop(self) -> None:
        ended = []
        self.engine.shutdown(lambda: ended.append(True))
        self.settle()
        assert ended == [True]

    def ask(self, question: KeyQuery) -> QueryAnswer:
        answers: list[QueryAnswer] = []
        errors: list[BaseException] = []

        def done(answer: QueryAnswer | None, error: BaseException | None) -> None:
            if answer is not None:
                answers.append(answer)
            if error is not None:
                errors.append(error)

        self.engine.ask(question, done)
        self.settle()
        if errors:
            raise errors[0]
        return answers[0]

    def offsets(self, topic: str, key: str, **more: object) -> list[int]:
        options: dict[str, object] = {"oldest_first": True, "max_messages": 10_000, **more}
        answer = self.ask(KeyQuery(topic, key, **options))  # type: ignore[arg-type]
        return [offset for offset, _ in answer.frames]

    def rebuild(self, start: int = 0, end: int = 0, between=None) -> Rebuilt:
        rebuild = Rebuild(self.engine, start, end)
        for step in rebuild.steps():
            if isinstance(step, Wait):
                while not step.over:
                    assert self.lanes.run_one(), "nothing is under way that could end the wait"
            if between is not None:
                between()
        return rebuild.rebuilt

    def contents(self) -> list[bytes]:
        return contents(self.log.files)

    def assert_answers_like_the_log(self) -> None:
        for topic, key in self.log.questions():
            question = KeyQuery(topic, key, oldest_first=True, max_messages=10_000)
            assert self.offsets(topic, key) == self.log.scan(question), (topic, key)


def contents(files: Files) -> list[bytes]:
    """Every file of the index, oldest first."""
    found = []
    for entry in files.list("index"):
        file = files.open(f"index/{entry.name}")
        found.append(file.read(0, file.size))
        file.close()
    return found


def names(files: Files) -> list[str]:
    return [entry.name for entry in files.list("index")]


def name_of(time_ms: int) -> str:
    return index_name(time_ms)
