"""A follower of the log for tests: it verifies everything that it receives."""

import numpy as np

from stratamq.follow.protocol import (
    Apply,
    Close,
    Closing,
    Cut,
    Event,
    Follower,
    Progress,
    Report,
)
from stratamq.formats.dispatch import dispatch_columns, scan_lengths
from tests.support.logs import Store


class Listener:
    """A follower of the log as a program: the machine of `follow.protocol`, fed by a session."""

    def __init__(
        self,
        store: Store,
        name: str = "dispatcher",
        *,
        generation: int = 0,
        position: int = 0,
        replicable: bool = False,
    ) -> None:
        self.store = store
        self.woken = 0
        self.machine = Follower(replicable=replicable)
        self.events: list[Event] = []
        self.closed_at: int | None = None
        self.opened, self.session = store.log.hub.open(
            name,
            replicable=replicable,
            generation=generation,
            position=position,
            wake=self._wake,
        )
        assert isinstance(self.machine.receive(self.opened), Cut)
        self.position = self.opened.cut_to

    def _wake(self) -> None:
        self.woken += 1

    def listen(self) -> list[Event]:
        """Everything there is to hear now; each event is held against the log's bytes."""
        heard: list[Event] = []
        while (event := self.session.next()) is not None:
            did = self.machine.receive(event)
            if isinstance(event, Closing):
                assert isinstance(did, Close)
                self.closed_at = event.end
                continue
            assert isinstance(did, Apply | Progress)
            heard.append(event)
            if event.end > event.start:
                self._check(event)
        self.events += heard
        return heard

    def _check(self, event: Event) -> None:
        assert event.start == self.position
        self.position = event.end
        size = self.store.log.segment_bytes
        assert event.start // size == (event.end - 1) // size
        base = event.start // size * size
        raw = self.store.segments()[base][event.start - base : event.end - base]
        scanned = scan_lengths(raw, event.start, event.end)
        if event.lengths is not None:
            assert event.lengths.tolist() == scanned.tolist()
            assert event.lengths.dtype == np.uint32
        columns = dispatch_columns(raw, event.start, scanned)
        if event.runs is not None:
            announced = [
                (topic, queue, first + n, True)
                for topic, queue, first, count in event.runs
                for n in range(count)
            ]
            found = [
                (columns.topics[t], q, o, True)
                for t, q, o in zip(
                    columns.topic_index.tolist(),
                    columns.queue_id.tolist(),
                    columns.queue_offset.tolist(),
                    strict=True,
                )
            ]
            assert announced == found

    def report(
        self, durable: int | None = None, released: int | None = None, *, leaving: bool = False
    ) -> None:
        position = self.position
        self.session.report(
            Report(
                applied=position,
                durable=position if durable is None else durable,
                durable_store_timestamp_ms=1,
                released=position if released is None else released,
                leaving=leaving,
            )
        )
