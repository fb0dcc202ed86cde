"""`stratamq new-log`: a store whose log is lost goes on without its messages."""

import typer

from stratamq.cli.options import DEFAULT, OPERATORS, StoppedDataOption
from stratamq.cli.up import take_lock
from stratamq.errors import StoreRefusedError
from stratamq.files.clock import SystemClock
from stratamq.files.real import RealFiles
from stratamq.formats.store_paths import LOCK_PATH
from stratamq.service.file_modes import use_file_modes
from stratamq.service.installed import installed_rooms
from stratamq.service.room_lock import lock_holder, room_lock_holder
from stratamq.store.lost_log import begin_new_log


def register(app: typer.Typer) -> None:
    app.command("new-log", rich_help_panel=OPERATORS)(new_log)


def new_log(
    data: StoppedDataOption = DEFAULT,
) -> None:
    """Start a new, empty log in a store whose log is lost, without the messages of the old one.

    Run this only if the log is lost for good; if its volume is not mounted, mount it instead. What
    depends on the log (queues, index, offsets of groups, the broker's role in its cluster) is moved
    to stratamq/aside/ in the directory; nothing is deleted. The next start begins as on an empty
    directory. Topics and subscriptions stay.

    Exit codes: 0 it is moved, 3 a broker runs on the directory, or its log exists.
    """
    if not data.is_dir():
        raise StoreRefusedError(f"{data} holds no store")
    use_file_modes()
    lock = take_lock(data)
    try:
        holders = {room: room_lock_holder(data, room) for room in installed_rooms()}
        holders["RocketMQ or log"] = lock_holder(data / LOCK_PATH)
        for room, holder in holders.items():
            if holder is not None:
                raise StoreRefusedError(f"the {room} service runs on {data}: stop the broker first")
        target, moved = begin_new_log(RealFiles(data), SystemClock())
    finally:
        lock.close()
    if moved:
        typer.echo(f"moved to {data / target}: {', '.join(moved)}")
    typer.echo(f"{data} begins a new log at its next start")
