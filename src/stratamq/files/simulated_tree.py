"""The directories of the simulated disk: entries as they are seen, and as they are on disk.

Every change of an entry is seen at once and waits in `Tree.pending` until the directory that holds
it is synced. A crash keeps or loses each waiting change by itself; a rename is one change, so that
its two halves come and go together, unless only one of its two directories was synced: then that
half is durable, as on a file system without a journal.
"""

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Union

from stratamq.files.paths import base_name, parent
from stratamq.files.port import EntryKind
from stratamq.files.simulated_inode import Inode


@dataclass(slots=True, eq=False)
class Special:
    """A link or a device in the simulated tree."""

    kind: EntryKind
    mtime_ns: int


@dataclass(slots=True, eq=False)
class Directory:
    """`entries` is what the running system sees, `durable` what a crash leaves at least."""

    mtime_ns: int
    entries: dict[str, "Node"] = field(default_factory=dict)
    durable: dict[str, "Node"] = field(default_factory=dict)


Node = Union[Inode, Directory, Special]  # noqa: UP007 - a forward reference in it


@dataclass(slots=True, eq=False)
class Half:
    """One entry of one directory set to `node`, or removed (None)."""

    directory: Directory
    name: str
    node: Node | None
    sync_failed: bool = False
    """A sync of the directory failed: a later one that succeeds does not cover this."""


@dataclass(slots=True, eq=False)
class Change:
    """One atomic change of entries. `path` names it in reports."""

    path: str
    halves: list[Half]


class Tree:
    """All directories of one disk. Paths are relative to the disk's root; "" is the root."""

    def __init__(self, mtime_ns: int) -> None:
        self.root = Directory(mtime_ns)
        self.pending: list[Change] = []

    def find(self, path: str) -> Node | None:
        node: Node = self.root
        for name in path.split("/") if path else ():
            if not isinstance(node, Directory):
                return None
            found = node.entries.get(name)
            if found is None:
                return None
            node = found
        return node

    def directory(self, path: str) -> Directory:
        node = self.find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def set(self, path: str, node: Node | None, mtime_ns: int) -> None:
        """Make, replace or remove one entry."""
        half = Half(self.directory(parent(path)), base_name(path), node)
        self._apply(Change(path, [half]), mtime_ns)

    def rename(self, source: str, target: str, mtime_ns: int) -> None:
        node = self.find(source)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        come = Half(self.directory(parent(target)), base_name(target), node)
        go = Half(self.directory(parent(source)), base_name(source), None)
        if isinstance(node, Inode):
            node.path = target
        self._apply(Change(target, [come, go]), mtime_ns)

    def sync(self, path: str) -> None:
        directory = self.directory(path)
        self._settle(lambda half: half.directory is directory and not half.sync_failed)

    def sync_all(self) -> None:
        self._settle(lambda half: not half.sync_failed)

    def fail_sync(self, path: str | None) -> None:
        """A failed sync of one directory, or of all (None)."""
        directory = None if path is None else self.directory(path)
        for change in self.pending:
            for half in change.halves:
                if directory is None or half.directory is directory:
                    half.sync_failed = True

    def is_durable(self, path: str) -> bool:
        """Whether the entry itself would be there after any crash, as the same node."""
        holder = self.directory(parent(path))
        name = base_name(path)
        return name in holder.entries and holder.durable.get(name) is holder.entries[name]

    def inodes(self, *, durable_too: bool = True) -> list[Inode]:
        """Every file that is seen (or only on disk still), each once, in a fixed order."""
        found: dict[int, Inode] = {}
        for directory in self._directories(durable_too):
            for node in _children(directory, durable_too):
                if isinstance(node, Inode):
                    found.setdefault(id(node), node)
        return list(found.values())

    def after_crash(
        self, keep: Callable[[Change], bool], carry: Callable[[Inode], Inode]
    ) -> "Tree":
        """The tree that the next boot finds; `carry` makes each surviving file's new inode."""
        durable = {id(d): dict(d.durable) for d in self._directories()}
        for change in self.pending:
            if keep(change):
                for half in change.halves:
                    entries = durable.setdefault(id(half.directory), dict(half.directory.durable))
                    _put(entries, half.name, half.node)
        made: dict[int, Node] = {}

        def carried(node: Node) -> Node:
            if id(node) not in made:
                if isinstance(node, Inode):
                    made[id(node)] = carry(node)
                elif isinstance(node, Special):
                    made[id(node)] = node
                else:
                    twin = made[id(node)] = Directory(node.mtime_ns)
                    below = durable.get(id(node), node.durable)
                    twin.entries = {name: carried(below[name]) for name in sorted(below)}
                    twin.durable = dict(twin.entries)
            return made[id(node)]

        after = Tree(self.root.mtime_ns)
        root = carried(self.root)
        assert isinstance(root, Directory)
        after.root = root
        return after

    def _apply(self, change: Change, mtime_ns: int) -> None:
        for half in change.halves:
            _put(half.directory.entries, half.name, half.node)
            half.directory.mtime_ns = mtime_ns
        self.pending.append(change)

    def _settle(self, wanted: Callable[[Half], bool]) -> None:
        left: list[Half] = []
        for change in self.pending:
            for half in change.halves:
                if not wanted(half):
                    left.append(half)
                    continue
                _put(half.directory.durable, half.name, half.node)
                # Whatever still waited for the same entry came before, and is overtaken.
                key = (half.directory, half.name)
                left = [other for other in left if (other.directory, other.name) != key]
        waiting = {id(half) for half in left}
        for change in self.pending:
            change.halves = [half for half in change.halves if id(half) in waiting]
        self.pending = [change for change in self.pending if change.halves]

    def _directories(self, durable_too: bool = True) -> Iterator[Directory]:
        waiting, seen = [self.root], {id(self.root)}
        while waiting:
            directory = waiting.pop(0)
            yield directory
            for node in _children(directory, durable_too):
                if isinstance(node, Directory) and id(node) not in seen:
                    seen.add(id(node))
                    waiting.append(node)


def _children(directory: Directory, durable_too: bool) -> list[Node]:
    both = (directory.entries, directory.durable) if durable_too else (directory.entries,)
    return [entries[name] for entries in both for name in sorted(entries)]


def _put(entries: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node
