"""The messages that a hand-out is about, read from the dispatcher."""

from collections.abc import Sequence
from dataclasses import dataclass

from stratamq.follow.queues import QueueCalls
from stratamq.formats.frame import Frame, decode
from stratamq_delivery.entries import Bounds
from stratamq_delivery.records import GroupPlace

DISPATCH_WAIT_MS = 1_000
"""How long the dispatcher may be behind this service."""


@dataclass(frozen=True, slots=True)
class ReadMessages:
    """Messages that a hand-out has read: consecutive ones, and those that are gone before them."""

    gone: Bounds
    frames: list[Frame]
    raw: list[bytes]
    attempt: int
    token: int
    """The token of the hand-out that has them; 0: none."""

    @property
    def runs(self) -> tuple[Bounds, ...]:
        return tuple(runs_of([frame.queue_offset for frame in self.frames]))


class MessageReader:
    """Belongs to one event loop."""

    def __init__(self, queues: QueueCalls) -> None:
        self._queues = queues

    async def read(
        self, place: GroupPlace, start: int, count: int, attempt: int, token: int
    ) -> ReadMessages:
        pulled = await self._queues.pull(
            place.topic, place.queue_id, start, count, DISPATCH_WAIT_MS
        )
        frames: list[Frame] = []
        raw: list[bytes] = []
        at = 0
        while at < len(pulled.frames):
            size = int.from_bytes(pulled.frames[at : at + 4], "big")
            one = pulled.frames[at : at + size]
            frame = decode(one)
            assert isinstance(frame, Frame)
            if start <= frame.queue_offset < start + count:
                frames.append(frame)
                raw.append(one)
            at += size
        # What the log has deleted is gone for all workers.
        first = frames[0].queue_offset if frames else min(start + count, pulled.minimum)
        return ReadMessages((start, max(start, first)), frames, raw, attempt, token)


def runs_of(offsets: Sequence[int]) -> list[Bounds]:
    """The runs that offsets in order make."""
    runs: list[Bounds] = []
    for offset in offsets:
        if runs and runs[-1][1] == offset:
            runs[-1] = (runs[-1][0], offset + 1)
        else:
            runs.append((offset, offset + 1))
    return runs
