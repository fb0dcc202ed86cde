"""List the files of the project without git, which a bare Debian lacks."""

import os
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def project_files() -> list[str]:
    """List every file that .gitignore does not name, as paths from the root, sorted."""
    patterns = [".git", *(ROOT / ".gitignore").read_text(encoding="utf-8").split()]

    def ignored(path: Path) -> bool:
        return any(fnmatch(path.name, p.rstrip("/")) or fnmatch(str(path), p) for p in patterns)

    found = []
    for directory, below, names in os.walk(ROOT):
        here = Path(directory).relative_to(ROOT)
        below[:] = [name for name in below if not ignored(here / name)]
        found += [str(here / name) for name in names if not ignored(here / name)]
    return sorted(found)
