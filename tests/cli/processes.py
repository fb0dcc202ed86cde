"""`stratamq …` as a process, for tests of whole commands."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from stratamq_torture.processes.services import ANY_VOLUME

from stratamq.client import Client, connect
from stratamq.rpc import discovery
from tests.support.forked import COMMANDS, Forked, run_command

MODULE = "stratamq.cli"
COMMAND = (sys.executable, "-m", MODULE)
READ_AT_START = ("PYTHON", "LC_", "LANG")
"""An interpreter looks at these variables once, when it starts."""
DEADLINE_S = 240
NO_FRONTS = ("gateway.remoting_address=", "gateway.grpc_address=", "console.http_address=")
"""A test that wants one gives it an address: each broker has two processes less to start."""
LONG_TIMEOUTS = ("commitlog.follower_stop_timeout_ms=60000",)
NO_PROFILES = "/nonexistent"
SMALL = ("--set", "commitlog.segment_bytes=1048576", "--set", "index.index_slots=1000",
         "--set", "index.index_items=4000")  # fmt: skip


def environment() -> dict[str, str]:
    """What other programs have filled of the volume decides nothing, and a busy machine is slow."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STRATAMQ_")}
    settings = (*ANY_VOLUME, *LONG_TIMEOUTS, *NO_FRONTS)
    given = dict(setting.split("=") for setting in settings)
    variables = {f"STRATAMQ_{name.replace('.', '_').upper()}": given[name] for name in given}
    return kept | variables | {"COLUMNS": "200", "XDG_CONFIG_HOME": NO_PROFILES}


def with_fronts(variables: dict[str, str]) -> dict[str, str]:
    """As a user has it, who sets nothing."""
    without = {one.partition("=")[0].replace(".", "_").upper() for one in NO_FRONTS}
    return {
        name: value
        for name, value in variables.items()
        if name.removeprefix("STRATAMQ_") not in without
    }


def stratamq(
    *arguments: str,
    data: Path | None = None,
    stdin: bytes = b"",
    network: str | None = None,
    **variables: str,
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end, in a network namespace. No traceback may ever be shown."""
    where = [] if data is None else ["--data", str(data)]
    given = [*arguments, *where]
    if any(name.startswith(READ_AT_START) for name in variables):
        assert network is None
        done = subprocess.run(
            [*COMMAND, *given],
            input=stdin,
            capture_output=True,
            env=environment() | variables,
            timeout=DEADLINE_S,
        )
    else:
        done = run_command(MODULE, given, stdin, environment() | variables, DEADLINE_S, network)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done


def lines(*texts: object) -> bytes:
    """Each on a line of its own."""
    return "".join(f"{text}\n" for text in texts).encode()


class Up:
    """`stratamq up` over a directory, in the network namespace `network`. With `fresh` it and its
    services are interpreters of their own, as a user's are."""

    def __init__(
        self, data: Path, *arguments: str, network: str | None = None, fresh: bool = False
    ) -> None:
        self.data = data
        self._output = data.parent / f"{data.name}.out"
        self._begin = self._output.stat().st_size if self._output.exists() else 0
        given = ["up", "--data", str(data), "--port", "0", *arguments]
        self.process: Forked | subprocess.Popen[bytes]
        with self._output.open("ab") as output, open(os.devnull, "rb") as nothing:
            if fresh:
                assert network is None
                self.process = subprocess.Popen(
                    [*COMMAND, *given],
                    stdin=nothing,
                    stdout=output,
                    stderr=output,
                    env=environment(),
                )
            else:
                streams = (nothing.fileno(), output.fileno(), output.fileno())
                self.process = Forked(
                    COMMANDS, MODULE, given, streams, environment(), network=network
                )

    def wait_ready(self) -> "Up":
        """Until it has shown its table."""
        while "ready after" not in self.printed():
            try:
                code = self.process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError(f"`stratamq up` ended with {code}:\n{self.printed()}")
        return self

    def printed(self) -> str:
        return self._output.read_bytes()[self._begin :].decode()

    def client(self) -> Client:
        return connect(self.data, retry_timeout_s=DEADLINE_S)

    def pid(self, room: str) -> int:
        endpoint = discovery.read(self.data, room)
        assert endpoint is not None
        return endpoint.pid

    def kill(self, room: str) -> int:
        """SIGKILL to the room's process; its pid."""
        pid = self.pid(room)
        os.kill(pid, signal.SIGKILL)
        return pid

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def stop(self) -> int:
        """Ctrl-C, and the exit code."""
        self.interrupt()
        return self.process.wait(DEADLINE_S)

    def __enter__(self) -> "Up":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.interrupt()
            try:
                self.process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
