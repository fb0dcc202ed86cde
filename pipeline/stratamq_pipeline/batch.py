"""Batch reads: the driver divides the log into parts, executors read and decode theirs."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from stratamq.files.real import RealFiles
from stratamq.store import generations
from stratamq.table.log_files import LogFiles, SegmentPart
from stratamq.table.selection import Selection
from stratamq.table.where import is_address
from stratamq_pipeline.log_view import FilesView, LogView, part_bytes_of
from stratamq_pipeline.offsets import check_starts
from stratamq_pipeline.offsets_of_units import narrowed_by_units
from stratamq_pipeline.options import SourceOptions
from stratamq_pipeline.partition import read_partition
from stratamq_pipeline.places import logs_of
from stratamq_pipeline.pushdown import narrowed
from stratamq_pipeline.same_file import log_for_workers
from stratamq_pipeline.table_columns import TableColumns
from stratamq_pipeline.tier_view import open_tier_view


def open_view(options: SourceOptions, known: int = 0, last: LogView | None = None) -> LogView:
    """The log as it is now. `known`: a place up to which it has been looked at before; `last`: the
    view of then, whose connection stays in use."""
    if is_address(options.path):
        from stratamq_pipeline.broker_view import BrokerView, open_broker

        if isinstance(last, BrokerView):
            return last.refreshed()
        return open_broker(str(options.path), options.broker or "", options.access)
    before = last.history if last is not None else None
    while True:
        log = log_for_workers(options.path, known)
        history = generations.history(RealFiles(log.root)) if log.root is not None else []
        if history == before:  # so the log's end is of the last generation, too
            return FilesView(log, history)
        before, known = history, 0


class BatchReader(DataSourceReader):
    """Rows of the log. Pickled to the executors."""

    def __init__(self, options: SourceOptions, columns: TableColumns) -> None:
        self.options = options
        self.columns = columns
        self.selection = options.selection()

    def partitions(self) -> Sequence[InputPartition]:
        if self.options.tier:
            return self._with_tier()
        options = self.options
        with ExitStack() as stack:
            views = [open_view(one) for one in logs_of(options)]
            for view in views:
                stack.callback(view.close)
            if options.fail_on_data_loss and isinstance(options.starting, dict):
                check_starts(views[0], options.starting)  # with several logs there are none
            spans = [bounds(view, self.selection) for view in views]
            part_bytes = part_bytes_of(options, sum(end - begin for begin, end in spans))
            pieces = []
            for view, span in zip(views, spans, strict=True):
                # A log that grows meanwhile is read as it was now, by each of the parts.
                selection = replace(self.selection, physical=span)
                by_queues, begin = view.queue_pieces(span, selection, options)
                rest = replace(selection, physical=(begin, span[1]))
                pieces += by_queues + view.pieces(begin, span[1], part_bytes, rest)
            return pieces

    def _with_tier(self) -> list[InputPartition]:
        """The tier's parts, and the log's with what the tier has not."""
        options = self.options
        view = open_view(options) if options.path else None
        tier = open_tier_view(options, self.selection)
        if options.fail_on_data_loss and isinstance(options.starting, dict):
            others = tier.check_starts(options.starting)
            if view is not None:
                check_starts(view, others)
        begin, end = bounds(view, self.selection) if view is not None else (0, 0)
        part_bytes = part_bytes_of(options, tier.bytes + end - begin)
        pieces = tier.pieces(part_bytes, self.selection)
        if view is not None:
            rest = replace(self.selection, physical=(begin, end), elsewhere=tier.covered)
            pieces += view.pieces(begin, end, part_bytes, rest)
        return pieces

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return map(self.columns.rows, read_partition(partition, self.options, self.columns.decoded))


class PushingBatchReader(BatchReader):
    """The same, for a planner that hands filters over."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        left = []
        for one in filters:
            narrower = self._narrowed(one)
            if narrower is None:
                left.append(one)
            else:
                self.selection = narrower
        return left

    def _narrowed(self, one: Filter) -> Selection | None:
        of_message = self.columns.of_message(one)
        # What is in a tier has no place in the log.
        if of_message is None or (self.options.tier and _is_of_places(of_message)):
            return None
        return narrowed(self.selection, of_message)


def _is_of_places(one: Filter) -> bool:
    return getattr(one, "attribute", ()) == ("physicalOffset",)


def bounds(view: LogView, selection: Selection) -> tuple[int, int]:
    """Log offsets outside of which nothing of the selection begins."""
    begin, end = view.within(selection.since_ms, selection.until_ms)
    if selection.physical is not None:
        begin, end = max(begin, selection.physical[0]), min(end, selection.physical[1])
    if selection.all_offsets is not None and selection.all_offsets[0] >= selection.all_offsets[1]:
        end = begin
    if isinstance(view, FilesView):
        low, high = narrowed_by_units(view.log, selection)
        begin, end = max(begin, low), min(end, high)
    return begin, max(begin, end)


def divide(log: LogFiles, options: SourceOptions, selection: Selection) -> list[SegmentPart]:
    """The parts of files that can hold something of the selection."""
    begin, end = bounds(FilesView(log), selection)
    return log.parts(begin, end, part_bytes_of(options, end - begin))
