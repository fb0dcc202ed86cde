"""An etcd of one member on this machine; Debian's `etcd-server` has the program."""

import subprocess
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from stratamq_bench.ports import free_port

_COUNTED = ('grpc_method="Range"', 'grpc_method="Txn"')


class Etcd:
    """Over a directory of its own below `directory`. `port`: where its clients connect. `tls`:
    etcd's options for it; without them clients come in clear."""

    def __init__(self, directory: Path, tls: Sequence[str] = ()) -> None:
        scheme = "https" if tls else "http"
        self.port, peers = free_port(), free_port()
        self._process = subprocess.Popen(
            [
                "etcd",
                f"--data-dir={directory / 'etcd'}",
                f"--listen-client-urls={scheme}://127.0.0.1:{self.port}",
                f"--advertise-client-urls={scheme}://127.0.0.1:{self.port}",
                f"--listen-peer-urls=http://127.0.0.1:{peers}",
                f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}",
                f"--initial-cluster=default=http://127.0.0.1:{peers}",
                *tls,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def requests(self) -> float:
        """That it has answered."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(
            float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith("grpc_server_handled_total") and any(one in line for one in _COUNTED)
        )

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
