"""The log that an export reads: a store's directory, or a running broker."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing
from typing import Protocol

import pyarrow as pa

from stratamq.client import Client, connect
from stratamq.errors import OffsetOutOfRangeError
from stratamq.files.real import RealFiles
from stratamq.store import generations
from stratamq.table.broker_reader import read_log
from stratamq.table.decode import Decoder
from stratamq.table.log_files import LogFiles, open_log
from stratamq.table.part_reader import read_part
from stratamq.table.schema import COLUMNS
from stratamq.table.selection import Selection
from stratamq.table.where import is_address
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

    def close(self) -> None: ...


def open_log_to_export(
    where: str, selection: ExportSelection, broker: str | None = None
) -> AbstractContextManager[LogToExport]:
    """`broker`: the one to read where brokers of several names are at the address."""
    decoder = Decoder(COLUMNS, selection.decompress)
    chosen = Selection(topics=frozenset(selection.topics) or None)
    if is_address(where):
        client = connect(where, retry_timeout_s=RETRY_S, broker=broker or "")
        return closing(_BrokersLog(client, decoder, chosen))
    return closing(_LogInFiles(where, decoder, chosen))


def last_message_of(batch: pa.RecordBatch) -> LastMessage:
    row = batch.slice(batch.num_rows - 1).select(
        ["physicalOffset", "size", "bodyCrc", "storeTimestamp"]
    )
    offset, size, crc, stored = row.to_pylist()[0].values()
    return offset, size, crc, round(stored.timestamp() * 1000)


def stands(log: LogToExport, last: LastMessage | None) -> bool:
    """Whether the log still has that message; true when that cannot be determined."""
    if last is None or last[0] < log.minimum:
        return True
    if sum(last[:2]) > log.end:
        return False
    found = [last_message_of(batch) for batch in log.batches(last[0], last[0] + last[1])]
    return found == [last]


class _LogInFiles:
    def __init__(self, where: str, decoder: Decoder, selection: Selection) -> None:
        self._log, history = _opened(where)
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

    def close(self) -> None:
        self._client.close()
