"""Stores to be damaged: made once by the real engines, copied for every round, and known by heart.

A template holds a log of several segments, queues and index files of several files each, and an
older version of every file, from when the store was half as full.
"""

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from stratamq_commitlog.messages import PutMessage, PutResult

from stratamq.formats.file_names import parse_offset_name
from stratamq.formats.frame import Frame, decode
from stratamq.formats.hosts import Host
from stratamq.formats.message_status import SendStatus
from stratamq.formats.properties import KEYS, TAGS, UNIQ_KEY
from stratamq_torture.damage.engines import InProcessBroker, Sizes

TOPICS = ("orders", "payments", "empty-body")
GROUP = "readers"
HALF, WHOLE = 130, 260
"""Messages of a template: about six segments."""
BORN = Host("127.0.0.1", 40_000)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the template, as the log holds it."""

    offset: int
    raw: bytes
    topic: str
    queue_id: int
    queue_offset: int
    unique_key: str

    @property
    def end(self) -> int:
        return self.offset + len(self.raw)


@dataclass(slots=True)
class Template:
    """`clean`: stopped in order; else every process was killed at once."""

    root: Path
    older: Path
    sizes: Sizes
    clean: bool
    end: int
    messages: list[Message] = field(default_factory=list)

    def copy(self, root: Path) -> None:
        shutil.copytree(self.root, root, symlinks=True)


def make_template(directory: Path, seed: int, *, clean: bool, property_checksum: bool) -> Template:
    """A store below `directory`, and beside it its older version."""
    sizes = Sizes(property_checksum=property_checksum)
    root, older = directory / "store", directory / "older"
    chance = random.Random(seed)
    broker = InProcessBroker(root, sizes, seed)
    _start(broker)
    _fill(broker, chance, 0, HALF)
    broker.stop()
    shutil.copytree(root, older, symlinks=True)
    _start(broker)
    _fill(broker, chance, HALF, WHOLE)
    assert broker.log is not None
    template = Template(root, older, sizes, clean, broker.log.offsets.appended)
    if clean:
        broker.stop()
    else:
        broker.kill()
    template.messages = _read(root, sizes, template.end)
    if len(template.messages) != WHOLE:
        raise AssertionError(f"{len(template.messages)} messages in the template, not {WHOLE}")
    return template


def _start(broker: InProcessBroker) -> None:
    broker.start_log()
    broker.start_dispatcher()
    broker.start_index()
    broker.follow()
    broker.settle()


def _fill(broker: InProcessBroker, chance: random.Random, first: int, behind: int) -> None:
    """Messages first … behind−1, a few at a time; after each few everything is durable."""
    number = first
    while number < behind:
        count = min(chance.randrange(1, 40), behind - number)
        results: list[PutResult] = []
        assert broker.log is not None
        for each in range(number, number + count):
            broker.log.put([_message(chance, each)], False, results.extend)
        broker.settle()
        failed = [result for result in results if result.status is not SendStatus.PUT_OK]
        if failed or len(results) != count:
            raise AssertionError(f"the template cannot be filled: {failed or results}")
        number += count
        assert broker.offsets is not None
        broker.offsets.commit(GROUP, [("orders", 0, number)])
    broker.settle()


def _message(chance: random.Random, number: int) -> PutMessage:
    topic = chance.choice(TOPICS)
    size = 0 if topic == "empty-body" else chance.choice((10, 100, 300, 700))
    return PutMessage(
        topic,
        chance.randbytes(size),
        BORN,
        queue_id=chance.randrange(2),
        properties={
            UNIQ_KEY: unique_key(number),
            KEYS: f"key-{number % 9}",
            TAGS: f"tag-{number % 3}",
        },
    )


def unique_key(number: int) -> str:
    return f"message-{number:06d}"


def _read(root: Path, sizes: Sizes, end: int) -> list[Message]:
    """Every message of the log, read without any code of the rooms."""
    messages: list[Message] = []
    for path in sorted((root / "commitlog").iterdir()):
        base = parse_offset_name(path.name)
        assert base is not None
        content = path.read_bytes()
        position = 0
        while base + position < end and position < len(content):
            frame = decode(content, position)
            if not isinstance(frame, Frame):
                break
            raw = content[position : position + frame.total_size]
            messages.append(
                Message(
                    base + position,
                    raw,
                    frame.topic,
                    frame.queue_id,
                    frame.queue_offset,
                    frame.properties[UNIQ_KEY],
                )
            )
            position += frame.total_size
    return messages
