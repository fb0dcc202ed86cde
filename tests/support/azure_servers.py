"""Azurite, Microsoft's Azure storage server for a machine of one's own, for tests.

`make storage-servers` installs it where npm is; without it the tests that it judges are skipped.
"""

import base64
import hashlib
import hmac
import itertools
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

from stratamq_bench.ports import free_port

from stratamq.tier.driver.objects import ObjectSettings
from tests.support.s3_servers import wait_for_port

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's own, which its documentation names."""
_VERSION = "2021-08-06"

_bucket_numbers = itertools.count(1)


class AzureServer:
    """A server under way."""

    scheme = "az"

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"

    def new_bucket(self) -> str:
        """A container."""
        name = f"container-{next(_bucket_numbers)}"
        date = formatdate(usegmt=True)
        signed = "\n".join(
            [
                "PUT",
                *[""] * 11,
                f"x-ms-date:{date}",
                f"x-ms-version:{_VERSION}",
                f"/{ACCOUNT}/{ACCOUNT}/{name}",
                "restype:container",
            ]
        )
        digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
        headers = {
            "x-ms-date": date,
            "x-ms-version": _VERSION,
            "Content-Length": "0",
            "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
        }
        url = f"{self.endpoint}/{name}?restype=container"
        request = urllib.request.Request(url, method="PUT", headers=headers)
        urllib.request.urlopen(request).close()
        return name

    @property
    def environment(self) -> dict[str, str]:
        """For a process that is to find the server and its credentials."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": self.endpoint,
        }

    def settings(self, url: str, **options: str) -> ObjectSettings:
        known = {"account_name": ACCOUNT, "account_key": KEY, "endpoint": self.endpoint}
        return ObjectSettings(url, known | options, allow_http=True)


def azurite() -> str | None:
    """The server's program, if it is installed."""
    ours = Path(sys.prefix) / "azurite" / "node_modules" / ".bin" / "azurite-blob"
    return str(ours) if ours.exists() else None


@contextmanager
def azurite_server(program: str, directory: Path) -> Iterator[AzureServer]:
    port = free_port()
    command = [program, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence",
               "--skipApiVersionCheck", "--disableTelemetry", "--silent"]  # fmt: skip
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log)
    try:
        wait_for_port(process, port)
        yield AzureServer(port)
    finally:
        process.terminate()
        process.wait()
