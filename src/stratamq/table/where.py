"""The address of a running broker, or a tier, from the path of a store's directory."""

import os
import re
from pathlib import Path
from typing import Any, TypeGuard

from stratamq.formats.store_paths import COMMIT_LOG
from stratamq.formats.tier_names import cluster_folder

_ONE = r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+):\d{1,5}"
_ADDRESS = re.compile(rf"{_ONE}(,{_ONE})*|commitlog=.+")


def is_address(where: Any) -> bool:
    """`host:port`, several of them, or `commitlog=host:port,…`; what exists as a path is none."""
    if not isinstance(where, str):
        return False
    return _ADDRESS.fullmatch(where) is not None and not Path(where).exists()


def is_tier(where: Any) -> TypeGuard[str | os.PathLike[str]]:
    """An object store's URL, or a directory that has a cluster's folder and no log."""
    if isinstance(where, str) and "://" in where:
        return True
    if not isinstance(where, str | os.PathLike):
        return False
    path = Path(where)
    if not path.is_dir() or path.name == COMMIT_LOG or (path / COMMIT_LOG).exists():
        return False
    return any(
        name.is_dir() and cluster_folder(name.name[9:]) == name.name for name in path.iterdir()
    )
