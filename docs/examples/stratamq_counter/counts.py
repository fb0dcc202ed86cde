"""Counts messages by topic: for each segment, so that those of a deleted segment can go."""

from collections import Counter
from typing import Any

from stratamq.follow.fold import FoldPlace
from stratamq.store.log_pieces import LogPiece


class Counts:
    def __init__(self, followed: FoldPlace) -> None:
        self._followed = followed
        self._by_segment: dict[int, Counter[str]] = {}

    def totals(self) -> Counter[str]:
        return sum(self._by_segment.values(), Counter())

    def restore(self, document: dict[str, Any]) -> None:
        saved = document.get("counts", {})
        self._by_segment = {int(at): Counter(topics) for at, topics in saved.items()}

    def snapshot(self) -> dict[str, Any]:
        return {"counts": {str(at): dict(topics) for at, topics in self._by_segment.items()}}

    def apply(self, piece: LogPiece) -> None:
        counts = self._by_segment.setdefault(self._followed.segment_of(piece.start), Counter())
        counts.update(piece.columns.topics[index] for index in piece.columns.topic_index)

    def cut(self, offset: int) -> int:
        """The segment that is cut is counted again from its start."""
        start = self._followed.segment_of(offset)
        self._by_segment = {at: some for at, some in self._by_segment.items() if at < start}
        return start

    def forget_below(self, minimum: int) -> None:
        size = self._followed.segment_bytes
        for at in [at for at in self._by_segment if at + size <= minimum]:
            del self._by_segment[at]
