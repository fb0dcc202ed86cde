"""An etcd of one member on this machine."""

import subprocess
from pathlib import Path

from tests.support.s3_servers import free_port


class Etcd:
    """One member, in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.port, peers = free_port(), free_port()
        self._process = subprocess.Popen(
            [
                "etcd",
                f"--data-dir={directory / 'etcd'}",
                f"--listen-client-urls=http://127.0.0.1:{self.port}",
                f"--advertise-client-urls=http://127.0.0.1:{self.port}",
                f"--listen-peer-urls=http://127.0.0.1:{peers}",
                f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}",
                f"--initial-cluster=default=http://127.0.0.1:{peers}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
