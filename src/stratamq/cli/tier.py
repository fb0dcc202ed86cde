"""`stratamq tier`: messages in cheap storage."""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stratamq.cli.dump_output import Output, Printer
from stratamq.cli.dump_rows import Row
from stratamq.cli.options import OPERATORS, OutputOption
from stratamq.cli.tier_contents import gc, status
from stratamq.cli.tier_mount import mount
from stratamq.cli.tier_options import (
    BrokerNameOption,
    ClusterOption,
    TargetArgument,
    require_there,
)
from stratamq.cli.tier_restore import restore
from stratamq.errors import CorruptionError, InvalidRequestError, NotFoundError
from stratamq.files.clock import SystemClock
from stratamq.files.real import RealFiles
from stratamq.formats.json_files import parse_json_object
from stratamq.formats.tier_index import DEFAULT_ITEMS, DEFAULT_SLOTS
from stratamq.formats.tier_metadata import METADATA_NAME
from stratamq.service.file_modes import use_file_modes

if TYPE_CHECKING:
    from stratamq.cli.tier_rows import TierDump
    from stratamq.tier.reading.rocketmq import OpenedTier
    from stratamq.tier.reading.verify import Verified
    from stratamq.tier.reading.verify_index import VerifiedIndex

TierDirectory = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        help="Directory with `tier/` and `local/`, or a tier's own directory with --local.",
    ),
]
TargetOption = Annotated[
    str,
    typer.Option("--to", metavar="TIER", help="Directory, or s3://BUCKET/PREFIX, gs://, az://."),
]
VERIFY_COLUMNS = ("topic", "queueId", "minOffset", "maxOffset", "messages", "bytes", "lost",
                  "faults")  # fmt: skip
QUEUE_COLUMNS = ("topic", "queueId", "minOffset", "commitOffset", "commitLogCommit",
                 "minStoreTime", "maxStoreTime")  # fmt: skip
INDEX_COLUMNS = ("kind", "begin", "end", "state", "items", "base", "size")


def register(app: typer.Typer) -> None:
    tier = typer.Typer(
        name="tier",
        help="Manage the tiered store: messages that moved to cheap storage.",
        no_args_is_help=True,
    )
    tier.callback()(_group)
    tier.command("backfill")(backfill)
    tier.command("verify")(verify)
    tier.command("status")(status)
    tier.command("gc")(gc)
    tier.command("restore")(restore)
    tier.command("mount")(mount)
    tier.command("dump")(dump)
    app.add_typer(tier, rich_help_panel=OPERATORS)


def _group() -> None:
    """Manage the tiered store: messages that moved to cheap storage."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a reader has to know beside the files."""

    cluster: str
    broker: str
    slots: int
    items: int


def dump(
    directory: TierDirectory,
    local: Annotated[
        Path | None,
        typer.Option(help="Store directory of the broker (`config/`, `tiered_index_file/`)."),
    ] = None,
    tier: Annotated[
        Path | None, typer.Option(help="Directory of the tier (tieredStoreFilePath).")
    ] = None,
    cluster: Annotated[str | None, typer.Option(help="Cluster name (brokerClusterName).")] = None,
    broker: Annotated[str | None, typer.Option(help="Broker name (brokerName).")] = None,
    slots: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of hash slots in an index file (tieredStoreIndexFileMaxHashSlotNum).",
        ),
    ] = None,
    items: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of items in an index file (tieredStoreIndexFileMaxIndexNum)."
        ),
    ] = None,
    keys: Annotated[
        bool, typer.Option("--keys/--no-keys", help="Also check what each key of a message finds.")
    ] = True,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show everything in a tier with RocketMQ's layout; changes nothing.

    As JSON: every message, every answer around the ends of each queue, times, index files and what
    each key finds. Names and sizes come from the options, else from `scenario.json` in DIR.
    """
    scenario = _scenario(directory, cluster, broker, slots, items)
    root = tier or (directory / "tier" if (directory / "tier").is_dir() else directory)
    opened, found = _open(root, local or directory / "local", scenario)
    if output is Output.JSON:
        _print({"kind": "store", "broker": scenario.broker, "cluster": scenario.cluster,
                "slots": scenario.slots, "items": scenario.items})  # fmt: skip
        for row in found.lines(keys):
            _print(row)
    else:
        for columns, rows in ((QUEUE_COLUMNS, found.queues()), (INDEX_COLUMNS, found.indexes())):
            printer = Printer(output, columns)
            for row in rows:
                printer.row(row)
            printer.flush()
    if opened.damaged:
        raise CorruptionError("damaged, and left out: " + "; ".join(opened.damaged))


def backfill(
    store: Annotated[
        Path,
        typer.Argument(
            metavar="STORE", help="Store directory, RocketMQ's or StrataMQ's; may be in use."
        ),
    ],
    to: TargetOption,
    cluster: ClusterOption = "DefaultCluster",
    broker: BrokerNameOption = "broker-a",
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="Copy only this topic; repeatable.")
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="For a tier in a directory: write RocketMQ's tier metadata below this "
            "store directory.",
        ),
    ] = None,
) -> None:
    """Copy the messages of a log into a tier.

    What the tier already has is skipped: run an interrupted backfill again, and it adds what is
    missing. The store is not changed.
    """
    from stratamq.cli.tier_backfill import backfill as copy
    from stratamq.tier.containers.place import broker_folder
    from stratamq.tier.driver.opening import open_storage
    from stratamq.tier.writing.backfill import check_copy
    from stratamq.tier.writing.export import MetadataExport

    check_copy(store, to, cluster, broker, export)
    use_file_modes()
    with open_storage(to, for_writing=broker_folder(cluster, broker)) as storage:
        added, manifests = copy(store, storage, cluster, broker, topic or [])
    if export is not None:
        export.mkdir(parents=True, exist_ok=True)
        MetadataExport(RealFiles(export)).write(manifests, SystemClock().wall_ms())
    print(f"{added} messages added, in {len(manifests)} queues", file=sys.stderr)


def verify(
    target: TargetArgument,
    cluster: ClusterOption = "DefaultCluster",
    broker: BrokerNameOption = "broker-a",
    output: OutputOption = Output.TABLE,
) -> None:
    """Verify every record, unit and index item of a broker's tier against its manifests.

    Exit code 1 if there is a fault.
    """
    from stratamq.tier.driver.opening import open_storage
    from stratamq.tier.driver.storage import run
    from stratamq.tier.reading.key_index import index_place
    from stratamq.tier.reading.queue_list import load_queue_list, missing_queues
    from stratamq.tier.reading.verify import queues_of, verify_queue
    from stratamq.tier.reading.verify_index import verify_index

    require_there(target)
    printer = Printer(output, VERIFY_COLUMNS)
    faults = 0
    with open_storage(target) as storage:
        listed = run(load_queue_list(cluster, broker), storage)
        places = run(queues_of(cluster, broker), storage)
        gone = missing_queues(cluster, broker, listed, places)
        if not places and not gone:
            raise NotFoundError(f"{target} has nothing of the broker {broker} of {cluster}")
        for place in (*places, *gone):
            is_listed = (place.topic, place.queue_id) in listed
            found = run(verify_queue(place, listed=is_listed), storage)
            faults += len(found.faults)
            printer.row(_queue_row(found))
        index = run(verify_index(cluster, broker), storage)
    if index is not None:
        printer.row(_index_row(index))
    printer.flush()
    if faults:
        raise CorruptionError(
            f"{faults} faults: restore the queues' objects from the bucket's versions or a backup"
        )
    if index is not None and index.faults:
        raise CorruptionError(
            f"{len(index.faults)} faults in the key index: delete its manifest, "
            f"{index_place(cluster, broker).manifest}, and restart the broker's tier service, "
            "which makes it again"
        )


def _queue_row(found: "Verified") -> Row:
    return {
        "kind": "verified",
        "topic": found.place.topic,
        "queueId": found.place.queue_id,
        "minOffset": found.first,
        "maxOffset": found.end,
        "messages": found.messages,
        "bytes": found.bytes,
        "lost": found.lost,
        "faults": "; ".join(found.faults),
        "ok": not found.faults,
    }


def _index_row(index: "VerifiedIndex") -> Row:
    return {
        "kind": "verifiedIndex",
        "topic": "(key index)",
        "messages": index.keys,
        "files": index.files,
        "items": index.items,
        "stale": index.stale,
        "faults": "; ".join(index.faults),
        "ok": not index.faults,
    }


def _open(root: Path, store: Path, scenario: Scenario) -> tuple["OpenedTier", "TierDump"]:
    # Not at the top: `stratamq --help` should not wait for NumPy.
    from stratamq.cli.tier_rows import TierDump
    from stratamq.tier.driver.posix import PosixStorage
    from stratamq.tier.driver.storage import run
    from stratamq.tier.reading.rocketmq import open_tier, read_metadata

    if not root.is_dir():
        raise NotFoundError(f"{root} is no directory: give the tier's with --tier")
    main, backup = (_content(store / "config" / name) for name in _METADATA_NAMES)
    if main is None and backup is None:
        raise NotFoundError(
            f"no {METADATA_NAME} in {store / 'config'}: give the broker's store directory with "
            "--local"
        )
    storage = PosixStorage(RealFiles(root), time.sleep)
    opened = run(
        open_tier(
            read_metadata(main, backup),
            scenario.cluster,
            scenario.broker,
            _local_index(store / "tiered_index_file"),
            scenario.slots,
        ),
        storage,
    )
    return opened, TierDump(opened, storage, scenario.broker)


_METADATA_NAMES = (METADATA_NAME, f"{METADATA_NAME}.bak")


def _print(row: dict[str, Any]) -> None:
    print(json.dumps(row, sort_keys=True, separators=(",", ":")))


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _local_index(directory: Path) -> dict[int, bytes]:
    if not directory.is_dir():
        return {}
    return {
        int(path.name): path.read_bytes()
        for path in directory.iterdir()
        if path.is_file() and path.name.isascii() and path.name.isdigit()
    }


def _scenario(
    directory: Path, cluster: str | None, broker: str | None, slots: int | None, items: int | None
) -> Scenario:
    raw = _content(directory / "scenario.json")
    document = parse_json_object(raw) if raw else {}
    name = broker if broker is not None else document.get("broker")
    if name is None:
        raise InvalidRequestError(
            f"which broker's tier? {directory} has no scenario.json: give --broker NAME, and "
            "--cluster NAME unless it is DefaultCluster"
        )
    return Scenario(
        str(cluster or document.get("cluster", "DefaultCluster")),
        str(name),
        int(slots or document.get("slots", DEFAULT_SLOTS)),
        int(items or document.get("items", DEFAULT_ITEMS)),
    )
