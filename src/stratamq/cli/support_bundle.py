"""`stratamq support-bundle`: one archive with what remote support needs.

    README.txt            what is in it
    versions.json         of StrataMQ, Python, its packages, the machine's kernel
    status.json           what `stratamq status` shows
    machine.txt           disks, memory; of each service its command line, limits and memory
    metrics/SERVICE.txt   as a scraper gets them
    state/…               small state files of the services
    store.tsv             every file of the store: size, time, path
    logs/SERVICE.log      the newest lines, up to LOG_BYTES of each service

No message's body or properties, no token, no key. Names of topics and groups, addresses and paths
are in it. A service that does not answer is noted, and the others are asked all the same.
"""

import http.client
import io
import json
import os
import platform
import re
import shutil
import ssl
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Annotated

import typer

from stratamq.cli.logs import log_files
from stratamq.cli.options import DEFAULT, LocalDataOption
from stratamq.cli.status import describe
from stratamq.client import Client
from stratamq.errors import InvalidRequestError, NotFoundError, StrataError
from stratamq.files.clock import SystemClock
from stratamq.formats.store_paths import LOGS_DIRECTORY, OWN_DIRECTORY
from stratamq.rpc import discovery
from stratamq.rpc.address import is_local, split_address
from stratamq.rpc.credentials import TlsFiles, credentials_of
from stratamq.rpc.endpoints import Endpoints
from stratamq.rpc.permission_file import AUTHORIZATION, BEARER
from stratamq.rpc.rooms import ESSENTIAL, SERVICES

LOG_BYTES = 4 << 20
STATE_BYTES = 1 << 20
METRICS_BYTES = 16 << 20
MAX_FILES = 200_000
ANSWER_S = 3.0
REMOVED = "[removed]"

_NAMES = (
    r"(?:token|password|passwd|secret|access_?key|account_?key|access_?signature|credential|"
    r"(?<![a-z])(?:sig|sas)(?![a-z])|signature)[\w-]*"
)
_SECRETS = re.compile(
    # `password = x`, `"token": "x"`, `--secret x`, `bearer x`
    rf"(?i)({_NAMES}[\"']?\s*[=:]\s*|--[\w.-]*{_NAMES}\s+(?!-)|bearer\s+|basic\s+(?=\S{{8}}))"
    r"(?:\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s\"'&}]+)"
)
_URLS = re.compile(r"(://[^/\s:@]*:)[^/\s\"']+(?=@)")
_KEYS = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.S)


@dataclass(frozen=True, slots=True)
class BundleFile:
    """A file of the archive, and how its text is made."""

    name: str
    what: str
    text: Callable[[], str]


def register(app: typer.Typer) -> None:
    app.command("support-bundle")(support_bundle)


def support_bundle(
    data: LocalDataOption = DEFAULT,
    to: Annotated[
        Path | None,
        typer.Option(help="Write the archive here; the default is stratamq-support-TIME.tar.gz."),
    ] = None,
    list_only: Annotated[
        bool, typer.Option("--list", help="List the contents without writing the archive.")
    ] = False,
    show: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Print this file as it would be archived, and exit."),
    ] = None,
) -> None:
    """Write an archive for support: versions, states, metrics, logs and the list of files.

    It has no bodies, properties, tokens or keys, but names of topics and groups, addresses and
    paths: review it first (--list, --show NAME).
    """
    if not data.is_dir():
        raise NotFoundError(f"there is no store directory {data}: name one with --data")
    parts = list(parts_of(data))
    if list_only:
        for part in parts:
            print(f"{part.name:32} {part.what}")
        return
    if show is not None:
        chosen = [part for part in parts if part.name == show]
        if not chosen:
            raise NotFoundError(f"the archive has no file {show}: see --list")
        sys.stdout.write(written(chosen[0]))
        return
    path = to or Path(f"stratamq-support-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz")
    if path.exists():
        raise InvalidRequestError(f"{path} already exists: name another with --to")
    _write(path, parts)
    print(f"{path}: {len(parts)} files, {path.stat().st_size:,} bytes. Read it before you send it.")


def parts_of(data: Path) -> Iterator[BundleFile]:
    """In the order of the archive."""
    own = data / OWN_DIRECTORY
    found = {room: discovery.read(data, room) for room in SERVICES}
    running = {room: one for room, one in found.items() if one is not None}
    parts = [
        BundleFile("versions.json", "versions of StrataMQ, Python, packages, kernel", _versions),
        BundleFile("status.json", "what `stratamq status` shows", lambda: _status(data)),
        BundleFile(
            "machine.txt",
            "disks, memory, and each service's command line, limits and memory",
            lambda: _machine(data, {room: one.pid for room, one in running.items()}),
        ),
    ]
    parts += [
        BundleFile(f"metrics/{room}.txt", "as a scraper gets them", partial(_metrics, one.metrics))
        for room, one in running.items()
        if one.metrics
    ]
    parts += [
        BundleFile(f"state/{path.name}", "a service's state file", partial(_text, path))
        for path in sorted(own.glob("*.json"))
        if path.stat().st_size <= STATE_BYTES
    ]
    parts.append(
        BundleFile("store.tsv", "the store's files: bytes, time, path", lambda: _files_of(data))
    )
    parts += [
        BundleFile(
            f"logs/{room}.log",
            f"its newest lines, {LOG_BYTES >> 20} MiB at most",
            partial(_tail, files),
        )
        for room, files in log_files(data / LOGS_DIRECTORY).items()
    ]
    contents = "".join(f"{part.name:32} {part.what}\n" for part in parts)
    yield BundleFile("README.txt", "this list", lambda: f"{__doc__}\n{contents}")
    yield from parts


def written(part: BundleFile) -> str:
    """The part's text without secrets; why it could not be had, in its place."""
    try:
        text = part.text()
    except (OSError, ValueError, StrataError, http.client.HTTPException) as error:
        text = f"not available: {type(error).__name__}: {error}\n"
    return without_secrets(text)


def without_secrets(text: str) -> str:
    """Passwords in URLs, keys in PEM, and what is set to a name that says it is secret."""
    return _SECRETS.sub(rf"\1{REMOVED}", _URLS.sub(rf"\1{REMOVED}", _KEYS.sub(REMOVED, text)))


def _write(path: Path, parts: list[BundleFile]) -> None:
    """The whole archive is there, or none."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    folder = path.name.removesuffix(".tar.gz")
    now_ms = SystemClock().wall_ms()
    try:
        made = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(made, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for part in parts:
                data = written(part).encode("utf-8", "replace")
                entry = tarfile.TarInfo(f"{folder}/{part.name}")
                entry.size, entry.mtime, entry.mode = len(data), now_ms // 1_000, 0o600
                archive.addfile(entry, io.BytesIO(data))
        os.link(unfinished, path)
    except FileExistsError as error:
        raise InvalidRequestError(f"{path} already exists: name another with --to") from error
    finally:
        unfinished.unlink(missing_ok=True)


# --- the parts ---


def _versions() -> str:
    packages = {one.metadata["Name"]: one.version for one in distributions()}
    document = {
        "stratamq": version("stratamq"),
        "python": sys.version,
        "platform": platform.platform(),
        "libc": " ".join(platform.libc_ver()),
        "packages": dict(sorted(packages.items())),
    }
    return json.dumps(document, indent=2) + "\n"


def _status(data: Path) -> str:
    rows = []
    where = Endpoints(data)
    with Client(where, timeout_s=ANSWER_S) as client:
        for room in dict.fromkeys((*ESSENTIAL, *where.known())):
            row, notes = describe(room, where, client)
            rows += [row, *notes]
    return "".join(json.dumps(row, default=str) + "\n" for row in rows)


def _machine(data: Path, processes: dict[str, int]) -> str:
    usage = shutil.disk_usage(data)
    lines = [
        f"processors {os.cpu_count()}",
        f"disk of {data}: total {usage.total} used {usage.used} free {usage.free}",
        "",
        _text(Path("/proc/meminfo")),
        _text(Path("/proc/mounts")),
    ]
    for room, pid in processes.items():
        lines.append(f"--- {room}, process {pid}")
        for name in ("cmdline", "status", "limits", "io"):
            try:
                text = _text(Path(f"/proc/{pid}/{name}")).replace("\0", " ")
            except OSError as error:
                text = f"{name}: {error.strerror}"
            lines.append(text.rstrip())
    return "\n".join(lines) + "\n"


def _metrics(address: str) -> str:
    credentials = credentials_of()
    host, port = split_address(address)
    if credentials.tls is None:
        connection = http.client.HTTPConnection(host, port, timeout=ANSWER_S)
    else:
        connection = http.client.HTTPSConnection(
            host, port, timeout=ANSWER_S, context=_context(credentials.tls)
        )
    shown = credentials.token and (credentials.tls is not None or is_local(address))
    headers = {AUTHORIZATION: f"{BEARER}{credentials.token}"} if shown else {}
    try:
        connection.request("GET", "/metrics", headers=headers)
        response = connection.getresponse()
        text = response.read(METRICS_BYTES).decode("utf-8", "replace")
    finally:
        connection.close()
    return text if response.status == 200 else f"{response.status} {response.reason}\n"


def _context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=files.ca)
    if files.certificate is not None:
        context.load_cert_chain(files.certificate, files.key)
    return context


def _text(path: Path) -> str:
    return path.read_text("utf-8", errors="replace")


def _files_of(data: Path) -> str:
    lines: list[str] = []
    for folder, folders, names in os.walk(data):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            try:
                found = path.lstat()
            except OSError:
                continue  # deleted meanwhile
            lines.append(f"{found.st_size}\t{found.st_mtime:.3f}\t{path.relative_to(data)}")
            if len(lines) == MAX_FILES:
                return "\n".join([*lines, f"and more than these {MAX_FILES}", ""])
    return "\n".join([*lines, ""])


def _tail(files: list[Path]) -> str:
    left, pieces = LOG_BYTES, []
    for path in reversed(files):
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - left))
            pieces.append(file.read(left).decode("utf-8", "replace"))
        left -= min(size, left)
    return "".join(reversed(pieces))
