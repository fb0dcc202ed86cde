"""The log service on a disk that stands still: `python standing_disk.py PATH --data ROOT …`.

The first write to the file PATH of the store says "standing" on standard output and goes on with a
line on standard input. Everything else is the service as it is.
"""

import sys

from stratamq_commitlog.__main__ import main

from stratamq.files.real import RealFile
from stratamq.runtime.server import run_service

PATH = sys.argv.pop(1)
_write = RealFile.write
_stood = []


def write(file: RealFile, position: int, data: bytes | bytearray | memoryview) -> None:
    if file.path == PATH and not _stood:
        _stood.append(True)
        print("standing", flush=True)
        sys.stdin.readline()
    _write(file, position, data)


RealFile.write = write  # type: ignore[method-assign]
run_service(main)
