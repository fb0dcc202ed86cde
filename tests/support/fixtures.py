"""The store directories that the real RocketMQ wrote, and what it reports of them.

`tests/fixtures/rocketmq-store/README.md` describes their making. Modification times are kept to the
nanosecond, because RocketMQ 4.x searches by them.
"""

import gzip
import json
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parent.parent / "fixtures"
STORES = FIXTURES / "rocketmq-store"
TIERS = FIXTURES / "rocketmq-tier"
VECTORS = FIXTURES / "vectors"

CLEAN_STORES = (
    "4.9.8-small-clean",
    "4.9.8-transactions-delay-batch",
    "5.5.1-small-clean",
    "5.5.1-transactions-delay-batch",
    "5.5.1-ipv6-v2-crc",
)
CRASHED_STORES = ("4.9.8-crash", "5.5.1-crash")
ALL_STORES = CLEAN_STORES + CRASHED_STORES
ALL_TIERS = ("clean", "rolled-expired", "torn-queue")


@dataclass(frozen=True, slots=True)
class Geometry:
    log_bytes: int
    queue_units: int
    slots: int
    items: int


def unpack(name: str, into: Path) -> Path:
    """Unpack a store below `into`; the path of its root directory."""
    return _unpack(STORES, name, into)


def unpack_tier(name: str, into: Path) -> Path:
    """Unpack a tier below `into`: `scenario.json`, `tier/`, `local/`; the path of its root."""
    return _unpack(TIERS, name, into)


def _unpack(folder: Path, name: str, into: Path) -> Path:
    with tarfile.open(folder / f"{name}.tar.gz") as archive:
        members = archive.getmembers()
        # `extractall(filter=…)` came with Python 3.11.4. Without filters all members are taken.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(into)
    for member in sorted(members, key=lambda member: member.name, reverse=True):
        mtime_ns = int(Decimal(member.pax_headers.get("mtime", str(member.mtime))) * 10**9)
        os.utime(into / member.name, ns=(mtime_ns, mtime_ns))
    return into / name


def geometry(root: Path) -> Geometry:
    """The sizes in `geometry.properties`."""
    lines = (root / "geometry.properties").read_text().splitlines()
    values = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    return Geometry(
        log_bytes=int(values["log-bytes"]),
        queue_units=int(values["queue-units"]),
        slots=int(values["slots"]),
        items=int(values["items"]),
    )


def expected(name: str, *kinds: str) -> Iterator[dict[str, Any]]:
    """What RocketMQ reports of a store, line by line; all kinds of lines, or the named ones."""
    for line in _expected_lines(name):
        if not kinds or line["kind"] in kinds:
            yield line


def expected_of_tier(name: str) -> list[dict[str, Any]]:
    """What RocketMQ reads from a tier, line by line."""
    with gzip.open(TIERS / f"{name}.expected.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@lru_cache(maxsize=len(ALL_STORES))
def _expected_lines(name: str) -> tuple[dict[str, Any], ...]:
    with gzip.open(STORES / f"{name}.expected.jsonl.gz", "rt", encoding="utf-8") as lines:
        return tuple(json.loads(line) for line in lines)


def writes(name: str) -> list[dict[str, Any]]:
    """The results of the puts that made a store, in order."""
    with gzip.open(STORES / f"{name}.writes.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def vectors() -> dict[str, Any]:
    """The golden vectors."""
    return json.loads((VECTORS / "store.json").read_text(encoding="utf-8"))


def tier_vectors() -> dict[str, Any]:
    """The golden vectors of the tiered store."""
    return json.loads((VECTORS / "tier.json").read_text(encoding="utf-8"))


def log_files(root: Path) -> list[tuple[int, bytes]]:
    """Start offset and content of each commit log file, oldest first."""
    return [(int(path.name), path.read_bytes()) for path in sorted((root / "commitlog").iterdir())]
