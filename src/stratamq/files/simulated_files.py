"""The file port as one process of the simulated disk sees it."""

import errno
import os
import weakref
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from stratamq.files.paths import ancestors, base_name, checked, parent
from stratamq.files.port import PAGE_BYTES, Entry, EntryKind, File, Space, is_of_file_system
from stratamq.files.simulated_faults import Failure, SimulatedCrash
from stratamq.files.simulated_file import SimulatedFile, SimulatedLock
from stratamq.files.simulated_inode import Inode
from stratamq.files.simulated_tree import Directory, Node, Special, Tree
from stratamq.formats.store_paths import TEMPORARY_DIRECTORY


class Volume(Protocol):
    """What a process sees of the simulated disk."""

    random: Random
    tree: Tree

    def count(self, process: "SimulatedFiles", operation: str, path: str) -> Failure | None:
        """Count one call; how it is to fail, if it is. May raise `SimulatedCrash`."""

    def space(self, path: str = "") -> Space: ...

    def mount_of(self, path: str) -> str:
        """The mount point that a path lies below; "" for the root's own volume."""

    def now_ns(self) -> int: ...

    def forget(self, process: "SimulatedFiles") -> None: ...


class SimulatedFiles:
    """`Files` of one simulated process. Made by `SimulatedDisk.files`."""

    def __init__(self, disk: Volume, root: str, name: str) -> None:
        self.disk = disk
        self.name = name
        self.dead = False
        """Killed, or stopped at a crash point: every further call raises `SimulatedCrash`."""
        self._root = checked(root)
        self._serial = 0
        self._open: weakref.WeakSet[SimulatedFile] = weakref.WeakSet()

    def kill(self) -> None:
        """SIGKILL: no further call, locks gone, the page cache as it is."""
        self.dead = True
        self._open.clear()
        for inode in self.disk.tree.inodes():
            if inode.lock_owner is self:
                inode.lock_owner = None
        self.disk.forget(self)

    # --- files ---

    def create(self, path: str, size: int, *, sparse: bool = False) -> None:
        target = self.at(path)
        if self.disk.tree.find(target) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self.make_directory(parent(path))
        made = self._make(target, size, sparse)
        try:
            self._call("create.sync_target", target)
            self.disk.tree.sync(parent(target))
            self._call("create.sync_temporary", target)
            self.disk.tree.sync(self.at(TEMPORARY_DIRECTORY))
        except OSError:
            self._remove(made)
            raise

    def create_many(
        self, paths: Sequence[str], size: int, sync_all: Callable[[], None]
    ) -> Sequence[str]:
        made = [path for path in paths if self.disk.tree.find(self.at(path)) is None]
        sync_all()
        for path in made:
            self.make_directory(parent(path))
            self._make(self.at(path), size, True)
        return made

    def rewrite(
        self, path: str, size: int, fill: Callable[[File], None], *, sparse: bool = False
    ) -> None:
        def write(inode: Inode) -> None:
            named = inode.path != self.at(path)
            holder = f"{TEMPORARY_DIRECTORY}/{base_name(inode.path)}" if named else path
            file = SimulatedFile(self, holder, inode, True)
            fill(file)
            file.flush()

        self._make(self.at(path), size, sparse, write)
        self._sync_directory(self.at(parent(path)))
        self._sync_directory(self.at(TEMPORARY_DIRECTORY))

    def _make(
        self,
        target: str,
        size: int,
        sparse: bool,
        fill: Callable[[Inode], None] | None = None,
    ) -> str:
        """The steps of `files.new_files`: a file in the temporary directory that is renamed, or in
        a mount one without a name, which it gets at the end. `fill`: `target` is replaced."""
        self.make_directory(TEMPORARY_DIRECTORY)
        self._serial += 1
        holder = self.at(TEMPORARY_DIRECTORY)
        temporary = f"{holder}/{base_name(target)}.{self.name}.{self._serial}"
        tree, now = self.disk.tree, self.disk.now_ns()
        unnamed = self.disk.mount_of(target) != self.disk.mount_of(holder)
        try:
            self._call("create.temporary", target)
            inode = Inode(target if unnamed else temporary, now)
            if not unnamed:
                tree.set(temporary, inode, now)
            self._call("create.allocate", target)
            inode.set_size(size, sparse=True)
            if not sparse:
                self.need_blocks(inode, 0, size)
                inode.holes.clear()
            if fill is not None:
                fill(inode)
            self._call("create.flush", target)
            inode.flush(inode.dirty_pages())
            self._call("create.rename", target)
            if unnamed and fill is not None:
                temporary = f"{target}.new"
                tree.set(temporary, inode, now)
                self._call("create.replace", target)
            if unnamed and fill is None:
                tree.set(target, inode, now)
            else:
                tree.rename(temporary, target, now)
        except Exception:
            self._remove(temporary)
            raise
        return target

    def open(self, path: str, *, writable: bool = False) -> SimulatedFile:
        self._call("open", self.at(path))
        node = self._existing(path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if isinstance(node, Special):
            number = errno.ELOOP if node.kind is EntryKind.LINK else errno.EINVAL
            raise OSError(number, os.strerror(number), path)
        if node.lock_owner is self:
            raise OSError(errno.EBUSY, "this process holds its lock", path)
        file = SimulatedFile(self, path, node, writable)
        self._open.add(file)
        return file

    def entry(self, path: str) -> Entry | None:
        self._call("entry", self.at(path))
        node = self.disk.tree.find(self.at(path))
        return None if node is None else _entry(base_name(path), node)

    def list(self, directory: str) -> list[Entry]:
        self._call("list", self.at(directory))
        node = self.disk.tree.find(self.at(directory))
        if node is None:
            return []
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), directory)
        entries = [_entry(name, node.entries[name]) for name in sorted(node.entries)]
        return [entry for entry in entries if not is_of_file_system(entry)]

    def replace(self, source: str, target: str) -> None:
        self._call("replace", self.at(target))
        moved = self._existing(source)
        there = self.disk.tree.find(self.at(target))
        if there is moved:
            return
        if isinstance(there, Directory):
            if not isinstance(moved, Directory):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
            if there.entries:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
        elif there is not None and isinstance(moved, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), target)
        if self.disk.mount_of(self.at(source)) != self.disk.mount_of(self.at(target)):
            self._move(source, target)
            return
        self.disk.tree.rename(self.at(source), self.at(target), self.disk.now_ns())

    def _move(self, source: str, target: str) -> None:
        """Between mounts: see `NewFiles.move`."""
        node = self._existing(source)
        if isinstance(node, Directory):
            self.make_directory(target)
            for name in sorted(node.entries):
                self.replace(f"{source}/{name}", f"{target}/{name}")
        elif isinstance(node, Inode):
            content = bytes(node.cache)

            def copy(inode: Inode) -> None:
                inode.write(0, content)

            self._make(self.at(target), len(content), True, copy)
        else:
            self.disk.tree.set(self.at(target), node, self.disk.now_ns())
        self._sync_directory(self.at(parent(target)))
        self._remove(self.at(source))

    def unlink(self, path: str) -> None:
        self._call("unlink", self.at(path))
        if isinstance(self._existing(path), Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        self._remove(self.at(path))

    def set_mtime(self, path: str, mtime_ns: int) -> None:
        self._call("set_mtime", self.at(path))
        node = self._existing(path)
        if isinstance(node, Inode):
            node.set_mtime(mtime_ns)
        else:
            node.mtime_ns = mtime_ns

    # --- directories ---

    def make_directory(self, path: str) -> None:
        tree = self.disk.tree
        for directory in ancestors(self.at(path)):
            node = tree.find(directory)
            if node is None:
                self._call("make_directory", directory)
                tree.set(directory, Directory(self.disk.now_ns()), self.disk.now_ns())
            elif not isinstance(node, Directory):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), directory)
            if not tree.is_durable(directory):
                try:
                    self._sync_directory(parent(directory))
                except OSError:
                    if node is None:
                        # A later sync that succeeds would not cover this entry.
                        tree.set(directory, None, self.disk.now_ns())
                    raise

    def remove_directory(self, path: str) -> None:
        self._call("remove_directory", self.at(path))
        if self.disk.tree.directory(self.at(path)).entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        self.disk.tree.set(self.at(path), None, self.disk.now_ns())

    def sync_directory(self, path: str) -> None:
        self._sync_directory(self.at(path))

    def sync_all(self) -> None:
        failure = self.count("sync_all", self._root)
        for inode in self.disk.tree.inodes():
            pages = inode.dirty_pages()
            if failure is None:
                inode.flush(pages)
            else:
                inode.fail_pages(pages)
        if failure is not None:
            self.disk.tree.fail_sync(None)
            raise failure.error
        self.disk.tree.sync_all()

    def space(self, path: str = "") -> Space:
        self._call("space", self.at(path))
        return self.disk.space(self.at(path))

    def clean_temporary(self, spare: tuple[str, ...] = ()) -> Sequence[str]:
        # A simulated process makes a file in one step: whatever is there was abandoned.
        entries = self.list(TEMPORARY_DIRECTORY)
        files = [entry.name for entry in entries if entry.kind is EntryKind.FILE]
        names = [name for name in files if not name.startswith(spare)]
        for name in names:
            self.unlink(f"{TEMPORARY_DIRECTORY}/{name}")
        return names

    # --- locks ---

    def lock(self, path: str, text: bytes) -> SimulatedLock:
        self.make_directory(parent(path))
        self._call("lock", self.at(path))
        tree, where = self.disk.tree, self.at(path)
        node = tree.find(where)
        if node is None:
            node = Inode(where, self.disk.now_ns())
            tree.set(where, node, self.disk.now_ns())
        elif isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        elif isinstance(node, Special):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        if node.lock_owner is not None:
            raise BlockingIOError(errno.EAGAIN, "locked", path)
        previous = bytes(node.cache)
        node.lock_owner = self
        lock = SimulatedLock(node, previous)
        try:
            if text:
                self._call("lock.write", where)
                node.set_size(len(text), sparse=False)
                node.write(0, text)
                self._call("lock.flush", where)
                node.flush(node.dirty_pages())
                self._sync_directory(parent(where))
        except OSError:
            lock.close()
            raise
        return lock

    # --- for its files and its disk ---

    def at(self, path: str) -> str:
        """The path on the disk."""
        inside = checked(path).strip("/")
        return f"{self._root}/{inside}" if self._root and inside else inside or self._root

    def count(self, operation: str, path: str) -> Failure | None:
        if self.dead:
            raise SimulatedCrash(f"{self.name} is dead")
        try:
            return self.disk.count(self, operation, path)
        except SimulatedCrash:
            self.dead = True
            raise

    def need_blocks(self, inode: Inode, position: int, length: int) -> None:
        """ENOSPC unless the holes of a range can have blocks."""
        last = (position + length - 1) // PAGE_BYTES
        wanted = sum(1 for page in inode.holes if position // PAGE_BYTES <= page <= last)
        if wanted and wanted * PAGE_BYTES > self.disk.space(inode.path).available_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), inode.path)

    def open_inodes(self) -> Sequence[Inode]:
        return [file.inode for file in self._open]

    def closed(self, file: SimulatedFile) -> None:
        self._open.discard(file)

    def _call(self, operation: str, path: str) -> None:
        failure = self.count(operation, path)
        if failure is not None:
            raise failure.error

    def _sync_directory(self, where: str) -> None:
        failure = self.count("sync_directory", where)
        self.disk.tree.directory(where)
        if failure is not None:
            self.disk.tree.fail_sync(where)
            raise failure.error
        self.disk.tree.sync(where)

    def _existing(self, path: str) -> Node:
        node = self.disk.tree.find(self.at(path))
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def _remove(self, where: str) -> None:
        if self.disk.tree.find(where) is not None:
            self.disk.tree.set(where, None, self.disk.now_ns())


def _entry(name: str, node: Node) -> Entry:
    if isinstance(node, Inode):
        return Entry(name, EntryKind.FILE, node.size, node.mtime_ns)
    kind = EntryKind.DIRECTORY if isinstance(node, Directory) else node.kind
    return Entry(name, kind, 0, node.mtime_ns)
