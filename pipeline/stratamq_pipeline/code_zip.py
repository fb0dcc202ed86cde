"""The code as one zip, for `--py-files` and for executors that have only the libraries."""

import os
import zipfile
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("stratamq", "stratamq_pipeline", "pyspark_stratamq")
LIBRARIES = ("numpy", "pyarrow", "pandas", "isal", "lz4", "zstandard")
"""What executors import beside PySpark and these packages."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""One moment for every member, so that equal code gives equal bytes."""


def write_code_zip(path: Path) -> int:
    """Write the zip, whole or not at all; how many modules are in it."""
    partial = path.with_name(path.name + ".partial")
    count = 0
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            root = package_directory(package)
            for source in sorted(root.rglob("*.py")):
                member = zipfile.ZipInfo(f"{package}/{source.relative_to(root)}", _EPOCH)
                member.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(member, source.read_bytes())
                count += 1
    os.replace(partial, path)
    return count


def package_directory(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None and spec.origin is not None, package
    return Path(spec.origin).parent


def submit_script() -> Path:
    """The driver's program for spark-submit."""
    return package_directory("stratamq_pipeline") / "submit.py"
