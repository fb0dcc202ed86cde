"""`stratamq up`: a whole broker over one directory, in its processes, until Ctrl-C."""

import asyncio
import enum
import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from stratamq.cli.background import run_in_background
from stratamq.cli.dump_output import printable
from stratamq.cli.earlier import wait_for_earlier
from stratamq.cli.exit_codes import EXIT_USAGE, code_of
from stratamq.cli.janitor import retention_sentences
from stratamq.cli.listening import (
    LARGEST_PORT,
    left_out,
    listening_settings,
    open_to_others,
    places,
    refuse_taken,
    store_host_settings,
)
from stratamq.cli.log_lines import LogWatch
from stratamq.cli.options import ConfigOption, SettingsOption
from stratamq.cli.profiles import DATA_VARIABLE, DEFAULT_DATA
from stratamq.cli.schedule import held_notice
from stratamq.cli.screen import Screen, address_lines
from stratamq.cli.selection import is_mount, left_out_notices, selected_services
from stratamq.cli.supervisor import LOG_ROOM, Room, Supervisor, service_command
from stratamq.client import connect_async
from stratamq.errors import ConfigurationError, StoreRefusedError, StrataError
from stratamq.files.clock import SystemClock
from stratamq.files.port import Lock
from stratamq.files.real import RealFiles
from stratamq.formats.store_paths import (
    COMMIT_LOG,
    INDEX,
    LOGS_DIRECTORY,
    LOST_AND_FOUND,
    MOUNT_PATH,
    UP_LOCK_PATH,
)
from stratamq.rpc.address import split_address
from stratamq.rpc.rooms import (
    AGENT,
    DELIVERY,
    JANITOR,
    SERVICES,
    TIER,
    processes,
)
from stratamq.service.arguments import is_given
from stratamq.service.file_modes import use_file_modes
from stratamq.service.installed import check_settings
from stratamq.service.notify import READY, STOPPING, notify
from stratamq.service.server import EXIT_PORT_TAKEN, EXIT_STORE_REFUSED
from stratamq.service.store_root import store_files

LAPTOP_SIZES = {
    ("commitlog", "segment_bytes"): 128 << 20,
    ("index", "index_slots"): 500_000,
    ("index", "index_items"): 2_000_000,
}
REFUSED = (EXIT_USAGE, EXIT_STORE_REFUSED, EXIT_PORT_TAKEN)
LOOK_AT_LOGS_S = 0.25
ANSWER_S = 10.0
READY_NOTICE_S = 20.0
"""A start that takes longer is recovery, and is reported as such."""


class BrokerRole(enum.Enum):
    """What `--role` takes."""

    ASYNC_MASTER = "async-master"
    SYNC_MASTER = "sync-master"
    SLAVE = "slave"


def register(app: typer.Typer) -> None:
    app.command("up")(up)


def up(
    data: Annotated[
        Path,
        typer.Option(
            "--data", "-d", envvar=DATA_VARIABLE, help="Store directory; created if missing."
        ),
    ] = Path(DEFAULT_DATA),
    config: ConfigOption = None,
    settings: SettingsOption = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=0,
            max=LARGEST_PORT,
            help="Listen on this port for clients (the log service); the default is 10911. "
            "The other services take the following ports, slaves connect to PORT+8; 0 "
            "picks free ports. RocketMQ's clients connect to 9876 and 8081, with PORT to PORT+10 "
            "and PORT+11.",
        ),
    ] = None,
    bind: Annotated[
        str | None,
        typer.Option(
            metavar="HOST",
            help="Listen on this host; the default is 127.0.0.1, this machine only. 0.0.0.0"
            " accepts every machine and needs access.file.",
        ),
    ] = None,
    role: Annotated[
        BrokerRole | None,
        typer.Option(help="Set the broker's role; the default is commitlog.role."),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="For a slave: replication address of its master (see `stratamq replica "
            "status` there).",
        ),
    ] = None,
    member: Annotated[
        list[str] | None,
        typer.Option(
            "--member",
            metavar="NAME=HOST:PORT",
            help="Member of the broker's cluster and its replication address. Repeat for "
            "every member, this one included, in the same order on all.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Set this broker's name among the members; the default is the one with its"
            " address.",
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="For a master: take messages even if no other member answers."
        ),
    ] = False,
    no_gateway: Annotated[
        bool,
        typer.Option(
            "--no-gateway", help="Leave out the gateway: RocketMQ's own clients cannot connect."
        ),
    ] = False,
    no_remoting: Annotated[
        bool,
        typer.Option(
            "--no-remoting",
            help="Leave out RocketMQ's classic protocol; its gRPC clients can connect.",
        ),
    ] = False,
    no_console: Annotated[
        bool, typer.Option("--no-console", help="Leave out the console, the pages in a browser.")
    ] = False,
    daemon: Annotated[
        bool,
        typer.Option(
            "--daemon",
            help="Return once the broker is ready. It runs until `stratamq down` and logs "
            "to stratamq/log/up.log.",
        ),
    ] = False,
) -> None:
    """Start the services of a broker over one directory, supervise them, and stop them on Ctrl-C.

    In an empty directory log segments have 128 MiB and index files 500 000 slots; an existing one,
    RocketMQ's too, keeps the sizes of its files. Nothing is deleted from a store that another
    program made until `stratamq janitor enable`; `up` shows the retention rule and what it would
    delete. The services' output goes to stratamq/log/ in the directory. A service that dies is
    restarted. The first Ctrl-C stops everything in order, the second kills. If `up` itself is
    killed, its services stop in order; a new `up` waits for them.

    RocketMQ's clients connect to 127.0.0.1:9876 (classic protocol: name server and broker) and
    127.0.0.1:8081 (gRPC), StrataMQ's own to the log service, 127.0.0.1:10911; the other services
    listen on the ports after it (`--port`, `--bind`). The console, pages in a browser, is at
    http://127.0.0.1:10980. Ports in use are reported before anything starts.

    With `--role slave --master HOST:PORT` the broker is a replica: it takes no messages, copies
    every byte of its master's log, and serves pulls, queries and searches. Segments must be as
    large as the master's (--set commitlog.segment_bytes=…). `--role` is only the first role:
    `stratamq replica promote` and `demote` change it permanently.

    With `--set tier.target=DIRECTORY` or a URL (`s3://…`) messages are also copied to a tier, and
    the janitor deletes only what the tier has.

    With members and `--set agent.store=URL` an agent replaces a lost master (`stratamq cluster`).

    Exit codes: 0 stopped in order, 1 a service failed or had to be killed, 2 wrong settings, 3 the
    store was refused.
    """
    overrides = [
        *replication(role, master, member or (), name, force),
        *left_out(gateway=no_gateway, remoting=no_remoting, console=no_console),
        *(settings or ()),
    ]
    rooms = selected_services(config, overrides)
    if AGENT in rooms and not is_given("ha", "members", config, overrides=overrides):
        raise ConfigurationError(
            [
                "agent.store is set, and no members are: name them with --member, this broker "
                "included"
            ]
        )
    listening = listening_settings(port, bind, rooms, config, overrides)
    overrides = [*listening, *overrides]
    overrides = [*store_host_settings(config, overrides), *overrides]
    check_settings(rooms, data, config, overrides)
    if (data / MOUNT_PATH).exists() and not is_mount(config, overrides):
        raise StoreRefusedError(
            f"{data} mounts a tier: `stratamq tier mount TIER {data}` starts it"
        )
    if data.exists() and not data.is_dir():
        raise ConfigurationError([f"{data} is no directory: --data names the store's"])
    store_files(data)
    where = places(rooms, config, overrides)
    warning = filter(None, [open_to_others(where, config, overrides)])
    is_new = not data.exists()
    use_file_modes(config, overrides)
    data.mkdir(parents=True, exist_ok=True)
    screen = Screen()

    def run() -> int:
        lock = take_lock(data)
        try:
            commands = plan(data, config, overrides)
            if lock.previous_text:
                wait_for_earlier(data, rooms, screen.print, SystemClock())
            refuse_taken(where, listening)
            for line in (*left_out_notices(config, overrides), *warning):
                screen.print(line)
            how_to_stop = f"stratamq down --data {data}" if daemon else "Ctrl-C"
            return asyncio.run(_watch(data, commands, screen, how_to_stop))
        finally:
            lock.close()

    try:
        code = run_in_background(data, run) if daemon else run()
    except StrataError as error:
        _leave_nothing(data, code_of(error), is_new=is_new)
        raise
    _leave_nothing(data, code, is_new=is_new)
    if code:
        raise typer.Exit(code)


def _leave_nothing(data: Path, code: int, *, is_new: bool) -> None:
    """Remove the directory of a refused start that made it, unless a log was begun there."""
    if is_new and code in REFUSED and not (data / COMMIT_LOG).exists():
        shutil.rmtree(data)


def plan(data: Path, config: Path | None, overrides: list[str]) -> list[Room]:
    """The command line of every service that is wanted."""
    sizes = []
    if is_fresh(data):
        sizes = [
            f"{section}.{name}={value}"
            for (section, name), value in LAPTOP_SIZES.items()
            if not is_given(section, name, config, overrides=overrides)
        ]
    if is_given("ha", "members", config, overrides=overrides) and not is_given(
        "commitlog", "wait_for_peers", config, overrides=overrides
    ):
        # The log must not begin before its replication service has asked the other members.
        sizes.append("commitlog.wait_for_peers=true")
    rooms = selected_services(config, overrides)
    if TIER in rooms and not is_given(JANITOR, "hold", config, overrides=overrides):
        # What is not in the tier yet is not deleted here.
        sizes.append("janitor.hold=tiered")
    if AGENT in rooms and not is_given("commitlog", "lease", config, overrides=overrides):
        # Another member may be promoted without this one.
        sizes.append("commitlog.lease=true")
    arguments = [] if config is None else ["--config", str(config)]
    for override in (*sizes, *overrides):
        arguments += ["--set", override]
    arguments = ["--data", str(data), *arguments]
    return [
        Room(
            services[0],
            service_command(
                services, arguments, None if services == (LOG_ROOM,) else (data, LOG_ROOM)
            ),
            services[1:],
        )
        for services in processes(rooms)
    ]


def is_fresh(data: Path) -> bool:
    """No file of the store determines yet how large its files are."""
    kept = [data / part for part in (COMMIT_LOG, INDEX) if (data / part).is_dir()]
    return all(entry.name == LOST_AND_FOUND for part in kept for entry in part.iterdir())


def replication(
    role: BrokerRole | None,
    master: str | None,
    members: Sequence[str] = (),
    name: str | None = None,
    force: bool = False,
) -> list[str]:
    """Settings of a master or a slave. ConfigurationError when the options do not fit."""
    settings = [f"ha.members={','.join(members)}"] if members else []
    if name is not None:
        if not members:
            raise ConfigurationError(["--name selects which --member this broker is: name them"])
        settings.append(f"ha.member={name}")
    if force:
        settings.append("ha.force_master=true")
    return [*_role_settings(role, master, bool(members)), *settings]


def _role_settings(role: BrokerRole | None, master: str | None, members: bool) -> list[str]:
    if master is not None and role is not BrokerRole.SLAVE:
        raise ConfigurationError(["--master is for a slave: add --role slave"])
    if role is None:
        return []
    if role is not BrokerRole.SLAVE:
        return [f"commitlog.role={role.value.replace('-', '_').upper()}"]
    settings = ["commitlog.role=SLAVE", "commitlog.broker_id=1"]
    if master is not None:
        split_address(master)
        settings.append(f"ha.master={master}")
    elif not members:
        raise ConfigurationError(["--role slave needs --master HOST:PORT, or --member"])
    return settings


def take_lock(data: Path) -> Lock:
    """Only one `up` at a time. ConfigurationError or StoreRefusedError in one line."""
    try:
        return RealFiles(data).lock(UP_LOCK_PATH, f"{os.getpid()}\n".encode())
    except BlockingIOError as error:
        holder = (data / UP_LOCK_PATH).read_text(encoding="utf-8", errors="replace").strip()
        raise StoreRefusedError(
            f"stratamq up is already running over {data} (process {printable(holder)}): "
            f"see `stratamq status --data {data}`, or stop that one first"
        ) from error
    except PermissionError as error:
        raise ConfigurationError([f"{data} cannot be written: {error.strerror}"]) from error


async def _watch(data: Path, rooms: list[Room], screen: Screen, how_to_stop: str) -> int:
    loop = asyncio.get_running_loop()
    supervisor = Supervisor(data, rooms, SystemClock(), screen.say)
    running = {name: each for each in supervisor.running.values() for name in each.room.services}
    services = sorted(running, key=SERVICES.index)
    logs = LogWatch(
        {name: data / LOGS_DIRECTORY / f"{name}.log" for name in services}, screen.log_line
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _interrupt, supervisor, screen)
    started_ns = SystemClock().monotonic_ns()
    screen.print(f"starting {', '.join(services)} over {data}")
    supervising = asyncio.ensure_future(supervisor.run())
    watching = asyncio.ensure_future(_look_at_logs(logs))
    try:
        ready = await supervisor.wait_ready(READY_NOTICE_S)
        if not ready and not supervisor.stopping:
            names = ", ".join(supervisor.not_ready())
            why = f"`stratamq status --data {data}` says why"
            screen.print(f"not ready yet: {names}; still waiting, {why}")
            ready = await supervisor.wait_ready()
        if ready:
            for line in await address_lines(data, services, ANSWER_S):
                screen.print(line)
            screen.table({name: running[name] for name in services}, data)
            if JANITOR in services:
                await _show_retention(data, screen)
            if DELIVERY in services and (held := await held_notice(data, ANSWER_S)):
                screen.print(held)
            seconds = (SystemClock().monotonic_ns() - started_ns) / 1e9
            logs.look()  # what was logged before comes before
            screen.print(f"ready after {seconds:.1f} s; {how_to_stop} stops everything")
            notify(READY)
        code = await supervising
    finally:
        watching.cancel()
        logs.look()
    screen.print("everything has stopped" if code == 0 else f"stopped with exit code {code}")
    return code


async def _show_retention(data: Path, screen: Screen) -> None:
    """By which rule messages are deleted, and what it takes at once."""
    async with connect_async(data, timeout_s=ANSWER_S) as client:
        try:
            sentences = retention_sentences(await client.admin.retention())
        except StrataError as error:
            sentences = [f"retention: unknown, the janitor does not respond: {error}"]
    for sentence in sentences:
        screen.print(sentence)


def _interrupt(supervisor: Supervisor, screen: Screen) -> None:
    supervisor.request_stop()
    notify(STOPPING)
    screen.print("stopping (once more: kill)")


async def _look_at_logs(logs: LogWatch) -> None:
    while True:
        logs.look()
        await asyncio.sleep(LOOK_AT_LOGS_S)
