"""The files of a stopped store, read by the pure readers and held against the log's image.

No service runs: the disk alone must hold what the services reported before, the units of
every queue and the items of every index file, one for each frame and none for anything else.
"""

from collections import Counter
from pathlib import Path

from stratamq.formats.delay import dispatch_tags_code
from stratamq.formats.file_names import parse_offset_name
from stratamq.formats.index_file import IndexFileReader
from stratamq.formats.index_layout import index_key
from stratamq.formats.javahash import index_key_hash
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES, iter_queue_units
from stratamq_torture.processes.log_image import LogImage, Stored
from stratamq_torture.processes.messages import Messages
from stratamq_torture.processes.services import directory_names


def check_files(root: Path, image: LogImage, slots: int, items: int) -> list[str]:
    """Where the files differ from `image`, a sentence each; nothing when they agree."""
    return (
        check_log(root, image) + check_queues(root, image) + check_index(root, image, slots, items)
    )


def check_log(root: Path, image: LogImage) -> list[str]:
    """Segments without a gap, the image's frames in them, zeros behind them."""
    names = directory_names(root / "commitlog")
    starts = [parse_offset_name(name) for name in names]
    wanted = [number * image.segment_bytes for number in range(len(names))]
    if starts != wanted:
        return [f"commitlog/ holds {names[:5]}…: not segments in order from 0"]
    content = b"".join((root / "commitlog" / name).read_bytes() for name in names)
    faults = []
    if len(content) != len(names) * image.segment_bytes:
        faults.append(f"the segments hold {len(content)} bytes together")
    if content[image.end :].strip(b"\0"):
        faults.append(f"behind the log's end at {image.end} there is something else than zeros")
    again = LogImage(Messages(image.messages.seed), image.segment_bytes)
    again.read([(0, content[: image.end])])
    faults += again.faults
    if again.in_order != image.in_order:
        faults.append(f"the segments hold {len(again.in_order)} frames that are not the log's")
    return faults


def check_queues(root: Path, image: LogImage) -> list[str]:
    faults = []
    base = root / "consumequeue"
    on_disk = {
        (topic, int(number)) for topic in directory_names(base)
        for number in directory_names(base / topic)
    }  # fmt: skip
    for queue in sorted(on_disk | set(image.queues)):
        directory = base / queue[0] / str(queue[1])
        content = b"".join((directory / name).read_bytes() for name in directory_names(directory))
        units = [(u.physical_offset, u.size, u.tags_code) for u in iter_queue_units(content)]
        wanted = [(s.physical_offset, s.size, _tags_code(s)) for s in image.queues.get(queue, [])]
        if units != wanted:
            first = next(
                (i for i, (a, b) in enumerate(zip(units, wanted, strict=False)) if a != b),
                min(len(units), len(wanted)),
            )
            faults.append(
                f"the files of {queue[0]}/{queue[1]} hold {len(units)} units, the log has "
                f"{len(wanted)}; they differ from queue offset {first} on"
            )
        elif content[len(wanted) * QUEUE_UNIT_BYTES :].strip(b"\0"):
            faults.append(f"behind the end of {queue[0]}/{queue[1]} there are stale units")
    return faults


def check_index(root: Path, image: LogImage, slots: int, items: int) -> list[str]:
    faults = []
    found: Counter[tuple[int, int]] = Counter()
    for name in directory_names(root / "index"):
        reader = IndexFileReader((root / "index" / name).read_bytes(), slots, items)
        if not reader.has_geometry_of_its_items():
            faults.append(f"index/{name}: slots and chains do not reach every item once")
        found.update((item.key_hash, item.physical_offset) for item in reader)
    wanted: Counter[tuple[int, int]] = Counter()
    for stored in image.in_order:
        for key in (stored.unique_key, *stored.keys):
            wanted[index_key_hash(index_key(stored.topic, key)), stored.physical_offset] += 1
    missing, strange = wanted - found, found - wanted
    if missing or strange:
        faults.append(
            f"index files: {missing.total()} items missing, {strange.total()} that stand for "
            f"nothing in the log; first at log offset "
            f"{min(offset for _, offset in (*missing, *strange))}"
        )
    return faults


def _tags_code(stored: Stored) -> int:
    return dispatch_tags_code(stored.topic, stored.tag or None, None, stored.store_timestamp_ms)
