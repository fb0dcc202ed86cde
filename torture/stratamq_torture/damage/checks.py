"""What must hold after damage, whatever it was.

1. A service starts, or refuses with one sentence; it raises nothing else, and it ends its work.
2. Whatever GetFrame, a pull or a query gives is byte for byte what was written at that place. Of
   a record that was written without a checksum of its own the body is, and the rest need not be
   (`unguarded`).
3. A message whose bytes are untouched is given, by GetFrame, by its queue and by its unique key.
   It may be missing when the log ends before it: then the log ends at a place that was damaged, and
   the bytes behind it are under `stratamq/aside/`.
4. What the log can give again is whole again: after damage to queues, index, their state and
   geometry nothing is missing, at once or after one more start.
5. New messages take places that no message had which is still served.
6. What is missing or refused is named in a sentence somewhere: in a refusal, a report, the reason
   of a stop, or the answer to the read that failed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from stratamq_commitlog.messages import PutMessage, PutResult

from stratamq.errors import (
    CorruptionError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    StoreRefusedError,
    UnavailableError,
)
from stratamq.formats.file_names import offset_name
from stratamq.formats.frame import Frame, decode
from stratamq.formats.frame_layout import BLANK
from stratamq.formats.message_status import PullStatus, SendStatus
from stratamq.formats.property_crc import has_property_crc
from stratamq_torture.damage.engines import (
    BORN,
    InProcessBroker,
    Message,
    NeverSettlesError,
    Template,
)

Key = tuple[str, int, int]
"""topic, queue id, queue offset"""

FRAME, PULL, QUERY = "GetFrame", "pull", "query"
PULL_STEPS = 2_000
NEW_BODY = b"written after the damage"


@dataclass(slots=True)
class Seen:
    """What one start of the broker gave."""

    refused: dict[str, str] = field(default_factory=dict)
    """By service: the sentence."""
    sentences: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """Broken promises, a sentence each."""
    end: int = -1
    given: dict[str, set[int]] = field(default_factory=dict)
    """By way of reading: offsets of messages that were given, right in every byte."""
    unguarded: set[int] = field(default_factory=set)
    """Messages that were given with their body, and with a wrong header or properties: records
    without a checksum of their own, or whose checksum the damage has wiped out whole, so that they
    look like one of a writer that makes none."""
    away: dict[str, str] = field(default_factory=dict)
    """Ways of reading that are not served at all, and why."""


class Reader:
    """One start of a broker on a damaged store, read in every way."""

    def __init__(self, template: Template, root: Path, seed: int) -> None:
        self.template = template
        self.broker = InProcessBroker(root, template.sizes, seed)
        self.seen = Seen(given={FRAME: set(), PULL: set(), QUERY: set()})
        self._by_key = {(m.topic, m.queue_id, m.queue_offset): m for m in template.messages}

    def run(self, *, append: bool) -> Seen:
        """Start, read everything, append one message, stop."""
        broker, seen = self.broker, self.seen
        try:
            self._start("commitlog", broker.start_log)
            self._start("dispatcher", broker.start_dispatcher)
            self._start("index", broker.start_index)
            if broker.log is not None:
                self._guard("follow", self._follow)
                seen.end = broker.log.offsets.appended
                self._guard("GetFrame", self._frames)
                self._guard("pull", self._pulls)
                self._guard("query", self._queries)
                if append:
                    self._guard("append", self._append)
                self._reports()
                self._guard("stop", broker.stop)
        finally:
            broker.kill()
        return seen

    def _start(self, room: str, start: Callable[[], object]) -> None:
        try:
            start()
        except StoreRefusedError as error:
            self.seen.refused[room] = error.message
            self.seen.sentences.append(f"{room} refused: {error.message}")
            if "\n" in error.message or len(error.message) < 15:
                self.seen.broken.append(f"{room} refuses with {error.message!r}: no clear sentence")
        except Exception as error:  # noqa: BLE001 - this is what is looked for
            self.seen.broken.append(f"{room} does not start: {_described(error)}")

    def _guard(self, what: str, step: Callable[[], None]) -> None:
        try:
            step()
        except NeverSettlesError as error:
            self.seen.broken.append(f"{what}: {error}")
        except Exception as error:  # noqa: BLE001 - this is what is looked for
            self.seen.broken.append(f"{what} raised {_described(error)}")

    def _follow(self) -> None:
        self.broker.follow()
        self.broker.settle()

    # --- reading ---

    def _frames(self) -> None:
        log = self.broker.log
        assert log is not None
        for message in self.template.messages:
            try:
                raw = log.frame_at(message.offset)
            except (CorruptionError, InvalidRequestError, OffsetOutOfRangeError) as error:
                self.seen.sentences.append(f"GetFrame: {error.message}")
                continue
            self._take(FRAME, message, raw)

    def _pulls(self) -> None:
        broker = self.broker
        engine = broker.dispatcher
        if engine is None:
            self.seen.away[PULL] = "the dispatcher refused to start"
            return
        if not engine.followed.serving:
            self.seen.away[PULL] = engine.followed.stopped_reason or "the dispatcher does not serve"
            return
        queues = {(m.topic, m.queue_id): 0 for m in self.template.messages}
        for topic, queue_id in queues:
            for offset, frame in self._pull_queue(topic, queue_id):
                message = self._by_key.get((topic, queue_id, offset))
                if message is None and NEW_BODY in frame:
                    continue
                if message is None:
                    self.seen.broken.append(
                        f"pull: an unknown message in {topic}/{queue_id} at {offset}"
                    )
                else:
                    self._take(PULL, message, frame)

    def _pull_queue(self, topic: str, queue_id: int) -> Iterator[tuple[int, bytes]]:
        """Pull like a consumer that skips what is reported as damaged."""
        offset = 0
        for _ in range(PULL_STEPS):
            try:
                answer = self.broker.pull(topic, queue_id, offset)
            except CorruptionError as error:
                self.seen.sentences.append(f"pull: {error.message}")
                offset += 1
                continue
            if answer.status is PullStatus.FOUND:
                for frame in _split(b"".join(bytes(piece) for piece in answer.pieces)):
                    yield offset, frame
                    offset += 1
                if offset != answer.next_offset:
                    self.seen.broken.append(f"pull: {topic}/{queue_id} continues at {offset}")
                    offset = answer.next_offset
            elif answer.next_offset > offset:
                offset = answer.next_offset
            else:
                return
        self.seen.broken.append(f"pull: {topic}/{queue_id} never ends")

    def _queries(self) -> None:
        index = self.broker.index
        if index is None:
            self.seen.away[QUERY] = "the index refused to start"
            return
        if not index.followed.serving:
            self.seen.away[QUERY] = index.followed.stopped_reason or "the index does not serve"
            return
        for message in self.template.messages:
            try:
                answer = self.broker.ask(message.topic, message.unique_key)
            except (CorruptionError, UnavailableError) as error:
                self.seen.sentences.append(f"query: {error.message}")
                continue
            for offset, raw in answer.frames:
                if offset != message.offset:
                    self.seen.broken.append(f"query: {message.unique_key} gave {offset}")
                else:
                    self._take(QUERY, message, raw)

    def _take(self, way: str, message: Message, raw: bytes) -> None:
        if NEW_BODY in raw:
            # What was here was cut, and the next message has its place.
            return
        if raw == message.raw:
            self.seen.given[way].add(message.offset)
        elif not has_property_crc(message.raw) and _same_body(raw, message.raw):
            self.seen.unguarded.add(message.offset)
        else:
            self.seen.broken.append(
                f"{way} gave wrong bytes for {message.unique_key} at {message.offset}: "
                f"{_difference(raw, message.raw)}"
            )

    # --- writing ---

    def _append(self) -> None:
        """One message to every queue: each takes a place behind all that are served."""
        log = self.broker.log
        assert log is not None
        if not log.writable[0]:
            self.seen.sentences.append(f"append: {log.writable[1]}")
            return
        behind: dict[tuple[str, int], int] = {}
        for offset in self.seen.given[FRAME]:
            message = next(m for m in self.template.messages if m.offset == offset)
            key = message.topic, message.queue_id
            behind[key] = max(behind.get(key, 0), message.queue_offset + 1)
        for (topic, queue_id), number in behind.items():
            results: list[PutResult] = []
            log.put([PutMessage(topic, NEW_BODY, BORN, queue_id)], False, results.extend)
            self.broker.settle()
            result = results[0] if results else None
            if result is None or result.status is not SendStatus.PUT_OK:
                self.seen.broken.append(f"append to {topic}/{queue_id} was answered {result}")
            elif result.queue_offset < number or result.physical_offset < self.seen.end:
                self.seen.broken.append(
                    f"append to {topic}/{queue_id} took place {result.queue_offset} at "
                    f"{result.physical_offset}; the queue has {number}, the log {self.seen.end}"
                )

    def _reports(self) -> None:
        broker, sentences = self.broker, self.seen.sentences
        assert broker.log is not None
        sentences += broker.log.report
        for engine in (broker.dispatcher, broker.index):
            if engine is not None and engine.followed.stopped_reason:
                sentences.append(f"{engine.fold.name} stopped: {engine.followed.stopped_reason}")
        if broker.dispatcher is not None:
            sentences += broker.dispatcher.recovery_report()
        if broker.offsets is not None:
            sentences += broker.offsets.report
        if broker.index is not None:
            sentences += broker.index.findings()


# --- the store's files, without any code of the rooms ---


def touched(template: Template, root: Path) -> set[int]:
    """Offsets of messages that are no longer in the log's files as they were written."""
    found = set()
    segment_bytes = template.sizes.segment_bytes
    contents: dict[int, bytes] = {}
    for message in template.messages:
        base = message.offset - message.offset % segment_bytes
        if base not in contents:
            path = root / "commitlog" / offset_name(base)
            plain = path.is_file() and not path.is_symlink()
            contents[base] = path.read_bytes() if plain else b""
        position = message.offset - base
        if contents[base][position : position + len(message.raw)] != message.raw:
            found.add(message.offset)
    return found


def kept_aside(root: Path) -> list[bytes]:
    """Everything in `stratamq/aside/`, of regular files."""
    directory = root / "stratamq" / "aside"
    if not directory.is_dir():
        return []
    files = [each for each in directory.rglob("*") if each.is_file() and not each.is_symlink()]
    return [each.read_bytes() for each in files]


def _same_body(raw: bytes, expected: bytes) -> bool:
    """Both have one, and it is the same."""
    frames = decode(raw), decode(expected)
    bodies = [frame.body for frame in frames if isinstance(frame, Frame)]
    return len(bodies) == 2 and bodies[0] == bodies[1]


def _split(content: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(content):
        size, _ = BLANK.unpack_from(content, position)
        if size <= 0:
            yield content[position:]
            return
        yield content[position : position + size]
        position += size


def _difference(raw: bytes, expected: bytes) -> str:
    if len(raw) != len(expected):
        return f"{len(raw)} bytes, not {len(expected)}"
    first = next(i for i, (a, b) in enumerate(zip(raw, expected, strict=True)) if a != b)
    return f"byte {first} of {len(raw)} differs"


def _described(error: BaseException) -> str:
    trace, where = error.__traceback__, ""
    while trace is not None:
        code = trace.tb_frame.f_code
        where = f"{Path(code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__}: {error} ({where})"
