"""What memory and files have of the log: the series of index files, and what of them was there
before us and is still checked against the log (`adoption` has the cases).

Single-threaded, beside the engine.
"""

import logging
from collections.abc import Generator

from stratamq.files.port import Files
from stratamq.follow.fold import FoldPlace
from stratamq.follow.protocol import Event, Opened
from stratamq.formats.index_columns import index_keys
from stratamq.store.log_pieces import LogPiece
from stratamq_index.adoption import Adopted, Adoption, AdoptionGaps, drop, ends_of
from stratamq_index.cut import cut_series
from stratamq_index.directory import ListedFile, scan
from stratamq_index.edge import EdgeFilter
from stratamq_index.geometry import FileGeometry
from stratamq_index.log_pieces import LogPieces
from stratamq_index.persistence import Persistence
from stratamq_index.recovery import RecoveredIndex, edge_of
from stratamq_index.series import FileSeries

log = logging.getLogger(__name__)


class Contents:
    """`report_lines` gets what adoption finds."""

    def __init__(
        self,
        files: Files,
        geometry: FileGeometry,
        followed: FoldPlace,
        log: LogPieces,
        persistence: Persistence,
        recovered: RecoveredIndex,
        report_lines: list[str],
    ) -> None:
        self.generation = recovered.generation
        """The log's when memory and files were last brought to its answer."""
        self.series = FileSeries(geometry, recovered.position, recovered.sealed)
        if recovered.current is not None:
            self.series.resume(recovered.current)
        self.cut_count = 0
        """How often the log's answer changed what is in memory."""
        self._files = files
        self._geometry = geometry
        self._followed = followed
        self._log = log
        self._persistence = persistence
        self._report_lines = report_lines
        self._found: list[ListedFile] = recovered.adopt
        self._adoption: Generator[Adopted | None, None, None] | None = None
        self._gaps: AdoptionGaps | None = None
        self._edge = EdgeFilter(recovered.edge)

    @property
    def settled(self) -> bool:
        """Nothing is checked against the log any more."""
        return self._adoption is None and self._gaps is None and not self._found

    @property
    def adopting(self) -> bool:
        return self._adoption is not None

    @property
    def has_gaps(self) -> bool:
        """Files cover what comes, and are looked at before it is passed over."""
        return self._gaps is not None

    def begin_at(self, opened: Opened) -> bool:
        """Bring memory and files to the log's answer; no work is under way. Whether what was there
        is cut."""
        position, cut_to = self.series.position, opened.cut_to
        if self._adoption is not None:
            if (cut_to, opened.generation) == (position, self.generation):
                return False
            self._give_up_adoption(cut_to)
            position = cut_to
        if self._found:
            self._adopt(opened)
            return False
        # While adopted files are passed over they reach beyond our position: another generation
        # may have another history there.
        passing = self._gaps is not None and opened.generation != self.generation
        self.generation = opened.generation
        self._persistence.record()
        if cut_to < position or passing:
            self._cut(cut_to)
            return True
        if cut_to > position:
            # The log begins above us: what is between is gone.
            self.skip_to(cut_to)
        return False

    def skip_to(self, position: int) -> None:
        """What is before it needs no index."""
        self._edge = EdgeFilter(None)
        self.series.mark(position)
        self._followed.applied = position

    def adopt_step(self) -> None:
        """One step, while `adopting`."""
        assert self._adoption is not None
        adopted = next(self._adoption, None)
        if adopted is not None:
            self._install(adopted)

    def pass_over(self, event: Event) -> Generator[None, None, bool]:
        """True when adopted files cover all of the event, or a part without keys to index."""
        assert self._gaps is not None
        reached = self._edge.offset
        number = yield from self._gaps.first_unindexed(event.start, min(event.end, reached))
        if number is not None:
            self._drop_adopted(number)
            reached = self._edge.offset
        if event.end <= reached:
            self.series.position = self._followed.applied = event.end
            return True
        self._gaps = None
        return False

    def put(self, piece: LogPiece) -> None:
        """The keys of a piece of the log, but those that adopted files have."""
        keys = self._edge.without_known(index_keys(piece.columns))
        self.series.put(keys)
        if piece.end > self._edge.offset:
            self.skip_to(piece.end)
        else:
            # The files hold more than this: a watermark here would put it in twice.
            self.series.position = self._followed.applied = piece.end

    def _cut(self, cut_to: int) -> None:
        self.cut_count += 1
        self._gaps = None
        self._edge = EdgeFilter(None)
        job = cut_series(self.series, cut_to, self._files, self._log.store_time)
        self._persistence.cut(job, self.series)
        log.warning("index cut", extra={"cut_to": cut_to})

    def _adopt(self, opened: Opened) -> None:
        self.cut_count += 1
        self.generation = opened.generation
        self.series = FileSeries(self._geometry, opened.cut_to)
        adoption = Adoption(
            self._files,
            self._geometry,
            self._log,
            self._found,
            opened.minimum,
            opened.confirmed,
            self._report_lines,
        )
        self._found = []
        self._adoption = adoption.steps()
        if opened.confirmed <= opened.cut_to:
            # The log holds nothing, and no event will come: no file can be right.
            for _ in self._adoption:
                pass
            self._install(adoption.adopted)

    def _give_up_adoption(self, cut_to: int) -> None:
        """The log has changed under it, and perhaps below what the files hold."""
        self._adoption = None
        names = [found.name for found in scan(self._files, self._geometry, self._report_lines)]
        fault = "the log was cut while index files were checked against it"
        drop(self._files, names, fault, self._report_lines)
        self.series = FileSeries(self._geometry, cut_to)

    def _install(self, adopted: Adopted) -> None:
        self._adoption = None
        position = self.series.position
        self.series = FileSeries(self._geometry, position, adopted.sealed)
        if adopted.current is not None:
            self.series.resume(adopted.current)
        self._edge = EdgeFilter(adopted.edge)
        self._gaps = None
        if adopted.edge is not None:
            ends = ends_of(self._files, self._geometry, self.series.records())
            self._gaps = AdoptionGaps(self._log, ends)
        self._persistence.record(unsynced=[record.name for record in self.series.records()])

    def _drop_adopted(self, number: int) -> None:
        records = self.series.records()
        for file in self.series.open:
            if file.disk is not None:
                file.disk.close()
        names = [record.name for record in records[number:]]
        drop(self._files, names, "messages before it are not indexed", self._report_lines)
        kept = records[:number]
        self._install(Adopted(kept, None, edge_of(self._files, self._geometry, kept)))
