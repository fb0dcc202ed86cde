"""S3 servers on this machine, for tests: moto's in Python, and the Versity S3 Gateway in Go.

moto comes with `stratamq[dev]`. `make storage-servers` installs the gateway where Go is; without it
the tests that it judges are skipped.
"""

import itertools
import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from stratamq_bench.ports import free_port

from stratamq.tier.driver.objects import ObjectSettings

ACCESS_KEY, SECRET_KEY = "test-access-key", "test-secret-key"


_bucket_numbers = itertools.count(1)
"""moto's servers in one process have their buckets in common."""


class S3Server:
    """A server under way. `make_bucket` makes one of that name."""

    scheme = "s3"

    def __init__(
        self, endpoint: str, make_bucket: Callable[[str], None], directory: Path | None = None
    ) -> None:
        self.endpoint = endpoint
        self.directory = directory
        """Where the server keeps its buckets, if on disk."""
        self._make_bucket = make_bucket

    def new_bucket(self) -> str:
        name = f"bucket-{next(_bucket_numbers)}"
        self._make_bucket(name)
        return name

    @property
    def environment(self) -> dict[str, str]:
        """For a process that is to find the server and its credentials."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        }

    def settings(self, url: str, **options: str) -> ObjectSettings:
        known = {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET_KEY,
        }
        return ObjectSettings(url, known | options, allow_http=True)


Application: TypeAlias = Callable[[Any, Any], Iterable[bytes]]


@contextmanager
def serving(application: Application) -> Iterator[str]:
    """The endpoint of a server of this process, one request at a time."""
    from moto.moto_server.werkzeug_app import MotoRequestHandler
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    turn = threading.Lock()

    def one_by_one(environment: Any, start_response: Any) -> list[bytes]:
        with turn:
            return list(application(environment, start_response))

    server = make_server(
        "127.0.0.1", 0, one_by_one, threaded=True, request_handler=MotoRequestHandler
    )
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def moto_server(without: Sequence[str] = (), seen: list[str] | None = None) -> Iterator[S3Server]:
    """moto, which does not see the request headers `without`; `seen` receives the methods.

    A request at S3 is atomic. moto's are not when they meet: they are served one at a time.
    """
    from moto.server import DomainDispatcherApplication, create_backend_app

    moto = DomainDispatcherApplication(create_backend_app)

    def application(environment: Any, start_response: Any) -> Iterable[bytes]:
        for header in without:
            environment.pop("HTTP_" + header.upper().replace("-", "_"), None)
        if seen is not None:
            seen.append(environment["REQUEST_METHOD"])
        answer: Iterable[bytes] = moto(environment, start_response)
        return answer

    with serving(application) as endpoint:

        def make_bucket(name: str) -> None:
            request = urllib.request.Request(f"{endpoint}/{name}", method="PUT")
            urllib.request.urlopen(request).close()

        yield S3Server(endpoint, make_bucket)


def versitygw() -> str | None:
    """The gateway's program, if it is installed."""
    ours = Path(sys.executable).with_name("versitygw")
    return str(ours) if ours.exists() else shutil.which("versitygw")


@contextmanager
def versity_server(program: str, directory: Path) -> Iterator[S3Server]:
    """Its buckets are directories, and objects files of the same names below them."""
    buckets = directory / "buckets"
    buckets.mkdir()
    port = free_port()
    command = [program, "--port", f"127.0.0.1:{port}", "--quiet",
               "posix", str(buckets)]  # fmt: skip
    keys = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, env=os.environ | keys, stdout=log, stderr=log)
    try:
        wait_for_port(process, port)
        yield S3Server(f"http://127.0.0.1:{port}", lambda name: (buckets / name).mkdir(), buckets)
    finally:
        process.terminate()
        process.wait()


def wait_for_port(process: "subprocess.Popen[bytes]", port: int) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server does not listen"
            process_ended(process)


def process_ended(process: "subprocess.Popen[bytes]") -> bool:
    """Whether it ends within a moment."""
    try:
        process.wait(0.02)
    except subprocess.TimeoutExpired:
        return False
    return True
