"""Index files without a watermark of ours, checked against the log before they are believed.

RocketMQ's directory after a clean stop is right, and its bytes stay as they are. After a crash of
RocketMQ its last file may be anything, and older ones may not have reached the disk; nothing shows
which of the two it is. So, while the log is read from its minimum anyway:

1. Files that contradict each other, or lie beyond the log's end, are dropped.
2. Files newer than the synced time in `checkpoint` are checked for whole chains.
3. The last file is compared with the log, item by item. It may have the tag keys of 5.4.0 and
   later. If it differs in anything, it is dropped and built again from the previous file's end.
4. Where no file covers the log, there must not be a key (`AdoptionGaps`): RocketMQ loses index
   files in a crash and does not build them again. From the first such place on the files are
   dropped.
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stratamq.errors import CorruptionError, CorruptRecordError, OffsetOutOfRangeError
from stratamq.files.port import Files
from stratamq.formats.index_columns import IndexKeys, IndexState, index_keys, seconds_after
from stratamq.formats.index_layout import IndexHeader, index_tag_key
from stratamq.formats.javahash import index_key_hash
from stratamq.formats.numbers import Offset
from stratamq.formats.store_paths import INDEX
from stratamq.store.confirmed import read_checkpoint
from stratamq.store.log_pieces import LogPiece
from stratamq_index.directory import ASIDE, ListedFile, move_aside
from stratamq_index.edge import EdgeFilter, without_following
from stratamq_index.geometry import FileGeometry
from stratamq_index.index_file import EdgeKeys, IndexFileReader, WritableIndexFile, path_of
from stratamq_index.log_pieces import LogPieces
from stratamq_index.recovery import edge_of
from stratamq_index.replay import replay
from stratamq_index.series import OpenFile
from stratamq_index.watermark import FileRecord

_MESSAGES_PER_STEP = 128
Steps = Generator[None, None, bool]


@dataclass(slots=True)
class Adopted:
    """What is believed now. `edge`: the last message that is in it, with its keys there."""

    sealed: list[FileRecord] = field(default_factory=list)
    current: OpenFile | None = None
    edge: EdgeKeys | None = None


class Adoption:
    """One pass over the files that were found. `steps` of less than 2 ms, then `adopted`."""

    def __init__(
        self,
        files: Files,
        geometry: FileGeometry,
        log: LogPieces,
        found: Sequence[ListedFile],
        minimum: int,
        confirmed: int,
        report: list[str],
    ) -> None:
        self.adopted = Adopted()
        self._files = files
        self._geometry = geometry
        self._log = log
        self._found = list(found)
        self._minimum = minimum
        self._confirmed = confirmed
        self._report = report

    def steps(self) -> Generator[Adopted | None, None, None]:
        """None for each step that is not the last."""
        yield from self._steps()
        yield self.adopted

    def _steps(self) -> Generator[None, None, None]:
        records = self._consistent()
        synced_ms = _synced_timestamp_ms(self._files)
        for number, record in enumerate(records[:-1]):
            if record.header.end_timestamp_ms > synced_ms and not (yield from self._whole(record)):
                self._drop(records[number:], "its chains are broken")
                records = records[:number]
                break
        if records:
            before = records[-2] if len(records) > 1 else None
            state = yield from self._agrees(records[-1], before)
            if state is None:
                self._drop(records[-1:], "not what the log has")
                records.pop()
            elif records[-1].header.next_item < self._geometry.items:
                record = records.pop()
                self.adopted.current = self._open(record, before, state)
        self.adopted.sealed = records
        self.adopted.edge = self._edge()

    def _consistent(self) -> list[FileRecord]:
        """The files up to the first that cannot follow the one before it."""
        records: list[FileRecord] = []
        reached = 0
        for number, found in enumerate(self._found):
            header = found.header
            if header is None:
                fault = "its header contradicts itself"
            elif header.begin_phy_offset < reached:
                fault = "it begins before the file in front of it ends"
            elif header.next_item > 1 and header.begin_phy_offset >= self._confirmed:
                fault = "it begins behind the log's end"
            elif header.next_item <= 1 and number < len(self._found) - 1:
                fault = "it is empty and not the last"
            else:
                records.append(FileRecord(found.name, header))
                reached = header.end_phy_offset
                continue
            rest = [FileRecord(f.name, _NO_HEADER) for f in self._found[number:]]
            self._drop(rest, fault)
            break
        return records

    def _whole(self, record: FileRecord) -> Steps:
        reader = IndexFileReader.open(self._files, path_of(record.name), self._geometry)
        try:
            replayed = yield from replay(reader, self._geometry, record.header)
        except OSError:
            return False
        finally:
            reader.close()
        return replayed.faultless

    def _agrees(
        self, record: FileRecord, before: FileRecord | None
    ) -> Generator[None, None, IndexState | None]:
        """The last file's state, if the file agrees with the log; else None."""
        reader = IndexFileReader.open(self._files, path_of(record.name), self._geometry)
        try:
            replayed = yield from replay(reader, self._geometry, record.header)
            if not replayed.faultless:
                return None
            if replayed.state.is_empty:
                empty = IndexState(1, 2, before.header if before else None).header()
                return replayed.state if record.header == empty else None
            comparison = _Comparison(reader, record.header, self._log, self._minimum)
            edge = edge_of(self._files, self._geometry, [before] if before else [])
            same = yield from comparison.steps(edge, self._confirmed)
            return replayed.state if same else None
        except (OSError, CorruptionError, OffsetOutOfRangeError):
            # Offsets in a file that is not right lead anywhere.
            return None
        finally:
            reader.close()

    def _open(self, record: FileRecord, before: FileRecord | None, state: IndexState) -> OpenFile:
        file = self._files.open(path_of(record.name), writable=True)
        return OpenFile(
            record.name,
            state,
            before.header if before else None,
            written=record.header.next_item,
            disk=WritableIndexFile(file, self._geometry, state.table.copy()),
        )

    def _edge(self) -> EdgeKeys | None:
        records = list(self.adopted.sealed)
        current = self.adopted.current
        if current is not None and not current.state.is_empty:
            records.append(current.record())
        return edge_of(self._files, self._geometry, records)

    def _drop(self, records: Sequence[FileRecord], fault: str) -> None:
        drop(self._files, [record.name for record in records], fault, self._report)


class _Comparison:
    """Walks a file's items and the log side by side."""

    def __init__(
        self, reader: IndexFileReader, header: IndexHeader, log: LogPieces, minimum: int
    ) -> None:
        self._header = header
        self._log = log
        self._minimum = minimum
        self._pieces = reader.pieces(1, header.next_item)
        self._number = 1
        self._waiting: NDArray[np.void] = np.zeros(0, reader.records(0, 0).dtype)

    def steps(self, edge: EdgeKeys | None, confirmed: int) -> Steps:
        header = self._header
        if header.end_phy_offset >= confirmed:
            return False
        start = edge.physical_offset if edge is not None else header.begin_phy_offset
        start = max(start, self._minimum)
        known = EdgeFilter(edge)
        # What is below the log's minimum can be neither compared nor asked for.
        self._take(start)
        for piece in self._log.read(start, confirmed):
            keys = known.without_known(index_keys(piece.columns))
            keys = keys[keys.physical_offset <= header.end_phy_offset]
            number, items = self._take(min(piece.end, header.end_phy_offset + 1))
            if not (yield from self._same(piece, keys, number, items)):
                return False
            if piece.end > header.end_phy_offset:
                break
            yield
        times = [self._log.store_time(header.end_phy_offset)]
        if header.begin_phy_offset >= self._minimum:
            times.append(self._log.store_time(header.begin_phy_offset))
            return times == [header.end_timestamp_ms, header.begin_timestamp_ms]
        return times == [header.end_timestamp_ms]

    def _take(self, offset: int) -> tuple[int, NDArray[np.void]]:
        """The next items that stand below `offset`, and the number of the first."""
        taken = []
        number = self._number
        while True:
            if not len(self._waiting):
                following = next(self._pieces, None)
                if following is None:
                    break
                self._waiting = following[1]
            count = int(np.searchsorted(self._waiting["physical_offset"], offset))
            taken.append(self._waiting[:count])
            self._number += count
            self._waiting = self._waiting[count:]
            if len(self._waiting):
                break
        return number, np.concatenate(taken) if taken else self._waiting

    def _same(
        self, piece: LogPiece, keys: IndexKeys, number: int, items: NDArray[np.void]
    ) -> Steps:
        hashes = items["key_hash"].astype(np.int32)
        offsets = items["physical_offset"].astype(np.int64)
        if len(items) == len(keys):
            same = (hashes == keys.key_hash) & (offsets == keys.physical_offset)
            if not same.all():
                return False
        elif not (yield from self._same_with_tags(keys, hashes, offsets)):
            return False
        columns = piece.columns
        rows = np.searchsorted(columns.physical_offset, offsets)
        if not np.array_equal(columns.physical_offset.take(rows, mode="clip"), offsets):
            return False
        times = columns.store_timestamp_ms[rows]
        expected = seconds_after(self._header.begin_timestamp_ms, times)
        right = items["seconds"] == expected
        if number == 1 and len(right):
            right[0] = True  # the rollover skew: counted from the end of the file before
        return bool(right.all())

    def _same_with_tags(
        self, keys: IndexKeys, hashes: NDArray[np.int32], offsets: NDArray[np.int64]
    ) -> Steps:
        wanted = _by_message(keys.key_hash, keys.physical_offset)
        there = _by_message(hashes, offsets)
        if not wanted.keys() <= there.keys():
            return False
        for count, (offset, found) in enumerate(there.items(), 1):
            expected = wanted.get(offset, [])
            if found != expected:
                tags = self._log.tags(offset)
                if tags is None or found != [*expected, index_key_hash(index_tag_key(*tags))]:
                    return False
            if count % _MESSAGES_PER_STEP == 0:
                yield
        return True


class AdoptionGaps:
    """Which parts of the log no adopted file covers, up to the last file's end."""

    def __init__(
        self,
        log: LogPieces,
        ends: Sequence[tuple[EdgeKeys | None, EdgeKeys | None]],
    ) -> None:
        """`ends`: the first and the last message of each file, with the keys that are there."""
        self._log = log
        self._gaps: list[tuple[int, EdgeKeys | None, EdgeKeys]] = []
        """(number of the file behind the gap, message before it, message behind it)"""
        before: EdgeKeys | None = None
        for number, (head, tail) in enumerate(ends):
            if head is None or tail is None:
                continue
            if before is None or before.physical_offset < head.physical_offset:
                self._gaps.append((number, before, head))
            before = tail

    def first_unindexed(self, start: int, end: int) -> Generator[None, None, int | None]:
        """The number of the file in front of which a key in [start, end) is not indexed."""
        for number, before, behind in self._gaps:
            begin = before.physical_offset if before is not None else -1
            if behind.physical_offset < start or begin >= end:
                continue
            known = EdgeFilter(before)
            try:
                for piece in self._log.read(max(start, begin), end):
                    keys = known.without_known(index_keys(piece.columns))
                    if len(without_following(keys, behind)):
                        return number
                    if piece.end > behind.physical_offset:
                        break
                    yield
            except CorruptRecordError:
                if begin > start:
                    return max(number - 1, 0)  # the file before it does not end at a message
                raise
        return None


def ends_of(
    files: Files, geometry: FileGeometry, records: Sequence[FileRecord]
) -> list[tuple[EdgeKeys | None, EdgeKeys | None]]:
    """The first and the last message of each file, with the keys that are there."""
    ends = []
    for record in records:
        with closing(IndexFileReader.open(files, path_of(record.name), geometry)) as reader:
            end = record.header.next_item
            ends.append((reader.head_keys(end), reader.tail_keys(end)))
    return ends


def drop(files: Files, names: Sequence[str], fault: str, report: list[str]) -> None:
    """Move files aside: the first of `names` has the fault, the others stand behind it. They are
    another program's, and perhaps it is the log that misses something."""
    if not names:
        return
    for name in names:
        move_aside(files, path_of(name))
    files.sync_directory(INDEX)
    behind = f"; it and {len(names) - 1} files behind it are" if len(names) > 1 else "; it is"
    report.append(f"{path_of(names[0])}: {fault}{behind} moved to {ASIDE}/ and indexed again")


def _by_message(hashes: NDArray[np.int32], offsets: NDArray[np.int64]) -> dict[int, list[int]]:
    grouped: dict[int, list[int]] = {}
    for offset, key_hash in zip(offsets.tolist(), hashes.tolist(), strict=True):
        grouped.setdefault(offset, []).append(key_hash)
    return grouped


def _synced_timestamp_ms(files: Files) -> int:
    """Index files that end at or below it were synced by RocketMQ, by its checkpoint."""
    try:
        checkpoint = read_checkpoint(files)
    except OSError:
        return 0
    return checkpoint.index_msg_timestamp_ms if checkpoint else 0


_NO_HEADER = IndexHeader(0, 0, Offset(0), Offset(0), 0, 0)
