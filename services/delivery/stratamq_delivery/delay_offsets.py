"""RocketMQ's `config/delayOffset.json`: up to where each level is delivered.

A RocketMQ broker that takes over the directory delivers from there on. Only a master's room writes
it, and only for the levels that hold nothing of another program.
"""

from collections.abc import Callable

from stratamq.files.metadata import MetadataFile
from stratamq.files.port import Files
from stratamq.formats.store_paths import DELAY_OFFSETS_PATH


class DelayOffsets:
    def __init__(self, positions: Callable[[], dict[int, int]], files: Files) -> None:
        """`positions`: by level, or nothing while the file is not this room's to write."""
        self._file = MetadataFile(files, DELAY_OFFSETS_PATH)
        self._positions = positions
        self._written: dict[str, int] = {}

    def load(self) -> None:
        document = self._file.load() or {}
        table = document.get("offsetTable")
        self._written = dict(table) if isinstance(table, dict) else {}

    @property
    def table(self) -> dict[int, int]:
        """By level, from 1 on: what the file says. RocketMQ's own for levels that hold messages of
        its own."""
        found = {level: offset for level, offset in self._written.items() if level.isdigit()}
        return {int(level): offset for level, offset in found.items() if isinstance(offset, int)}

    def news(self) -> Callable[[], None] | None:
        """What a worker is to write, when the log has flushed what the fold has seen. None: the
        file says it."""
        positions = {str(level): offset for level, offset in self._positions().items()}
        if positions.items() <= self._written.items():
            return None
        table = self._written = {**self._written, **positions}
        return lambda: self._file.store({"offsetTable": table})
