"""A log written byte by byte: segments of frames by the scalar codec, queue files when wanted."""

from pathlib import Path

from stratamq.formats.file_names import offset_name
from stratamq.formats.frame import encode, encode_blank
from stratamq.formats.frame_layout import fits
from stratamq.formats.properties import encode_properties
from stratamq.formats.queue_unit import encode_queue_unit

HOST = bytes([10, 1, 2, 3, 0, 0, 42, 159])


class WrittenLog:
    """Its end is not confirmed, as in a directory of RocketMQ."""

    def __init__(self, root: Path, segment_bytes: int = 4096) -> None:
        self.root = root
        self.segment_bytes = segment_bytes
        self.end = 0
        self.next: dict[tuple[str, int], int] = {}
        self.places: dict[tuple[str, int, int], int] = {}
        """Log offset by topic, queue and queue offset."""
        self.stored: list[tuple[str, int, int]] = []
        """In the log's order."""
        (root / "commitlog").mkdir(parents=True)

    def put(
        self,
        topic: str = "a",
        queue_id: int = 0,
        body: bytes = b"body",
        *,
        time_ms: int = 1,
        **more,
    ) -> int:
        """Its log offset."""
        queue_offset = self.next.get((topic, queue_id), 0)
        raw = self._frame(topic, queue_id, queue_offset, body, time_ms, more)
        left = self.segment_bytes - self.end % self.segment_bytes
        if not fits(len(raw), left):
            self._write(encode_blank(left))
            self.end += left - 8
            raw = self._frame(topic, queue_id, queue_offset, body, time_ms, more)
        place = self.end
        self._write(raw)
        self.next[topic, queue_id] = queue_offset + 1
        self.places[topic, queue_id, queue_offset] = place
        self.stored.append((topic, queue_id, queue_offset))
        return place

    def put_many(self, count: int, topics: str = "ab", queues: int = 2) -> None:
        for number in range(count):
            self.put(topics[number % len(topics)], number // len(topics) % queues, b"x" * number)

    def delete_oldest(self) -> int:
        """As retention does; the log's minimum afterwards."""
        oldest, following, *_ = sorted((self.root / "commitlog").iterdir())
        oldest.unlink()
        return int(following.name)

    def cut(self, place: int) -> None:
        """As RocketMQ's recovery does; nothing but zeros follows in the segment."""
        self._write(bytes(self.segment_bytes - self.end % self.segment_bytes))
        self.end = place
        self._write(bytes(self.segment_bytes - place % self.segment_bytes))
        self.end = place

    def write_queue(self, topic: str, queue_id: int) -> Path:
        """The consume queue of all its messages, in one file."""
        units = b""
        for queue_offset in range(self.next[topic, queue_id]):
            place = self.places[topic, queue_id, queue_offset]
            units += encode_queue_unit(place, self._size(place), 0)
        path = self.root / "consumequeue" / topic / str(queue_id) / offset_name(0)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(units + bytes(200))
        return path

    def _size(self, place: int) -> int:
        start = place - place % self.segment_bytes
        raw = (self.root / "commitlog" / offset_name(start)).read_bytes()
        return int.from_bytes(raw[place - start : place - start + 4], "big")

    def _frame(self, topic, queue_id, queue_offset, body, time_ms, more) -> bytes:
        more = dict(more)
        properties = encode_properties(more.pop("properties", {}))
        return encode(
            topic=topic.encode(),
            body=body,
            born_host=HOST,
            store_host=HOST,
            properties=properties,
            queue_id=queue_id,
            queue_offset=queue_offset,
            physical_offset=self.end,
            store_timestamp_ms=time_ms,
            **more,
        )

    def _write(self, raw: bytes) -> None:
        start = self.end - self.end % self.segment_bytes
        path = self.root / "commitlog" / offset_name(start)
        if not path.exists():
            path.write_bytes(bytes(self.segment_bytes))
        with open(path, "r+b") as file:
            file.seek(self.end - start)
            file.write(raw)
        self.end += len(raw)
