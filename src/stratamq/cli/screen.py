"""What `stratamq up` shows while it runs."""

import time
from collections.abc import Collection, Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stratamq.cli.dump_output import WIDTH_WITHOUT_TERMINAL, printable
from stratamq.cli.supervisor import RunningProcess
from stratamq.client import connect_async
from stratamq.errors import StrataError
from stratamq.formats.store_paths import LOGS_DIRECTORY
from stratamq.rpc.rooms import CONSOLE, GATEWAY, REGISTER

LEVEL_STYLES = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "bold red"}


async def address_lines(data: Path, services: Collection[str], timeout_s: float) -> list[str]:
    """Where RocketMQ's own clients and browsers connect."""
    found: list[str] = []
    async with connect_async(data, timeout_s=timeout_s) as client:
        if GATEWAY in services:
            try:
                state = await client.admin.gateway_state()
                found += _addressed("gRPC", state.grpc_address)
                found += _addressed("classic", state.remoting_address)
            except StrataError as error:
                found.append(f"RocketMQ's clients: the gateway does not respond: {error}")
        if CONSOLE in services:
            try:
                found.append(f"in a browser: {(await client.admin.console_state()).url}")
            except StrataError as error:
                found.append(f"in a browser: the console does not respond: {error}")
    return found


def _addressed(protocol: str, address: str) -> list[str]:
    return [f"RocketMQ's clients, {protocol}: {address}"] if address else []


class Screen:
    """Short lines with a time and a room in its colour."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        if not self._console.is_terminal:
            self._console.width = WIDTH_WITHOUT_TERMINAL

    def print(self, text: str) -> None:
        self._console.print(Text(printable(text)))

    def say(self, room: str, text: str) -> None:
        self._line(room, Text(printable(text)))

    def log_line(self, room: str, level: str, text: str) -> None:
        self._line(room, Text(printable(text), style=LEVEL_STYLES.get(level, "dim")))

    def table(self, running: Mapping[str, RunningProcess], data: Path) -> None:
        table = Table(header_style="bold")
        for name in ("service", "state", "address", "metrics", "process"):
            table.add_column(name)
        for service, each in running.items():
            table.add_row(*_cells(each, service), style=REGISTER[service].colour)
        self._console.print(table)
        self.print(f"the services' output is in {data / LOGS_DIRECTORY}")

    def _line(self, room: str, text: Text) -> None:
        line = Text(time.strftime("%H:%M:%S "), style="dim")
        line.append(f"{room:<10} ", style=REGISTER[room].colour if room in REGISTER else "")
        line.append_text(text)
        self._console.print(line)


def _cells(each: RunningProcess, service: str) -> list[str]:
    endpoint = each.endpoints.get(service)
    process = each.process
    return [
        service,
        each.state(service),
        endpoint.address if endpoint else "",
        f"{endpoint.metrics}/metrics" if endpoint and endpoint.metrics else "",
        str(process.pid) if process else "",
    ]
