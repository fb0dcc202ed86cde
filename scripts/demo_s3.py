"""The demo's S3 server: the Versity S3 Gateway where it is installed, else moto's."""

import os
import shutil
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

from stratamq_bench.ports import free_port

from stratamq.errors import UnavailableError

ACCESS_KEY, SECRET_KEY = "demo-access-key", "demo-secret-key"
BUCKET = "flights"
ATTEMPTS = 600


class S3Server:
    """Runs from its making to `stop`, with an empty bucket. Its files are below `directory`."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        port = free_port()
        self.endpoint = f"http://127.0.0.1:{port}"
        self.environment = {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT": self.endpoint,
        }
        here = Path(sys.executable).parent
        gateway = shutil.which("versitygw", path=f"{here}{os.pathsep}{os.environ['PATH']}")
        if gateway is not None:
            self.name = "Versity S3 Gateway"
            (directory / "buckets" / BUCKET).mkdir(parents=True)
            address = f"127.0.0.1:{port}"
            command = [gateway, "--port", address, "--quiet", "posix", str(directory / "buckets")]
        else:
            self.name = "moto's server"
            command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        keys = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
        self.log = directory / "s3.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | keys,
                start_new_session=True,
            )
        self._wait(port)
        if gateway is None:
            request = urllib.request.Request(f"{self.endpoint}/{BUCKET}", method="PUT")
            urllib.request.urlopen(request).close()

    def _wait(self, port: int) -> None:
        pause = threading.Event()
        for _ in range(ATTEMPTS):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            except OSError:
                pause.wait(0.05)
            if self._process.poll() is not None:
                break
        self.stop()
        raise UnavailableError(f"the S3 server does not answer: {self.log.read_text()[-500:]}")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()

    def __enter__(self) -> "S3Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
