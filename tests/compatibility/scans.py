"""What a time search and a query by key must answer: linear scans over messages and frames."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from stratamq.api.v1 import dispatcher_pb2, index_pb2
from stratamq.formats.frame import Frame
from stratamq.formats.index_file import IndexFileView
from stratamq.formats.index_layout import index_key, index_tag_key
from stratamq.formats.javahash import index_key_hash
from tests.compatibility.judge import Line
from tests.support.answers import FOREVER_MS, Placed, keys_of, offsets_by_time, query_answers
from tests.support.brokers import Broker
from tests.support.fixtures import Geometry

LOWER = dispatcher_pb2.TIME_BOUNDARY_LOWER
UPPER = dispatcher_pb2.TIME_BOUNDARY_UPPER
NEAREST = dispatcher_pb2.TIME_BOUNDARY_NEAREST
BOUNDARIES = (LOWER, UPPER, NEAREST)
ROLLBACK = 12
TAG_KEY = "T#"


TimeQuestion = tuple[str, int, int]
"""Topic, queue and time."""


# --- time ---


def by_time(times: list[tuple[int, int]], minimum: int, maximum: int, asked: int, how: int) -> int:
    """Over (queue offset, store time) in order of offsets; the rules of `TimeBoundary`."""
    if how == LOWER:
        return next((offset for offset, time in times if time >= asked), maximum)
    if how == UPPER:
        return next((offset for offset, time in reversed(times) if time <= asked), minimum)
    return min(times, key=lambda one: (abs(one[1] - asked), one[0]))[0]


def wrong_times(broker: Broker, ours: list[Line], asked: list[TimeQuestion], how: int) -> list[str]:
    """Every answer of a time search that a scan of the `message` lines does not give."""
    times: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    ends: dict[tuple[str, int], tuple[int, int]] = {}
    for line in ours:
        if line["kind"] == "message":
            times[line["topic"], line["queueId"]].append((line["at"], line["storeTimestamp"]))
        elif line["kind"] == "queue":
            ends[line["topic"], line["queueId"]] = line["minOffset"], line["maxOffset"]
    wrong = []
    for question, answer in zip(asked, offsets_by_time(broker, asked, how), strict=True):
        queue = question[:2]
        right = by_time(times[queue], *ends[queue], question[2], how)
        if answer != right:
            wrong.append(f"{question}: {answer} instead of {right}")
    return wrong


# --- keys ---


@dataclass(frozen=True, slots=True)
class Indexed:
    """A message as an index file may know it."""

    place: int
    time_ms: int
    frame: Frame

    @property
    def tag_key(self) -> str | None:
        tags = self.frame.properties.get("TAGS")
        return None if not tags else TAG_KEY + tags


class LogScan:
    """The frames of a log that are indexed: all but rollback frames."""

    def __init__(self, found: Iterable[Placed]) -> None:
        self.messages = [
            Indexed(place, frame.store_timestamp_ms, frame)
            for place, frame, _ in found
            if frame.sys_flag & ROLLBACK != ROLLBACK
        ]
        self.by_place = {message.place: message for message in self.messages}
        self._by_key: dict[tuple[str, str], list[Indexed]] = defaultdict(list)
        for message in self.messages:
            for key in dict.fromkeys(keys_of(message.frame)):
                self._by_key[message.frame.topic, key].append(message)

    def matching(self, topic: str, key: str, begin_ms: int, end_ms: int) -> list[Indexed]:
        """Oldest first, each once."""
        found = self._by_key.get((topic, key), [])
        return [message for message in found if begin_ms <= message.time_ms <= end_ms]

    def tagged(self, topic: str, key: str, begin_ms: int, end_ms: int) -> list[Indexed]:
        """The same for a key `T#tags`, under which 5.4 and later index a message's tags."""
        return [
            message
            for message in self.messages
            if message.frame.topic == topic
            and message.tag_key == key
            and begin_ms <= message.time_ms <= end_ms
        ]

    def items(self) -> list[tuple[int, int]]:
        """(hash, place) of every item that the index of this log has, in order; no tag keys."""
        return [
            (index_key_hash(index_key(message.frame.topic, key)), message.place)
            for message in self.messages
            for key in keys_of(message.frame)
        ]


@dataclass(frozen=True, slots=True)
class IndexItems:
    """The items of all index files of a directory, oldest first."""

    keys: list[tuple[int, int]]
    tag_places: set[int]
    """Messages whose tags are indexed as well."""


def items_on_disk(root: Path, geometry: Geometry, scan: LogScan) -> IndexItems:
    keys: list[tuple[int, int]] = []
    tag_places: set[int] = set()
    for path in sorted((root / "index").iterdir()):
        reader = IndexFileView(path.read_bytes(), geometry.slots, geometry.items)
        assert reader.has_geometry_of_its_items(), path.name
        for item in reader:
            if _is_tag_item(item.key_hash, scan.by_place.get(item.physical_offset)):
                tag_places.add(item.physical_offset)
            else:
                keys.append((item.key_hash, item.physical_offset))
    return IndexItems(keys, tag_places)


def _is_tag_item(key_hash: int, message: Indexed | None) -> bool:
    if message is None or message.tag_key is None:
        return False
    topic, tags = message.frame.topic, message.frame.properties["TAGS"]
    own = {index_key_hash(index_key(topic, key)) for key in keys_of(message.frame)}
    return key_hash not in own and key_hash == index_key_hash(index_tag_key(topic, tags))


@dataclass(frozen=True, slots=True)
class Question:
    """A `query` line's question."""

    topic: str
    key: str
    max_num: int
    begin_ms: int
    end_ms: int

    @classmethod
    def of(cls, line: Line) -> "Question":
        return cls(line["topic"], line["key"], line["maxNum"], line["begin"], line["end"])

    @property
    def of_tag(self) -> bool:
        return self.key.startswith(TAG_KEY)

    @property
    def of_all_times(self) -> bool:
        return self.begin_ms == 0 and self.end_ms == FOREVER_MS

    def request(self, oldest_first: bool) -> index_pb2.QueryKeyRequest:
        return index_pb2.QueryKeyRequest(
            topic=self.topic,
            key=self.key,
            max_messages=self.max_num,
            begin_timestamp_ms=self.begin_ms,
            end_timestamp_ms=self.end_ms,
            oldest_first=oldest_first,
        )


Answer = tuple[list[int], bool]
"""Physical offsets as they came, and whether more match."""


def ask(broker: Broker, questions: list[Question], oldest_first: bool) -> list[Answer]:
    requests = [question.request(oldest_first) for question in questions]
    return [
        ([frame.physical_offset for frame in answer.frames], answer.truncated)
        for answer in query_answers(broker, requests)
    ]


def wrong_queries(
    questions: list[Question], answers: list[Answer], scan: LogScan, oldest_first: bool
) -> list[str]:
    """Every answer by key that a scan of the frames does not give. Tag keys are left out."""
    wrong = []
    for question, answer in zip(questions, answers, strict=True):
        if question.of_tag:
            continue
        found = scan.matching(question.topic, question.key, question.begin_ms, question.end_ms)
        places = [message.place for message in found]
        right = places if oldest_first else places[::-1]
        expected = (right[: question.max_num], len(right) > question.max_num)
        if answer != expected:
            wrong.append(f"{question}, oldest first {oldest_first}: {answer}, not {expected}")
    return wrong


def wrong_tag_queries(
    questions: list[Question], answers: list[Answer], scan: LogScan, indexed: set[int]
) -> list[str]:
    """The same, newest first, for tag keys: of the messages whose tags are indexed."""
    wrong = []
    for question, answer in zip(questions, answers, strict=True):
        if question.of_tag:
            found = scan.tagged(question.topic, question.key, question.begin_ms, question.end_ms)
            right = [message.place for message in found if message.place in indexed][::-1]
            expected = (right[: question.max_num], len(right) > question.max_num)
            if answer != expected:
                wrong.append(f"{question}: {answer}, not {expected}")
    return wrong
