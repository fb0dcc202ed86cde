"""The log service on a disk with a call that blocks: `python stalled_disk.py CALL PATH --data …`.

CALL is `write`, `flush` or `read`. The next such call to the file PATH of the store after a line on
standard input, which is answered with "armed", prints "stalled" on standard output, and returns
after the next line of input, which is answered with "released".
Everything else is the unchanged service. A read blocks in a thread for reads alone: on its event
loop the log reads back what it has just written, for the state that it saves now and then, and no
disk is asked for that.
"""

import sys
import threading
from typing import Any

from stratamq_commitlog.__main__ import main

from stratamq.files.real import RealFile
from stratamq.service.server import run_service

CALL, PATH = sys.argv.pop(1), sys.argv.pop(1)
_call = getattr(RealFile, CALL)
_blocks, _returns = threading.Event(), threading.Event()


def call(file: RealFile, *arguments: Any) -> Any:
    of_cache = CALL == "read" and threading.current_thread() is threading.main_thread()
    if file.path == PATH and not of_cache and _blocks.is_set() and not _returns.is_set():
        print("stalled", flush=True)
        _returns.wait()
    return _call(file, *arguments)


def obey() -> None:
    for event, answer in ((_blocks, "armed"), (_returns, "released")):
        sys.stdin.readline()
        event.set()
        print(answer, flush=True)


threading.Thread(target=obey, daemon=True).start()
setattr(RealFile, CALL, call)
run_service(main)
