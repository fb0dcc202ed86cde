"""What the room's abilities have in common: one fold, one snapshot, one writer's stream.

Each ability is a `Machine`: a state that is computed from the log, and an author of what is
appended next. `Delivery` is both for all of them. It gives each piece of the log to every machine,
and takes records from them in turn.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from stratamq.errors import StrataError
from stratamq.files.metadata import JsonObject
from stratamq.follow.fold import FoldPlace, SmallState
from stratamq.follow.own_appends import Author, OwnRecord
from stratamq.store.log_pieces import LogPiece

Document = JsonObject | Callable[[], JsonObject]


class Machine(SmallState, Author, Protocol):
    """One ability of the room. Its `cut` may be called again with a lower offset, down to 0."""

    name: str
    """Its part of the snapshot."""
    version: str
    """The version of its part: with another one, or without its part, the fold begins again at the
    log's beginning. It names everything besides the log that the state is computed from."""

    def needed(self) -> int | None:
        """The first message of the log for which something is left to do."""


class Delivery:
    """Implements `SmallState` and `Author` for all machines."""

    def __init__(self, machines: Sequence[Machine], followed: FoldPlace) -> None:
        self._machines = {machine.name: machine for machine in machines}
        self._followed = followed
        self._first = 0
        """Which machine is asked first the next time."""

    @property
    def needed_offset(self) -> int:
        """No message below is needed any more: its segment may be deleted."""
        needed = [offset for one in self._each() if (offset := one.needed()) is not None]
        return min(needed, default=self._followed.applied)

    # --- the state ---

    def apply(self, piece: LogPiece) -> None:
        for machine in self._machines.values():
            machine.apply(piece)

    def snapshot(self) -> Callable[[], JsonObject]:
        parts = {name: one.snapshot() for name, one in self._machines.items()}
        return partial(_document, parts, {one.name: one.version for one in self._each()})

    def restore(self, document: JsonObject) -> None:
        parts, versions = document.get("machines"), document.get("versions")
        if versions == {one.name: one.version for one in self._each()} and isinstance(parts, dict):
            for machine in self._each():
                machine.restore(parts[machine.name])
            return
        self._followed.generation = 0
        self._followed.go_on_at(0)
        for machine in self._each():
            machine.restore({})

    def cut(self, offset: int) -> int:
        """One machine may have to go further back than another: all begin again at the lowest."""
        while (lowest := min([one.cut(offset) for one in self._each()], default=offset)) < offset:
            offset = lowest
        return offset

    def forget_below(self, minimum: int) -> None:
        for machine in self._each():
            machine.forget_below(minimum)

    # --- what is appended ---

    def begin(self) -> None:
        self._first = 0
        for machine in self._each():
            machine.begin()

    def take(self, now_ms: int, most: int) -> Sequence[OwnRecord]:
        """Each machine is the first in turn: one with much to do delays another by one batch."""
        machines, records = self._each(), list[OwnRecord]()
        for step in range(len(machines)):
            machine = machines[(self._first + step) % len(machines)]
            if len(records) < most:
                taken = machine.take(now_ms, most - len(records))
                records += [replace(record, part=machine.name) for record in taken]
        self._first += 1
        return records

    def due_ms(self) -> int | None:
        times = [time for one in self._each() if (time := one.due_ms()) is not None]
        return min(times, default=None)

    def acknowledged(self, records: Sequence[OwnRecord], *, is_flushed: bool) -> None:
        for machine in self._each():
            if mine := [record for record in records if record.part == machine.name]:
                machine.acknowledged(mine, is_flushed=is_flushed)

    def refused(self, record: OwnRecord, error: StrataError) -> None:
        self._machines[record.part].refused(record, error)

    def _each(self) -> list[Machine]:
        return list(self._machines.values())


def _document(parts: Mapping[str, Document], versions: dict[str, str]) -> JsonObject:
    made = {name: part() if callable(part) else part for name, part in parts.items()}
    return {"machines": made, "versions": versions}
