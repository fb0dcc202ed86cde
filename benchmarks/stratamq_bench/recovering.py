"""How fast recovery goes, every checksum verified: one way beside another, over one log.

`loop` is the unavoidable work: read a segment in pieces, look at each frame's length and magic
number, compute its body's checksum, and nothing else. `walk` is recovery's walk. `one` and `two`
are recovery itself, by one process or with another that walks segments ahead. The start of the
other process is in it: it imports NumPy, and has walked nothing meanwhile. So that log is as large
as one process walks in some seconds.
"""

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from isal import isal_zlib
from stratamq_commitlog.recovery.inspection import Evidence, inspect
from stratamq_commitlog.recovery.log_walk import SegmentWalk, Strictness, Walked
from stratamq_commitlog.recovery.recovery import recover
from stratamq_commitlog.recovery.recovery_cases import WalkCase as RecoveryCase
from stratamq_commitlog.recovery.walker_pool import WalkerPool

from stratamq.files.real import RealFiles
from stratamq.formats.checkpoint import Checkpoint
from stratamq_bench import child
from stratamq_bench.load import Mismatch
from stratamq_bench.plan import MIB, Plan, alternate
from stratamq_bench.report import Case, Measured, best_of, compared
from stratamq_bench.streaming import fill

SEGMENT_BYTES = 128 * MIB
FRAME_OVERHEAD_BYTES = 180
PIECE_BYTES = 4 << 20
MAGIC = 0xDAA320A7
HEAD = struct.Struct(">iII72xi")  # TOTALSIZE, MAGICCODE, BODYCRC, … BODYLENGTH: IPv4 hosts
BODY_AT = HEAD.size
assert BODY_AT == 88


@dataclass(frozen=True, slots=True)
class Comparison:
    """Work that is measured, and the work that is its floor."""

    work: str
    floor_work: str
    floor: str
    log_bytes: int
    least_messages: int
    rounds: int


COMPARISONS = {
    "walk": Comparison("walk", "loop", "bare loop", 640 * MIB, 4096, rounds=4),
    "two cores": Comparison("two", "one", "one-core walk", 2048 * MIB, 16_384, rounds=3),
}


def recovery(
    place: Path,
    plan: Plan,
    *,
    compare: str = "walk",
    body: int | None = None,
    log_bytes: int | None = None,
    uneven: bool = False,
) -> Case:
    body, compare_with = body or plan.body, COMPARISONS[compare]
    wanted = (log_bytes or compare_with.log_bytes) // (body + FRAME_OVERHEAD_BYTES)
    messages = plan.scaled(wanted, compare_with.least_messages)
    store = fill(place, messages, body, plan.segment_bytes(SEGMENT_BYTES), uneven=uneven)

    def measure(what: str) -> Measured:
        how = {"root": store.root, "messages": store.messages, "what": what}
        return Measured(**child.run("recovering.work", **how))

    floors, found = alternate(
        compare_with.rounds,
        lambda: measure(compare_with.floor_work),
        lambda: measure(compare_with.work),
    )
    more = {"measured": {"log_mb": store.log_bytes / 1e6}, "messages": store.messages}
    return compared(compare_with.floor, floors, found, body, **more)


def work(root: str, messages: int, what: str) -> Measured:
    """The best of three times, children's CPU included. Mismatch."""

    def once() -> None:
        frames = WORK[what](Path(root))
        if frames != messages:
            raise Mismatch(f"{frames} frames were found, {messages} are there")

    return best_of(3, "recovery", messages, once)


def bases(root: Path) -> list[int]:
    return sorted(int(path.name) for path in (root / "commitlog").iterdir())


def loop(root: Path) -> int:
    """Frames that are good, up to the first thing that is none in each segment."""
    crc32, read = isal_zlib.crc32, HEAD.unpack_from
    frames = 0
    for base in bases(root):
        with open(root / "commitlog" / f"{base:020d}", "rb", buffering=0) as file:
            start, ended = 0, False
            while not ended:
                data = os.pread(file.fileno(), PIECE_BYTES, start)
                view, position, end = memoryview(data), 0, len(data) - BODY_AT
                ended = True
                while position <= end:
                    size, magic, crc, body = read(data, position)
                    if magic != MAGIC:
                        break
                    if position + size > len(data):
                        ended = False
                        break
                    at = position + BODY_AT
                    if crc32(view[at : at + body]) & 0x7FFFFFFF != crc:
                        break
                    frames += 1
                    position += size
                else:
                    ended = position == 0
                start += position
    return frames


def walk(root: Path) -> int:
    """Walk a log like recovery without a snapshot, including record checksums and queues."""
    files, found = RealFiles(root), bases(root)
    walked = Walked(found[0], {})
    strict = Strictness(durable=found[0])
    for base in found:
        file = files.open(f"commitlog/{base:020d}")
        segment = SegmentWalk(file, base, walked, strict, base != found[-1])
        while (case := segment.step()) is None:
            pass
        file.close()
        if case is not RecoveryCase.NEXT_SEGMENT and base != found[-1]:
            raise Mismatch(f"the walk ends within segment {base}: {case.name}")
    if walked.queue_jumps:
        raise Mismatch(f"{walked.queue_jumps} queue offsets out of order")
    if sum(walked.queues.values()) != walked.frames:
        raise Mismatch(f"{walked.frames} frames, the queues hold {sum(walked.queues.values())}")
    return walked.frames


def recover_by(root: Path, processes: int) -> int:
    """A whole recovery of a directory without our own state; how many messages its queues hold."""
    files = RealFiles(root)
    walkers = WalkerPool(root, processes)
    walkers.least_bytes = 0
    inspected = inspect(files, 0, None)
    evidence = Evidence(None, False, Checkpoint(0, 0, 0), 0)
    found = recover(files, inspected, evidence, walkers=walkers if processes > 1 else None)
    return sum(found.queues.values())


WORK: dict[str, Callable[[Path], int]] = {
    "loop": loop,
    "walk": walk,
    "one": lambda root: recover_by(root, 1),
    "two": lambda root: recover_by(root, 2),
}
