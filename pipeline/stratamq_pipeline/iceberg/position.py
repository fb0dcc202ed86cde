"""Where an Iceberg export stands, in the words of a snapshot's summary.

    stratamq.offset        "8190": all selected messages in front of this log offset are there
    stratamq.generation    the log's generation at that moment; "" of a log of RocketMQ's
    stratamq.selection     {"decompress": false, "topics": []}
    stratamq.last-message  [offset, size, checksum of the body, store time in ms]; "" before one
    stratamq.commit        a name that no other commit has
    stratamq.partial       "true": messages from behind the offset are there, too, of each queue the
                           older ones (`queue_ends.py`)

A snapshot is committed as a whole, so position and rows agree whatever ends the exporter. The same
words are in the table property `stratamq.position`, written by the same commit: for a table whose
snapshots were expired up to one that another program made, a compaction for example.
"""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.table.metadata import TableMetadata

from stratamq.errors import InvalidRequestError
from stratamq.store.generations import parted_at

PROPERTY = "stratamq.position"
SEQUENCE = "sequence"
_OFFSET = "stratamq.offset"
_GENERATION = "stratamq.generation"
_SELECTION = "stratamq.selection"
_LAST = "stratamq.last-message"
_COMMIT = "stratamq.commit"
_PARTIAL = "stratamq.partial"

LastMessage = tuple[int, int, int, int]
"""Log offset, size, checksum of the body, store time in ms: by it a log is known again."""


@dataclass(frozen=True, slots=True)
class ExportSelection:
    """What every run of one export must agree in."""

    topics: tuple[str, ...] = ()
    decompress: bool = False
    bodies: str = ""
    """What bodies become columns by, if they do; its fields may change."""

    def to_json(self) -> str:
        said = {"decompress": self.decompress, "topics": sorted(self.topics)}
        return json.dumps({"bodies": self.bodies, **said} if self.bodies else said)


@dataclass(frozen=True, slots=True)
class ExportPosition:
    """`offset`: log offset in front of which everything is exported."""

    offset: int
    generation: int | None
    selection: str
    last: LastMessage | None = None
    commit: str = ""
    partial: bool = False

    def at(
        self, offset: int, last: LastMessage | None, *, partial: bool = False
    ) -> "ExportPosition":
        """The position of the next commit, farther on in the same log; `last`: None when nothing
        was exported on the way."""
        name = uuid.uuid4().hex
        return replace(self, offset=offset, last=last or self.last, commit=name, partial=partial)

    def says_as_much_as(self, other: "ExportPosition | None") -> bool:
        """Whether nothing has to be committed to get from `other` to this."""
        return other is not None and replace(self, commit=other.commit) == other

    def properties(self) -> dict[str, str]:
        return {
            _OFFSET: str(self.offset),
            _GENERATION: "" if self.generation is None else str(self.generation),
            _SELECTION: self.selection,
            _LAST: json.dumps(self.last) if self.last else "",
            _COMMIT: self.commit,
            _PARTIAL: "true" if self.partial else "false",
        }

    @classmethod
    def of_properties(cls, given: Mapping[str, str]) -> "ExportPosition":
        generation, last = given[_GENERATION], given[_LAST]
        return cls(
            int(given[_OFFSET]),
            int(generation) if generation else None,
            given[_SELECTION],
            tuple(json.loads(last)) if last else None,
            given[_COMMIT],
            given.get(_PARTIAL) == "true",
        )

    def cut_at(self, history: Sequence[tuple[int, int]]) -> int | None:
        """The log offset at which a log of these generations parts from the one that was exported;
        None: it has all of it. Without generations nothing is known: `last` is compared then."""
        if self.generation is None or not history:
            return None
        if all(number != self.generation for number, _ in history):
            parted = parted_at(history, self.generation)
            return 0 if parted is None else min(parted, self.offset)
        parted = parted_at(history, self.generation)
        return parted if parted is not None and parted < self.offset else None


def position_of(metadata: TableMetadata, shown: str) -> ExportPosition | None:
    """The position of the current snapshot, which other programs' snapshots inherit; None for a
    table without snapshots. InvalidRequestError where it is not known."""
    current = metadata.current_snapshot()
    if current is None:
        return None
    for _, position in lineage_positions(metadata):
        return position
    written: dict[str, Any] = json.loads(metadata.properties.get(PROPERTY, "{}"))
    # A table that was rolled back behind the snapshot of the property has less than it says.
    if written and (current.sequence_number or 0) >= written.pop(SEQUENCE):
        return ExportPosition.of_properties(written)
    raise InvalidRequestError(
        f"{shown} has rows, and no snapshot says which part of a log they are: it is no export, or "
        "it was rolled back to a snapshot of another program. Roll it back to one that has "
        f"{_OFFSET} in its summary, or name another table"
    )


def lineage_positions(metadata: TableMetadata) -> Iterator[tuple[int, ExportPosition]]:
    """Snapshots of exports and their positions, from the current one back, as far as none was
    expired."""
    snapshot = metadata.current_snapshot()
    while snapshot is not None:
        summary = snapshot.summary
        if summary is not None and _OFFSET in summary.additional_properties:
            position = ExportPosition.of_properties(summary.additional_properties)
            yield snapshot.snapshot_id, position
        parent = snapshot.parent_snapshot_id
        snapshot = metadata.snapshot_by_id(parent) if parent is not None else None
