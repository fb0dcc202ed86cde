"""What an export reads: a store's directory, with its tier or without, a tier, or a broker.

A log has one order, and an offset says what of it was read. What the log has no more has no place
in it: of a tier, or a broker that has one, each queue is read from its last exported message on.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from typing import Protocol

import pyarrow as pa

from stratamq.client import Client, connect
from stratamq.errors import InvalidRequestError, OffsetOutOfRangeError
from stratamq.files.real import RealFiles
from stratamq.store import generations
from stratamq.table.broker_reader import read_broker, read_log
from stratamq.table.decode import Decoder
from stratamq.table.log_files import LogFiles, open_log
from stratamq.table.part_reader import read_part
from stratamq.table.schema import COLUMNS
from stratamq.table.selection import FOREVER, Queue, Selection
from stratamq.table.tier_parts import NOT_IN_THE_LOG, TierDecoder, TierName
from stratamq.table.tier_scan import ReadBefore, scan_tier
from stratamq.table.where import is_address, is_tier
from stratamq_pipeline.iceberg.position import ExportSelection, LastMessage

RETRY_S = 30.0
"""So long a service that does not answer is waited for."""


class LogToExport(Protocol):
    """A log as it was when it was opened: offsets from `minimum` to `end` can be read."""

    @property
    def minimum(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def history(self) -> Sequence[tuple[int, int]]:
        """Number and start of each generation, in order; of a log of RocketMQ's none."""

    def batches(self, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        """Selected messages that begin at log offsets [begin, end), in order. `begin` is where a
        frame begins. OffsetOutOfRangeError when retention takes them meanwhile."""

    @property
    def has_older(self) -> bool:
        """Whether messages in front of `minimum` can be read, by `behind`."""

    def behind(self, read: Mapping[Queue, ReadBefore], gaps: bool) -> Iterator[pa.RecordBatch]:
        """All selected messages up to `end` that were not read before, older ones included.
        OffsetOutOfRangeError when some are gone, unless `gaps` are accepted."""

    def close(self) -> None: ...


def open_log_to_export(
    where: str,
    selection: ExportSelection,
    broker: str | None = None,
    tier: str | None = None,
) -> AbstractContextManager[LogToExport]:
    """`broker`: the one to read where brokers, or tiers, of several names are at the address.
    `tier`: where messages of a store's directory were uploaded."""
    decoder = Decoder(COLUMNS, selection.decompress)
    chosen = Selection(topics=frozenset(selection.topics) or None)
    if tier is not None and is_address(where):
        raise InvalidRequestError("a broker reads its tier itself: leave out --tier")
    if is_tier(where):
        return closing(_TierAlone(TierName(where, None, broker), TierDecoder(decoder, chosen)))
    if is_address(where):
        client = connect(where, retry_timeout_s=RETRY_S, broker=broker or "")
        return closing(_BrokersLog(client, decoder, chosen))
    name = None if tier is None else TierName(tier, None, broker)
    return closing(_LogInFiles(where, decoder, chosen, name))


def last_message_of(batch: pa.RecordBatch) -> LastMessage | None:
    """None for messages that are in no log."""
    row = batch.slice(batch.num_rows - 1).select(
        ["physicalOffset", "size", "bodyCrc", "storeTimestamp"]
    )
    offset, size, crc, stored = row.to_pylist()[0].values()
    if offset == NOT_IN_THE_LOG:
        return None
    return offset, size, crc, round(stored.timestamp() * 1000)


def has_message(log: LogToExport, last: LastMessage | None) -> bool:
    """Whether the log still has that message; true when that cannot be determined."""
    if last is None or last[0] < log.minimum:
        return True
    if sum(last[:2]) > log.end:
        return False
    found = [last_message_of(batch) for batch in log.batches(last[0], last[0] + last[1])]
    return found == [last]


class _LogInFiles:
    def __init__(
        self, where: str, decoder: Decoder, selection: Selection, tier: TierName | None
    ) -> None:
        self._log, history = _opened(where)
        self._tier = tier
        self.has_older = tier is not None
        self.history: Sequence[tuple[int, int]] = history
        self._decoder = decoder
        self._selection = selection
        self.minimum = self._log.minimum
        self.end = max(self._log.end, self._log.minimum)

    def batches(self, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        for part in self._log.parts(begin, end):
            try:
                yield from read_part(part, self._decoder, self._selection, verify=True)
            except FileNotFoundError as error:
                raise OffsetOutOfRangeError(
                    f"{part.path} was deleted before it was read: run this again",
                    part.segment_end,
                    self.end,
                ) from error

    def behind(self, read: Mapping[Queue, ReadBefore], gaps: bool) -> Iterator[pa.RecordBatch]:
        if self._tier is None:
            raise InvalidRequestError(
                "the export to this table was begun with a tier, and is not complete: give --tier"
            )
        decoder = TierDecoder(self._decoder, self._selection)
        yield from scan_tier(self._tier, decoder, self._log, read, gaps)

    def close(self) -> None:
        """Nothing is held open."""


class _TierAlone:
    minimum = end = 0
    history: Sequence[tuple[int, int]] = ()
    has_older = True

    def __init__(self, name: TierName, decoder: TierDecoder) -> None:
        self._name = name
        self._decoder = decoder

    def batches(self, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        """None: there is no log."""
        yield from ()

    def behind(self, read: Mapping[Queue, ReadBefore], gaps: bool) -> Iterator[pa.RecordBatch]:
        yield from scan_tier(self._name, self._decoder, None, read, gaps)

    def close(self) -> None:
        """Nothing is held open."""


def _opened(where: str) -> tuple[LogFiles, list[tuple[int, int]]]:
    """The log and its generations, both of one moment."""
    before = None
    while True:
        log = open_log(where)
        history = generations.history(RealFiles(log.root)) if log.root is not None else []
        if history == before:
            return log, history
        before = history


class _BrokersLog:
    has_older = True

    def __init__(self, client: Client, decoder: Decoder, selection: Selection) -> None:
        self._client = client
        self._decoder = decoder
        self._selection = selection
        state = client.log_state()
        self._segment_bytes = state.segment_bytes
        self.history: Sequence[tuple[int, int]] = state.generations
        self.minimum = state.minimum_offset
        self.end = max(state.confirmed_offset, state.minimum_offset)

    def batches(self, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        if begin < end:
            yield from read_log(
                self._client, self._decoder, self._selection, begin, end, self._segment_bytes
            )

    def behind(self, read: Mapping[Queue, ReadBefore], gaps: bool) -> Iterator[pa.RecordBatch]:
        """The dispatcher gives what is in the log and what is in the tier."""
        if read and not gaps:
            self._require_no_gap(read)
        chosen = replace(
            self._selection,
            topic_pattern=None if self._selection.topics else ".*",
            offsets={queue: (one.next, FOREVER) for queue, one in read.items()},
            others_too=True,
            physical=(0, self.end),
        )
        yield from read_broker(self._client, self._decoder, chosen)

    def _require_no_gap(self, read: Mapping[Queue, ReadBefore]) -> None:
        for queue in self._client.queues():
            known = read.get((queue.topic, queue.queue_id))
            next_offset = known.next if known is not None else 0
            if next_offset < queue.min_offset and self._selection.wants_topic(queue.topic):
                raise OffsetOutOfRangeError(
                    f"offsets {next_offset} to {queue.min_offset} of queue {queue.queue_id} of "
                    f"{queue.topic} were deleted before they were exported: --accept-gap "
                    "continues without them",
                    queue.min_offset,
                    queue.max_offset,
                )

    def close(self) -> None:
        self._client.close()
