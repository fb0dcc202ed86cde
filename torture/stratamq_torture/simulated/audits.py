"""Invariants of the files that no consumer would notice at once.

The next program that opens the directory, perhaps RocketMQ, relies on its content: so no file of a
follower may ever hold anything above what the log has flushed, not even in the page cache.
"""

import numpy as np

from stratamq.files.simulated_inode import Inode
from stratamq.files.simulated_tree import Directory
from stratamq.formats.index_columns import item_records
from stratamq.formats.index_layout import index_file_bytes
from stratamq.formats.queue_unit import PRE_BLANK_SIZE
from stratamq.formats.queue_units import decode_units
from stratamq_torture.simulated.model import Violation
from stratamq_torture.simulated.world import World


def check_below_flushed(world: World, flushed: int) -> None:
    """Every unit and every item belongs to a message below `flushed`."""
    tree = world.disk.tree
    for topic, below in _entries(tree.find("consumequeue")):
        for queue_id, files in _entries(below):
            for name, node in _entries(files):
                if isinstance(node, Inode) and _reach(node) > flushed:
                    where = f"consumequeue/{topic}/{queue_id}/{name}"
                    raise Violation("ahead", f"{where} reaches to {_reach(node)}, above {flushed}")
    settings = world.settings.index
    slots, items = settings.index_slots or 0, settings.index_items or 0
    for name, node in _entries(tree.find("index")):
        if isinstance(node, Inode) and node.size == index_file_bytes(slots, items):
            offsets = item_records(bytes(node.cache), slots, 1, items)["physical_offset"]
            if len(offsets) and int(offsets.max()) >= flushed > 0:
                raise Violation("ahead", f"index/{name} holds {offsets.max()}, above {flushed}")


def _entries(node: object) -> list[tuple[str, object]]:
    return sorted(node.entries.items()) if isinstance(node, Directory) else []


def _reach(node: Inode) -> int:
    units = decode_units(bytes(node.cache))
    size = units["size"].astype(np.int64)
    ends = np.where(size == PRE_BLANK_SIZE, 0, units["physical_offset"].astype(np.int64) + size)
    return int(ends.max()) if len(ends) else 0
