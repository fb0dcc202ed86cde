"""Settings of groups: those that were decided, and those that the log has.

A group without settings is served by the broker's. A decision is in force at once, as for the
queues of `shared_groups`.
"""

from collections.abc import Iterator

from stratamq_delivery.entries import Configured, Entry
from stratamq_delivery.records import GroupPlace

Pieces = Iterator[tuple[tuple[GroupPlace, Entry], ...]]
DEFAULT = Configured()


def place_of(group: str) -> GroupPlace:
    """Where the records have the settings of a group."""
    return GroupPlace(group, "", 0, 0)


class SettingsOfGroups:
    """Single-threaded; part of `SharedGroups`."""

    def __init__(self) -> None:
        self.version = 0
        """Another one after each change of what the log has decided."""
        self._folded: dict[str, Configured] = {}
        self._ahead: dict[str, Configured | None] = {}
        """None: the group will have no settings."""

    @property
    def folded(self) -> dict[str, Configured]:
        """What the log has decided. Changed by `apply`, or set as a whole."""
        return self._folded

    @folded.setter
    def folded(self, settings: dict[str, Configured]) -> None:
        self._folded = settings
        self.version += 1

    def of(self, group: str) -> Configured | None:
        """With all that was decided. None: the group has none."""
        return self._ahead[group] if group in self._ahead else self.folded.get(group)

    def in_force(self, group: str) -> Configured:
        return self.of(group) or DEFAULT

    def decide(self, group: str, entry: Entry) -> None:
        self._ahead[group] = entry if isinstance(entry, Configured) else None

    def give_up(self) -> None:
        self._ahead = {}

    def apply(self, group: str, entry: Entry) -> None:
        self.version += 1
        if isinstance(entry, Configured):
            self.folded[group] = entry
        else:
            self.folded.pop(group, None)

    def all(self) -> dict[str, Configured]:
        known = {group: self.of(group) for group in self.folded | self._ahead}
        return {group: one for group, one in known.items() if one is not None}

    def whole(self, most: int) -> Pieces:
        """All of them, in pieces of at most so many, each as it is when it is taken."""
        groups = [*(self.folded | self._ahead)]
        for first in range(0, len(groups), most):
            known = {group: self.of(group) for group in groups[first : first + most]}
            yield from in_pieces({name: one for name, one in known.items() if one}, most)


def in_pieces(settings: dict[str, Configured], most: int) -> Pieces:
    entries = [(place_of(group), one) for group, one in settings.items()]
    for first in range(0, len(entries), most):
        yield tuple(entries[first : first + most])
