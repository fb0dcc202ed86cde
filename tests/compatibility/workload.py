"""Seeded messages put into a running broker: what RocketMQ's directories hold, written by us.

The same kinds as `Workload.java`'s: names and tags beyond ASCII, negative hashes, several keys,
empty, large and compressed bodies, batches, delays, transactions, IPv6 hosts, version 2 frames; and
the end of each log file steered to an edge.
"""

import random
import threading
import zlib
from collections.abc import Callable, Iterator

from stratamq.api.v1 import commitlog_pb2, common_pb2
from stratamq.formats import frame as frames
from stratamq.formats.batch_frames import BatchEncoder
from stratamq.formats.crc import crc32_31
from stratamq.formats.hosts import Host, encode_host
from stratamq.formats.properties import encode_properties
from stratamq.rpc.appending import shape_of
from tests.support.brokers import Broker

TOPICS = ("TopicTest", "orders", "payments_eu", "%RETRY%billing", "a", "sensor-readings")
TAGS = ("TagA", "TagB", "order-paid", "zzzzzz", "polygenelubricants", "标签", "😀")
QUEUES = 4
PRODUCER = 0x5EED
"""Numbers what goes over the append stream."""
BORN_MS = 1_600_000_000_000
PUT_OK = common_pb2.PUT_MESSAGE_STATUS_PUT_OK
HALF_TOPIC, OP_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
PREPARED, COMMIT, ROLLBACK = 4, 8, 12
FIXED_BYTES = 91

EVERY_EDGE = {7, 8, 9}
"""What is left of a log file where a message should begin: one byte too few, 8, or more (9)."""

Step = Callable[[], object]


class Workload:
    """Everything but the broker's clock follows from `seed` and the broker's reported state."""

    def __init__(
        self, broker: Broker, seed: int, *, born6: bool = False, pause_ms: int = 0
    ) -> None:
        """`pause_ms` passes between two steps, so that store times differ: RocketMQ recovers
        from 3 s before its checkpoint."""
        self._broker = broker
        self._pause_s = pause_ms / 1000
        self._random = random.Random(seed)
        self._born6 = born6
        self._sequence = seed * 1_000_000
        status = broker.log.GetStatus(commitlog_pb2.GetStatusRequest())
        self._segment_bytes = status.segment_bytes
        self.end = status.appended_offset
        self._shape = next(self._stream(iter(()))).opened
        self._filled = -1
        self.edges: set[int] = set()
        """Those of `EVERY_EDGE` that were met."""

    # --- scenarios ---

    def run(self, scenario: str, steps: int) -> None:
        """`small`: single messages. `batches`: mostly batches, fast and unary. `rich`: all that 4.9
        can hold. `sealed`: what the broker adds a property checksum to. `long_topics`: version 2
        frames among others."""
        normal, batches = self._normal, [self._fast_batch, self._unary_batch]
        kinds: dict[str, list[Step]] = {
            "small": [normal],
            "batches": [*batches, self._fast_batch, normal],
            "rich": [*[normal] * 4, *batches, self._delayed, self._transaction, self._old_types],
            "sealed": [*[normal] * 2, *batches, self._delayed, self._half],
            "long_topics": [self._long_topic, normal, self._fast_batch],
        }
        self._run(steps, kinds[scenario])

    def _run(self, steps: int, kinds: list[Step]) -> None:
        for _ in range(steps):
            threading.Event().wait(self._pause_s)
            left = self._segment_bytes - self.end % self._segment_bytes
            segment = self.end // self._segment_bytes
            if left < self._segment_bytes // 4 and segment != self._filled:
                self._filled = segment
                self._fill(left, segment)
            else:
                self._random.choice(kinds)()

    # --- one step each ---

    def _fill(self, left: int, segment: int) -> None:
        """Leave 8 bytes, or 7, so that the message goes to the next file, or a few more than 8."""
        wanted = (8, 7, 9 + self._random.randrange(60))[segment % 3]
        message = commitlog_pb2.Message(topic="filler", queue_id=0, born_port=40_000)
        message.born_address = self._born().address_bytes
        overhead = FIXED_BYTES + len(message.topic) + self._shape.property_checksum_bytes
        overhead += self._shape.store_address_bytes - 4 + len(message.born_address) - 4
        message.body = self._bytes(max(1, left - wanted - overhead))
        before = self.end
        (result,) = self._append([message])
        went_on = result.physical_offset > before
        assert went_on if wanted == 7 else left - result.size == wanted
        self.edges.add(min(wanted, 9))

    def _normal(self) -> None:
        self._append([self._message()])

    def _unary_batch(self) -> None:
        """Stored in one segment with consecutive offsets, or not at all."""
        queue_id = self._random.randrange(QUEUES)
        messages = [self._message("batched", queue_id, small=True) for _ in range(self._few())]
        results = self._append(messages, all_or_nothing=True)
        offsets = [result.queue_offset for result in results]
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))

    def _fast_batch(self) -> None:
        """A batch of several queues over the append stream."""
        encoder = BatchEncoder(shape_of(self._shape, PRODUCER))
        runs = []
        for topic in self._random.sample((*TOPICS, "batched"), k=2):
            rows = [(self._bytes(self._random.randrange(250)), self._row()) for _ in range(4)]
            encoder.add(topic, rows, born_timestamp_ms=self._born_ms(), flag=len(rows[0][0]) % 3)
            queue_id = self._random.randrange(QUEUES)
            runs.append(commitlog_pb2.AppendRun(topic=topic, queue_id=queue_id, count=len(rows)))
        lengths, content = encoder.finish()
        batch = commitlog_pb2.AppendStreamRequest(
            sequence=self.end, runs=runs, packed_lengths=lengths, frames=content
        )
        answers = list(self._stream(iter([batch])))
        (result,) = [result for answer in answers for result in answer.results]
        assert result.status == PUT_OK, result
        self.end = result.physical_offset + len(content)

    def _delayed(self) -> None:
        """As RocketMQ stores it: in the schedule topic's queue of its level."""
        message = self._message("later", small=True)
        level = min(self._random.choice((*range(1, 19), 25)), 18)
        message.properties["DELAY"] = str(level)
        self._append_moved(message, SCHEDULE_TOPIC, level - 1)

    def _half(self) -> tuple[commitlog_pb2.Message, commitlog_pb2.AppendResult]:
        """As RocketMQ stores it: in the half topic."""
        half = self._message("orders", small=True)
        half.properties["PGROUP"] = "producers"
        half.properties["TRAN_MSG"] = "true"
        half.unique_key = self._unique_key()
        return half, self._append_moved(half, HALF_TOPIC, 0)

    def _transaction(self) -> None:
        """A half message; then, or not, its commit and the op message, all as frames that only
        replication and tests may write."""
        half, stored = self._half()
        end = self._random.randrange(3)
        if end == 0:
            properties = {"UNIQ_KEY": half.unique_key, "PGROUP": "producers", "TRAN_MSG": "true"}
            self._append_raw("orders", half.body, properties, COMMIT, stored.physical_offset)
        if end < 2:
            body = str(stored.queue_offset).encode()
            self._append_raw(OP_TOPIC, body, {"TAGS": "d"}, 0, 0, queue_id=0)

    def _old_types(self) -> None:
        """Transaction bits as old producers set them."""
        kind = self._random.choice((PREPARED, COMMIT, ROLLBACK))
        properties = {"TAGS": self._random.choice(TAGS), "KEYS": "key-1 key-2"}
        self._append_raw("orders", self._bytes(40), properties, kind, max(0, self.end - 100))

    def _long_topic(self) -> None:
        length = 128 + 40 * self._random.randrange(3)
        self._append([self._message(("%RETRY%" + "long_name_" * 30)[:length], small=True)])

    # --- their parts ---

    def _message(
        self, topic: str = "", queue_id: int | None = None, *, small: bool = False
    ) -> commitlog_pb2.Message:
        chance = self._random.random()
        born = self._born()
        message = commitlog_pb2.Message(
            topic=topic or self._random.choice(TOPICS),
            queue_id=self._random.randrange(QUEUES) if queue_id is None else queue_id,
            body=self._bytes(8 + self._random.randrange(400)),
            born_timestamp_ms=self._born_ms(),
            born_address=born.address_bytes,
            born_port=born.port,
        )
        if chance > 0.97 and not small:
            message.body = self._bytes(self._segment_bytes // 8 + self._random.randrange(5000))
        elif chance > 0.92:
            message.body = b""
        elif chance > 0.85:
            text = "".join(f"compressible {self._random.randrange(10)} " for _ in range(40))
            message.body, message.sys_flag = zlib.compress(text.encode()), 1
        if self._random.random() < 0.1:
            message.flag = self._random.randrange(-(1 << 31), 1 << 31)
        if self._random.random() < 0.1:
            message.reconsume_times = self._random.randrange(16)
        self._properties(message)
        return message

    def _properties(self, message: commitlog_pb2.Message) -> None:
        chance = self._random.random
        if chance() < 0.7:
            message.tag = self._random.choice(TAGS)
        message.keys.extend(self._keys())
        if chance() < 0.7:
            message.unique_key = self._unique_key()
        if chance() < 0.3:
            message.properties["city"] = "上海"
            message.properties["mood"] = "😀 ok"
            message.properties["equation"] = "a\x01b"
        if chance() < 0.3:
            message.properties["CLUSTER"] = "DefaultCluster"
        if chance() < 0.2:
            message.wait_store_ok = False
        if chance() < 0.2:
            message.properties["empty"] = ""

    def _row(self) -> bytes:
        """The encoded properties of a frame of the fast stream."""
        properties = {"UNIQ_KEY": self._unique_key()} if self._random.random() < 0.6 else {}
        if keys := self._keys():
            properties["KEYS"] = " ".join(keys)
        if self._random.random() < 0.6:
            properties["TAGS"] = self._random.choice(TAGS)
        return encode_properties(properties)

    def _keys(self) -> list[str]:
        names = [f"key-{self._random.randrange(40)}", f"ключ-{self._random.randrange(20)}"]
        return names[: self._random.randrange(3)]

    def _few(self) -> int:
        return 2 + self._random.randrange(6)

    def _bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def _born_ms(self) -> int:
        self._sequence += 1
        return BORN_MS + self._sequence

    def _unique_key(self) -> str:
        self._sequence += 1
        return f"7F00000100002A9F{self._sequence:016X}"

    def _born(self) -> "_Born":
        port = 40_000 + self._random.randrange(100)
        if self._born6 and self._random.random() < 0.5:
            return _Born(f"fd00:0:0:1::{1 + self._random.randrange(99):x}", port)
        return _Born(f"192.168.7.{self._random.randrange(256)}", port)

    # --- the wire ---

    def _append(
        self, messages: list[commitlog_pb2.Message], *, all_or_nothing: bool = False
    ) -> list[commitlog_pb2.AppendResult]:
        request = commitlog_pb2.AppendRequest(messages=messages, all_or_nothing=all_or_nothing)
        return self._stored(self._broker.log.Append(request).results)

    def _append_raw(
        self,
        topic: str,
        body: bytes,
        properties: dict[str, str],
        sys_flag: int,
        prepared_offset: int,
        queue_id: int | None = None,
    ) -> None:
        raw = frames.encode(
            topic=topic.encode(),
            body=body,
            body_crc=crc32_31(body),
            born_host=self._born().raw,
            store_host=bytes(self._shape.store_address_bytes + 4),
            properties=encode_properties(properties),
            queue_id=self._random.randrange(QUEUES) if queue_id is None else queue_id,
            sys_flag=sys_flag,
            born_timestamp_ms=self._born_ms(),
            prepared_transaction_offset=prepared_offset,
        )
        self._append_frame(raw)

    def _append_moved(
        self, message: commitlog_pb2.Message, topic: str, queue_id: int
    ) -> commitlog_pb2.AppendResult:
        """A message under another topic, with its own topic and queue as properties."""
        properties = dict(message.properties)
        for name, text in (
            ("KEYS", " ".join(message.keys)),
            ("TAGS", message.tag),
            ("UNIQ_KEY", message.unique_key),
            ("REAL_TOPIC", message.topic),
            ("REAL_QID", str(message.queue_id)),
        ):
            if text:
                properties[name] = text
        raw = frames.encode(
            topic=topic.encode(),
            body=message.body,
            born_host=message.born_address + message.born_port.to_bytes(4, "big"),
            store_host=bytes(self._shape.store_address_bytes + 4),
            properties=encode_properties(properties),
            queue_id=queue_id,
            flag=message.flag,
            sys_flag=message.sys_flag,
            born_timestamp_ms=message.born_timestamp_ms,
            reconsume_times=message.reconsume_times,
        )
        return self._append_frame(raw)

    def _append_frame(self, raw: bytes) -> commitlog_pb2.AppendResult:
        request = commitlog_pb2.AppendRawRequest(frames=[raw])
        (result,) = self._stored(self._broker.log.AppendRaw(request).results)
        return result

    def _stored(
        self, results: list[commitlog_pb2.AppendResult]
    ) -> list[commitlog_pb2.AppendResult]:
        for result in results:
            assert result.status == PUT_OK, result
            self.end = max(self.end, result.physical_offset + result.size)
        return list(results)

    def _stream(
        self, batches: Iterator[commitlog_pb2.AppendStreamRequest]
    ) -> Iterator[commitlog_pb2.AppendStreamResponse]:
        def requests() -> Iterator[commitlog_pb2.AppendStreamRequest]:
            yield commitlog_pb2.AppendStreamRequest(
                open=commitlog_pb2.AppendOpen(client_name="workload", producer_id=PRODUCER)
            )
            yield from batches

        yield from self._broker.log.AppendStream(requests())


class _Born:
    """A producer's address."""

    def __init__(self, address: str, port: int) -> None:
        self.port = port
        self.raw = encode_host(Host(address, port))
        self.address_bytes = self.raw[:-4]
