"""An audit of a clean store finds nothing; of a damaged one every planted fault, by its kind."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from stratamq_pipeline.audit.faults import CONSEQUENCES
from stratamq_pipeline.audit.job import AuditOptions, run_audit

from stratamq.files.real import RealFiles
from stratamq.formats.index_file import IndexFileView
from stratamq.formats.index_layout import INDEX_ITEM, item_position, slot_position
from stratamq.formats.queue_unit import QUEUE_UNIT, encode_queue_unit
from stratamq.formats.queue_units import decode_units
from stratamq.table.log_files import open_log
from tests.dispatcher.followed_log import WrittenLog
from tests.pipeline.job_stores import HERE, sizes
from tests.support import fixtures
from tests.support.fixtures import CLEAN_STORES, unpack
from tests.support.rocketmq import geometry_file

KNOWN = {
    "4.9.8-crash": {"unit-missing": 124, "item-missing": 188},
    "5.5.1-crash": {"unit-missing": 142, "item-missing": 210},
}
"""RocketMQ's files stop at step 220: what came behind it was never dispatched."""


@dataclass
class Found:
    """An audit's faults: kinds by file and position."""

    rows: list[dict] = field(default_factory=list)

    def at(self, path: Path | str, position: int | None = None) -> set[str]:
        return {
            row["kind"]
            for row in self.rows
            if row["file"] == str(path) and (position is None or row["position"] == position)
        }

    @property
    def kinds(self) -> Counter:
        return Counter(row["kind"] for row in self.rows)


def audit(root: Path, out: Path) -> Found:
    options = AuditOptions(str(root), str(out), sizes(root), part_bytes=150_000)
    summary = run_audit(options, HERE)
    found = Found(pq.read_table(out).to_pylist())
    assert summary.facts["faults"] == len(found.rows)
    assert summary.failed == bool(found.rows)
    assert {row["kind"]: row["faults"] for row in summary.rows} == found.kinds
    assert all(row["consequence"] == CONSEQUENCES[row["kind"]] for row in found.rows)
    return found


def patch(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


@pytest.mark.parametrize("name", CLEAN_STORES)
def test_a_clean_store_has_no_fault(name, spark, tmp_path):
    root = unpack(name, tmp_path)
    assert audit(root, tmp_path / "out").rows == []


@pytest.mark.parametrize("name", KNOWN)
def test_of_a_crashed_store_only_what_was_not_dispatched_is_missed(name, spark, tmp_path):
    root = unpack(name, tmp_path)
    found = audit(root, tmp_path / "out").kinds
    assert found == KNOWN[name]
    written = sum(
        np.count_nonzero(decode_units(path.read_bytes())["size"])
        for path in (root / "consumequeue").rglob("0*")
        if path.is_file()
    )
    messages = len(list(fixtures.expected(name, "message")))
    assert found["unit-missing"] == messages - written


def queue_files(root: Path, units: int) -> list[Path]:
    """Files whose first `units` units are in use, each the first of its queue."""
    found = []
    for queue in sorted((root / "consumequeue").glob("*/*")):
        first = min(queue.iterdir())
        if (
            not first.name.strip("0")
            and QUEUE_UNIT.unpack_from(first.read_bytes(), 20 * (units - 1))[1]
        ):
            found.append(first)
    return found


def test_every_fault_planted_in_queues_is_found_with_its_kind(spark, tmp_path):
    root = unpack("4.9.8-small-clean", tmp_path)
    end = open_log(root).end
    files = queue_files(root, 3)
    assert len(files) > 8
    zeroed, moved, resized, tagged, empty, grown, stray, short = files[:8]
    first = QUEUE_UNIT.unpack_from(moved.read_bytes(), 0)
    patch(zeroed, 20, bytes(20))
    patch(moved, 20, encode_queue_unit(first[0], first[1], first[2]))
    size = QUEUE_UNIT.unpack_from(resized.read_bytes(), 0)
    patch(resized, 0, encode_queue_unit(size[0], size[1] + 1, size[2]))
    tag = QUEUE_UNIT.unpack_from(tagged.read_bytes(), 40)
    patch(tagged, 40, encode_queue_unit(tag[0], tag[1], tag[2] ^ 1))
    behind = max(empty.parent.iterdir()).with_name(f"{1600:020d}")
    behind.write_bytes(encode_queue_unit(0, 100, 0) + bytes(140))
    beyond = max(grown.parent.iterdir()).with_name(f"{1600:020d}")
    beyond.write_bytes(encode_queue_unit(end + 8, 100, 0) + bytes(140))
    (stray.parent / "note.txt").write_text("hello")
    with short.open("ab") as file:
        file.write(bytes(20))

    found = audit(root, tmp_path / "out")
    name = {path: str(path.relative_to(root)) for path in (*files, behind, beyond)}
    assert found.at(name[zeroed], 20) == {"unit-missing"}
    assert found.at(name[moved], 20) == {"unit-place"}
    assert found.at(name[resized], 0) == {"unit-place"}
    assert found.at(name[tagged], 40) == {"unit-tags"}
    assert found.at(name[behind]) == {"unit-without-message", "queue-file-missing"}
    assert found.at(name[beyond]) == {"unit-beyond-log", "queue-file-missing"}
    assert found.at((stray.parent / "note.txt").relative_to(root)) == {"queue-stray"}
    assert found.at(name[short]) == {"queue-file-size"}
    assert sum(found.kinds.values()) == 10


def test_every_fault_planted_in_the_index_is_found_with_its_kind(spark, tmp_path):
    root = unpack("5.5.1-small-clean", tmp_path)
    slots = fixtures.geometry(root).slots
    files = sorted((root / "index").iterdir())
    hashed, timed, headed, slotted, twice, sized = files[:6]

    def item(path: Path, number: int) -> list[int]:
        return list(INDEX_ITEM.unpack_from(path.read_bytes(), item_position(number, slots)))

    def put(path: Path, number: int, fields: list[int]) -> None:
        patch(path, item_position(number, slots), INDEX_ITEM.pack(*fields))

    other = item(hashed, 5)
    put(hashed, 5, [other[0] ^ slots, *other[1:]])  # another key, the same slot
    late = item(timed, 7)
    put(timed, 7, [*late[:2], late[2] + 3600, late[3]])
    patch(headed, 24, (1).to_bytes(8, "big"))
    used = next(
        slot for slot in range(slots) if IndexFileView(slotted.read_bytes(), slots, 64).slot(slot)
    )
    patch(slotted, slot_position(used), bytes(4))
    # The key of the item before it, at the message of the item before it.
    before, after = item(twice, 10), item(twice, 11)
    put(twice, 11, [*before[:3], after[3]])
    sized.write_bytes(sized.read_bytes()[:-4])
    (root / "index" / "note.txt").write_text("hello")

    found = audit(root, tmp_path / "out")
    name = {path: str(path.relative_to(root)) for path in files}
    assert found.at(name[hashed], item_position(5, slots)) == {"item-without-key"}
    assert found.at(name[timed]) == {"item-time"}
    assert found.at(name[headed], 24) == {"index-header"}
    assert found.at(name[slotted], slot_position(used)) == {"index-slot"}
    assert "item-duplicate" in found.at(name[twice])
    assert found.at(name[sized]) == {"index-file-size"}
    assert found.at("index/note.txt") == {"index-stray"}
    # What the changed items stood for before, and all of the file of another size.
    assert found.kinds["item-missing"] > 30
    assert set(found.kinds) <= {
        "item-without-key",
        "item-time",
        "index-header",
        "index-slot",
        "item-duplicate",
        "item-chain",
        "item-missing",
        "index-file-size",
        "index-stray",
    }


def test_an_item_that_points_between_messages_and_a_broken_chain_are_distinguished(spark, tmp_path):
    root = unpack("5.5.1-small-clean", tmp_path)
    slots = fixtures.geometry(root).slots
    astray, chained = sorted((root / "index").iterdir())[:2]
    for path, number, column, change in ((astray, 12, 1, 8), (chained, 20, 3, 1)):
        place = item_position(number, slots)
        fields = list(INDEX_ITEM.unpack_from(path.read_bytes(), place))
        fields[column] += change
        patch(path, place, INDEX_ITEM.pack(*fields))

    found = audit(root, tmp_path / "out")
    astray_name, chained_name = (str(path.relative_to(root)) for path in (astray, chained))
    assert found.at(astray_name, item_position(12, slots)) == {"item-without-message"}
    assert found.at(chained_name) == {"item-chain"}
    assert found.at(chained_name, item_position(20, slots)) == {"item-chain"}
    # The message that item 12 stood for is not found by its key any more.
    assert found.kinds == {"item-without-message": 1, "item-chain": 1, "item-missing": 1}


def test_damage_in_the_log_is_one_fault_and_what_points_at_it_is_none(spark, tmp_path):
    root = unpack("4.9.8-small-clean", tmp_path)
    segment = min((root / "commitlog").iterdir())
    size = int.from_bytes(segment.read_bytes()[:4], "big")
    second = int.from_bytes(segment.read_bytes()[size : size + 4], "big")
    patch(segment, size + 90, bytes(b ^ 0xFF for b in segment.read_bytes()[size + 90 : size + 92]))
    found = audit(root, tmp_path / "out")
    assert found.kinds == {"frame-damaged": 1}
    (row,) = found.rows
    assert (row["file"], row["position"]) == (str(segment.relative_to(root)), size)
    assert row["detail"].startswith(f"{second} bytes")


def test_a_log_that_would_be_cut_is_reported(spark, tmp_path):
    root = unpack("4.9.8-small-clean", tmp_path)
    end = open_log(root).end
    last = max((root / "commitlog").iterdir())
    start = int(last.name)
    first = int.from_bytes(last.read_bytes()[:4], "big")
    patch(last, first + 90, b"\xff\xff\xff")
    found = audit(root, tmp_path / "out")
    assert found.at(last.relative_to(root), first) == {"log-ends-early"}
    assert open_log(root).end == start + first < end
    assert set(found.kinds) == {"log-ends-early", "unit-beyond-log", "item-beyond-log"}


def test_queue_offsets_that_the_log_leaves_out_are_a_gap(spark, tmp_path):
    root = tmp_path / "store"
    root.mkdir()
    geometry_file(root, fixtures.Geometry(4096, 8, 16, 64))
    log = WrittenLog(RealFiles(root))
    for offset in (0, 1, 5, 6, 2, 3, 9):
        # Back to 2: what had 5 and 6 is gone; then on to 9.
        log.put("t", 0, queue_offset=offset)
    found = audit(root, tmp_path / "out")
    last = log.messages[-1].offset
    assert found.at(f"commitlog/{last - last % 4096:020d}", last % 4096) == {"queue-gap"}
    # Without queue files every message that should stand in one is missed: 0, 1, 2, 3 and 9.
    assert found.kinds == {"queue-gap": 1, "unit-missing": 5}


def test_a_dry_run_counts_files_and_needs_no_spark(tmp_path):
    root = unpack("4.9.8-small-clean", tmp_path)
    summary = run_audit(AuditOptions(str(root), geometry=sizes(root), dry_run=True), HERE)
    assert summary.facts["index_files"] == 10
    assert summary.facts["queue_files"] == 48
    assert not summary.failed
