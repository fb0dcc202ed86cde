"""Compares the kernel with Python on damaged frames, under GCC's address and undefined-behaviour
sanitizers.

    python kernel/fuzz.py [--seconds 60] [--seed 1]

Buffers are arrays of their exact size, each an allocation of its own, so that a byte beyond one is
reported. A difference or a report ends the program with an exit code that is not 0.
"""

import argparse
import array
import importlib.util
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from stratamq.formats.frame_layout import MAGIC_V1, MAGIC_V2

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernel.build import compile_kernel
from stratamq.client.received import split_frames
from stratamq.errors import StrataError
from stratamq.formats import frame as frames
from stratamq.formats import kernel
from stratamq.formats.batch_frames import BatchEncoder, FrameShape
from stratamq.formats.columns import columns_at
from stratamq.formats.dispatch import displaced_columns
from stratamq.formats.frame_scan import scan_frames
from stratamq.formats.frame_verify import first_damaged
from stratamq.formats.property_crc import fill_property_crc, reserve
from stratamq.table.property_columns import property_columns

SANITIZERS = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
PIECES = [b"TAGS", b"KEYS", b"UNIQ_KEY", b"\x01", b"\x02", b"\x01", b"\x02", b" ", b"a", b"value"]
PIECES += ["é€😀".encode(), b"\xff", b"\xed\xa0\x80", b"\xf0\x9f", b"INNER_MULTI_DISPATCH", b"\0"]
WANTED = frozenset(("properties", "tags", "keys"))


def frame(chance: random.Random) -> bytes:
    properties = b"".join(chance.choices(PIECES, k=chance.randrange(16)))
    sealed = chance.random() < 0.5
    raw = bytearray(
        frames.encode(
            magic=chance.choice([MAGIC_V1, MAGIC_V2]),
            topic=chance.choice([b"orders", b"", b"SCHEDULE_TOPIC_XXXX", b"t" * 100]),
            body=chance.randbytes(chance.randrange(200)),
            properties=reserve(properties) if sealed else properties,
            born_host=bytes(chance.choice([8, 20])),
            store_host=bytes(chance.choice([8, 20])),
        )
    )
    if sealed:
        fill_property_crc(raw)
    return bytes(raw)


def damaged(chance: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice([0, 0, 1, 1, 2, 8])):
        place = chance.randrange(len(changed))
        width = chance.choice([1, 1, 2, 4])
        value = chance.choice([b"\0" * 4, b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0", None])
        changed[place : place + width] = (value or chance.randbytes(4))[:width]
    return bytes(changed[: len(data)])


def work(data: memoryview, starts: np.ndarray, sizes: np.ndarray, sealed_at: int) -> list[object]:
    """What every function gives for these frames, errors as values."""
    raw = np.frombuffer(data, np.uint8)
    found: list[object] = []

    def note(function) -> None:
        try:
            found.append(function())
        except StrataError as error:
            found.append((type(error), error.message))

    note(lambda: [one.tolist() if hasattr(one, "tolist") else one for one in scan_frames(data)])
    note(lambda: first_damaged(data, starts, sizes, sealed_at))
    note(lambda: dispatched(data, sizes))
    note(lambda: encoded(bytes(data), sizes))
    note(lambda: properties(raw, starts, sizes))
    note(lambda: [(one.frame, one._head, one.body) for one in split_frames(data)])
    return found


def encoded(data: bytes, sizes: np.ndarray) -> object:
    """A producer's frames of such bodies and properties."""
    encoder = BatchEncoder(FrameShape(bytes(8), property_checksum=True, producer=len(data)))
    ends = sizes.cumsum().tolist()
    encoder.add("orders", [(data[end - 90 : end], data[end - 9 : end]) for end in ends])
    return encoder.finish()


def dispatched(data: memoryview, sizes: np.ndarray) -> list[object]:
    columns = displaced_columns(data, 0, sizes.astype(np.uint32))
    values = [getattr(columns, name) for name in columns.__slots__]
    return [one.tolist() if hasattr(one, "tolist") else one for one in values]


def properties(raw: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> list[object]:
    found = property_columns(raw, columns_at(raw, starts, sizes), WANTED)
    return [found.properties.to_pylist(), found.tags.to_pylist(), found.keys.to_pylist()]


def fuzz(seconds: float, seed: int, module: Path) -> None:
    spec = importlib.util.spec_from_file_location("stratamq._kernel", module)
    assert spec is not None and spec.loader is not None
    native = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(native)
    chance, end, inputs = random.Random(seed), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        parts = [frame(chance) for _ in range(chance.choice([1, 3, 9, 20]))]
        sizes = np.array([len(part) for part in parts], np.int64)
        starts = sizes.cumsum() - sizes
        data = memoryview(array.array("B", damaged(chance, b"".join(parts))))
        sealed_at = chance.choice([0, 1 << 62, len(data) // 2])
        results = []
        for kernel.NATIVE in (None, native):
            results.append(work(data, starts, sizes, sealed_at))
        if results[0] != results[1]:
            sys.exit(f"seed {seed}, input {inputs}: {bytes(data).hex()}\n{results}")
        inputs += 1
    print(f"{inputs} inputs, no difference and no report (seed {seed})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--module", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.module:
        return fuzz(options.seconds, options.seed, options.module)
    with tempfile.TemporaryDirectory() as directory:
        module = Path(directory) / "_kernel.abi3.so"
        if failure := compile_kernel(module, *SANITIZERS):
            sys.exit(f"the sanitizers need GCC: {failure}")
        library = subprocess.run(
            ["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
        ).stdout.strip()
        command = ["env", f"LD_PRELOAD={library}", "ASAN_OPTIONS=detect_leaks=0"]
        command += ["PYTHONMALLOC=malloc", sys.executable, __file__, "--module", str(module)]
        command += ["--seconds", str(options.seconds), "--seed", str(options.seed)]
        sys.exit(subprocess.run(command, check=False).returncode)


if __name__ == "__main__":
    main()
