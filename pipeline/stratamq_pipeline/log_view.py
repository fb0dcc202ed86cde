"""A log as the driver sees it at one moment: how far it reaches, its frames, pieces to hand out.

Of files that is `FilesView`, of a running broker `broker_view.BrokerView`.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from pyspark.sql.datasource import InputPartition

from stratamq.errors import OffsetOutOfRangeError
from stratamq.formats.columns import FrameColumns
from stratamq.table.log_files import LogFiles
from stratamq.table.part_reader import part_frames
from stratamq.table.selection import Selection
from stratamq_pipeline.options import SourceOptions
from stratamq_pipeline.partition import LogPart

Chunk = tuple[NDArray[np.uint8], FrameColumns]
"""Bytes, and the frames that lie in them whole."""


class LogView(Protocol):
    """Log offsets from `minimum` to `end` can be read. Both are beginnings of frames, or the place
    where the next one will begin."""

    @property
    def minimum(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def divided_at_frames(self) -> bool:
        """Whether a partition must begin at a frame, and not anywhere."""

    @property
    def history(self) -> Sequence[tuple[int, int]]:
        """Number and start of each generation, in order; of a log of RocketMQ's none."""

    def within(self, since_ms: int | None, until_ms: int | None) -> tuple[int, int]:
        """Log offsets outside of which no message was stored at since ≤ time < until."""

    def frames(self, begin: int, end: int) -> Iterator[Chunk]:
        """The frames that begin in [begin, end), not verified, damaged ones left out.

        OffsetOutOfRangeError when retention takes them meanwhile.
        """

    def pieces(
        self,
        begin: int,
        end: int,
        part_bytes: int,
        selection: Selection,
        *,
        cuts: Sequence[int] | None = None,
    ) -> list[InputPartition]:
        """Partitions of about `part_bytes` that cover [begin, end). `cuts`: of a stream, for which
        they must be the same each time, whatever services answer: where to divide the range, if
        `divided_at_frames`; without any, at segments."""

    def queue_pieces(
        self, span: tuple[int, int], selection: Selection, options: SourceOptions
    ) -> tuple[list[InputPartition], int]:
        """Partitions of a batch that read the selected queues, and the log offset from which on
        the log must be read for the rest of the span."""

    def close(self) -> None: ...


class FilesView:
    """A view of a store's directory, StrataMQ's or RocketMQ's."""

    divided_at_frames = False

    def __init__(self, log: LogFiles, history: Sequence[tuple[int, int]] = ()) -> None:
        self.log = log
        self.history = history

    @property
    def minimum(self) -> int:
        return self.log.minimum

    @property
    def end(self) -> int:
        return max(self.log.end, self.log.minimum)

    def within(self, since_ms: int | None, until_ms: int | None) -> tuple[int, int]:
        return self.log.within(since_ms, until_ms)

    def frames(self, begin: int, end: int) -> Iterator[Chunk]:
        for part in self.log.parts(begin, end):
            try:
                yield from part_frames(part, on_damage=_leave_out)
            except FileNotFoundError as error:
                raise OffsetOutOfRangeError(
                    f"{part.path} was deleted while it was looked at", part.end, self.end
                ) from error

    def pieces(
        self,
        begin: int,
        end: int,
        part_bytes: int,
        selection: Selection,
        *,
        cuts: Sequence[int] | None = None,
    ) -> list[InputPartition]:
        return [LogPart(part, selection) for part in self.log.parts(begin, end, part_bytes)]

    def queue_pieces(
        self, span: tuple[int, int], selection: Selection, options: SourceOptions
    ) -> tuple[list[InputPartition], int]:
        return [], span[0]  # what is not wanted is passed over in the page cache

    def close(self) -> None:
        """Nothing is held open."""


def part_bytes_of(options: SourceOptions, total: int) -> int:
    """The size of partitions that `partitionBytes` and `minPartitions` ask for."""
    if options.min_partitions and total > 0:
        return min(options.partition_bytes, max(1, total // options.min_partitions))
    return options.partition_bytes


def _leave_out(path: str, damage: object) -> None:
    """Executors verify what they read, and report what they find."""
