"""A program `stratamq` for shells that costs no imports: what it is asked, a forked process does.

    with ForkedProgram(directory):
        subprocess.run(["bash", "-c", f"PATH={directory}:$PATH; stratamq status --data d | head"])

The process has the program's arguments, environment, directory and streams; signals to the program
do not reach it.
"""

import os
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tests.support.forked import COMMANDS, Forked, next_question

_PROGRAM = """#!{python} -IS
import json, os, socket, sys
question = dict(arguments=sys.argv[1:], environment=dict(os.environ), directory=os.getcwd())
asked = socket.socket(socket.AF_UNIX)
asked.connect({path!r})
text = json.dumps(question).encode() + b"\\n"
asked.sendall(text[socket.send_fds(asked, [text], [0, 1, 2]):])
code = int(asked.makefile().readline())
sys.exit(code if code >= 0 else 128 - code)
"""


class ForkedProgram:
    def __init__(self, directory: Path) -> None:
        path = directory / "asked"
        self._asked = socket.socket(socket.AF_UNIX)
        self._asked.bind(str(path))
        self._asked.listen()
        program = directory / "stratamq"
        program.write_text(_PROGRAM.format(python=sys.executable, path=str(path)))
        program.chmod(0o755)
        self._accepting = threading.Thread(target=self._accept, name="program")

    def _accept(self) -> None:
        """Until the socket is shut."""
        with ThreadPoolExecutor(16) as answering:
            while True:
                try:
                    connection, _ = self._asked.accept()
                except OSError:
                    return
                answering.submit(_answer, connection)

    def __enter__(self) -> "ForkedProgram":
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._asked.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._asked.close()


def _answer(connection: socket.socket) -> None:
    with connection, ExitStack() as open_streams:
        question = next_question(connection)
        if question is None:
            return
        streams = question.pop("streams")
        for stream in streams:
            open_streams.callback(os.close, stream)
        process = Forked(COMMANDS, "stratamq.cli", streams=streams, **question)
        open_streams.close()  # or a pipe would not end with the process
        connection.sendall(b"%d\n" % process.wait())
