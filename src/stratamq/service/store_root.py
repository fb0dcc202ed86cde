"""Whether a directory may be a broker's: the root of a store, with its log."""

from pathlib import Path

from stratamq.errors import StoreRefusedError
from stratamq.files.real import RealFiles
from stratamq.formats.file_names import parse_index_name, parse_offset_name
from stratamq.formats.store_paths import CHECKPOINT_PATH, PARTS
from stratamq.store.lost_log import require_log, require_tables

_NEITHER = (None, None)


def store_files(root: Path) -> RealFiles:
    """The files of a store, or of a new one. StoreRefusedError for a directory inside a store, and
    for a store without its log or its tables. Changes nothing: the directory may not be there."""
    require_root(root)
    files = RealFiles(root)
    require_log(files)
    require_tables(files)
    return files


def require_root(root: Path) -> None:
    """StoreRefusedError for a directory that is a part of a store, not its root. Changes nothing:
    the directory may not be there."""
    names = sorted(path.name for path in root.iterdir()) if root.is_dir() else []
    files = [
        name for name in names if (parse_offset_name(name), parse_index_name(name)) != _NEITHER
    ]
    whole = root.resolve()
    above = whole.parent
    beside = [name for name in (*PARTS, CHECKPOINT_PATH) if name != whole.name]
    inside = whole.name in PARTS and any((above / name).exists() for name in beside)
    if inside or files:
        found = f"it holds {files[0]}" if files else f"{above} has the other parts"
        raise StoreRefusedError(
            f"{root} is a part of a store, not its directory: {found}. Name the directory above it"
        )
