"""fake-gcs-server, which serves Google Cloud Storage's JSON API, for tests.

`make storage-servers` installs it where Go is; without it the tests that it judges are skipped. It
has reading, listing and deleting of the XML API, which obstore uses. A put goes through a front
here, which asks for the same upload in JSON: its precondition, a generation, is judged by the
server.
"""

import itertools
import json
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from stratamq_bench.ports import free_port

from stratamq.tier.driver.objects import ObjectSettings
from tests.support.s3_servers import serving, wait_for_port

_bucket_numbers = itertools.count(1)
_TO_CLIENT = (
    "content-length", "content-type", "content-range", "etag", "last-modified", "x-goog-generation",
)  # fmt: skip


class GoogleServer:
    """A server under way, asked at `endpoint`."""

    scheme = "gs"

    def __init__(self, endpoint: str, server: str) -> None:
        self.endpoint = endpoint
        self._server = server

    def new_bucket(self) -> str:
        name = f"bucket-{next(_bucket_numbers)}"
        request = urllib.request.Request(
            f"{self._server}/storage/v1/b?project=tests",
            data=json.dumps({"name": name}).encode(),
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request).close()
        return name

    @property
    def account(self) -> str:
        """A service account that names the server, and needs no token."""
        empty = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        return json.dumps({"gcs_base_url": self.endpoint, "disable_oauth": True, **empty})

    @property
    def environment(self) -> dict[str, str]:
        """For a process that is to find the server."""
        return {"GOOGLE_SERVICE_ACCOUNT_KEY": self.account}

    def settings(self, url: str, **options: str) -> ObjectSettings:
        return ObjectSettings(url, {"service_account_key": self.account} | options, allow_http=True)


def fake_gcs() -> str | None:
    """The server's program, if it is installed."""
    ours = Path(sys.executable).with_name("fake-gcs-server")
    return str(ours) if ours.exists() else shutil.which("fake-gcs-server")


@contextmanager
def fake_gcs_server(program: str, directory: Path) -> Iterator[GoogleServer]:
    port = free_port()
    command = [program, "-scheme", "http", "-backend", "memory", "-host", "127.0.0.1",
               "-port", str(port), "-public-host", f"127.0.0.1:{port}",
               "-log-level", "error"]  # fmt: skip
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log)
    server = f"http://127.0.0.1:{port}"
    try:
        wait_for_port(process, port)
        with serving(_front(server)) as endpoint:
            yield GoogleServer(endpoint, server)
    finally:
        process.terminate()
        process.wait()


def _front(server: str) -> Any:
    def application(environment: Any, start_response: Any) -> Iterable[bytes]:
        request = _to_server(server, environment)
        try:
            answer = urllib.request.urlopen(request)
        except urllib.error.HTTPError as refused:
            answer = refused
        with answer:
            body = answer.read()
            headers = [one for one in answer.headers.items() if one[0].lower() in _TO_CLIENT]
            if environment["REQUEST_METHOD"] == "PUT" and answer.status == 200:
                stored = json.loads(body)
                etag, generation = f'"{stored["etag"]}"', stored["generation"]
                headers = [("ETag", etag), ("x-goog-generation", generation)]
                body = b""
            start_response(f"{answer.status} {answer.reason}", headers)
        return [body]

    return application


def _to_server(server: str, environment: Any) -> urllib.request.Request:
    """The request as the server takes it: the same, but for a put."""
    method, target = environment["REQUEST_METHOD"], environment["RAW_URI"]
    headers = {
        name.removeprefix("HTTP_").replace("_", "-").title(): value
        for name, value in environment.items()
        if name.startswith("HTTP_") and name not in ("HTTP_HOST", "HTTP_CONNECTION")
    }
    if method != "PUT":
        return urllib.request.Request(server + target, method=method, headers=headers)
    bucket, _, name = target.partition("?")[0].removeprefix("/").partition("/")
    data = environment["wsgi.input"].read(int(environment["CONTENT_LENGTH"] or 0))
    query = f"uploadType=media&name={quote(unquote(name), safe='')}"
    generation = headers.get("X-Goog-If-Generation-Match")
    if generation is not None:
        query += f"&ifGenerationMatch={generation}"
    return urllib.request.Request(
        f"{server}/upload/storage/v1/b/{unquote(bucket)}/o?{query}",
        method="POST",
        data=data,
        headers={"Content-Type": "application/octet-stream"},
    )
