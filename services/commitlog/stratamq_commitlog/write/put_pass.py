"""Messages given as fields that one pass appends: their frames get what the log assigns."""

import numpy as np

from stratamq.follow.protocol import Run as FollowRun
from stratamq.formats.frame_layout import I64
from stratamq.formats.message_id import encode_message_id
from stratamq.formats.message_status import SendStatus
from stratamq.formats.property_crc import fill_property_crc
from stratamq_commitlog.messages import FrameRun, PutResult
from stratamq_commitlog.write import resends
from stratamq_commitlog.write.prepare import Prepared
from stratamq_commitlog.write.producer_window import ProducerWindow, Stretch
from stratamq_commitlog.write.queue_offsets import QueueOffsets


class PutPass:
    """One pass. What is placed is in the log once its frames are written at `start`."""

    def __init__(
        self,
        queues: QueueOffsets,
        window: ProducerWindow,
        store_host: bytes,
        *,
        start: int,
        now_ms: int,
        room: int,
        most_messages: int,
    ) -> None:
        self.frames: list[bytearray] = []
        self.size = 0
        self.messages = 0
        """Placed, or found in the log."""
        self.runs: list[FollowRun] = []
        self._numbered: dict[tuple[int, int], PutResult] = {}
        self._queues = queues
        self._window = window
        self._store_host = store_host
        self._start = start
        self._now_ms = now_ms
        self._room = room
        self._most_messages = most_messages

    def fits(self, size: int) -> bool:
        """The segment takes so many bytes more."""
        return self.size + size <= self._room

    @property
    def full(self) -> bool:
        return self.messages >= self._most_messages

    def known(self, prepared: Prepared) -> PutResult | None:
        """The result of a numbered message that is sent again; None when it is to be placed."""
        numbers = prepared.numbers
        if numbers is None:
            return None
        result = self._numbered.get((numbers.producer, numbers.first)) or resends.stored_message(
            self._window, numbers, prepared.topic, self._store_host
        )
        self.messages += result is not None
        return result

    def place(self, prepared: Prepared) -> PutResult:
        """Give the message its place behind those before it."""
        frame, offset = prepared.frame, self._start + self.size
        queue_offset = 0
        if prepared.counted:
            queue_offset = self._queues.take((prepared.topic, prepared.queue_id), 1)
        frame[20:36] = I64.pack(queue_offset) + I64.pack(offset)
        at = prepared.store_timestamp_position
        frame[at : at + 8] = I64.pack(self._now_ms)
        if prepared.has_checksum:
            fill_property_crc(frame)
        self.runs.append((prepared.topic, prepared.queue_id, queue_offset, 1))
        self.frames.append(frame)
        self.size += len(frame)
        self.messages += 1
        result = PutResult(
            status=SendStatus.PUT_OK,
            topic=prepared.topic,
            queue_id=prepared.queue_id,
            physical_offset=offset,
            queue_offset=queue_offset,
            store_timestamp_ms=self._now_ms,
            size=len(frame),
            message_id=encode_message_id(self._store_host, offset),
        )
        if prepared.numbers is not None:
            self._numbered[prepared.numbers.producer, prepared.numbers.first] = result
        return result

    def record(self) -> None:
        """Everything placed has been written."""
        for (producer, sequence), result in self._numbered.items():
            self._window.record(
                Stretch(
                    producer,
                    sequence,
                    result.physical_offset,
                    result.physical_offset + result.size,
                    np.array([result.size], np.uint32),
                    (FrameRun(result.topic, result.queue_id, 1),),
                    (result.queue_offset,),
                    result.store_timestamp_ms,
                )
            )
