"""The processes of the recovery cases: a walk of a whole log, or a bare loop over it.

    python -m stratamq_bench.recover_client --root DIR --messages N --what WHAT [--times 3]

`loop` is the unavoidable work: read a segment in pieces, look at each frame's length and magic
number, compute its body's checksum, and nothing else. `walk` is recovery's walk. `one` and `two`
are recovery itself, by one process or with another that walks segments ahead, its start included.
Prints one JSON object: the seconds and the CPU of the best of so many times.
"""

import argparse
import json
import os
import resource
import struct
import time
from collections.abc import Callable
from pathlib import Path

from isal import isal_zlib
from stratamq_commitlog.recovery.inspection import Evidence, inspect
from stratamq_commitlog.recovery.log_walk import SegmentWalk, Strictness, Walked
from stratamq_commitlog.recovery.recovery import recover
from stratamq_commitlog.recovery.recovery_cases import Case
from stratamq_commitlog.recovery.walker_pool import WalkerPool

from stratamq.files.real import RealFiles
from stratamq.formats.checkpoint import Checkpoint
from stratamq_bench.checks import Mismatch

PIECE_BYTES = 4 << 20
MAGIC = 0xDAA320A7
HEAD = struct.Struct(">iII72xi")  # TOTALSIZE, MAGICCODE, BODYCRC, … BODYLENGTH: IPv4 hosts
BODY_AT = HEAD.size
assert BODY_AT == 88


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
        if case is not Case.NEXT_SEGMENT and base != found[-1]:
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


def cpu_s() -> float:
    """Return the processor time of this process and its ended children."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--root", type=Path, required=True, help="the store directory")
    parser.add_argument("--messages", type=int, required=True, help="how many it holds")
    parser.add_argument("--what", choices=tuple(WORK), required=True)
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    found = []
    for _ in range(options.times):
        wall, cpu = time.perf_counter(), cpu_s()
        frames = WORK[options.what](options.root)
        found.append((time.perf_counter() - wall, cpu_s() - cpu))
        if frames != options.messages:
            raise Mismatch(f"{frames} frames were found, {options.messages} are there")
    seconds, cpu = min(found)
    print(json.dumps({"seconds": seconds, "cpu_s": cpu}))


if __name__ == "__main__":
    main()
