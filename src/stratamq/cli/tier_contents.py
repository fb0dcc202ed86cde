"""`stratamq tier status` and `gc`: what a storage has, and what of it nothing names."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stratamq.cli.dump_output import Output, Printer
from stratamq.cli.dump_rows import Row, fields_of
from stratamq.cli.moments import parse_moment
from stratamq.cli.options import DEFAULT, AddressOption, BrokerTarget, DataOption, OutputOption
from stratamq.cli.tier_options import (
    BrokerNameOption,
    ClusterOption,
    TargetArgument,
    require_there,
)
from stratamq.errors import CorruptionError, InvalidRequestError, NotFoundError
from stratamq.files.clock import SystemClock

if TYPE_CHECKING:
    from stratamq.client.values import TierRequests, TierState
    from stratamq.tier.driver.storage import Storage
    from stratamq.tier.reading.contents import BrokerTotals

STATUS_COLUMNS = ("cluster", "broker", "queues", "messages", "bytes", "lost", "firstTimestamp",
                  "lastTimestamp", "epoch", "objects", "objectBytes", "dropped")  # fmt: skip
GARBAGE_COLUMNS = ("topic", "queueId", "reason", "size", "modifiedTimestamp", "path")
_LEAST_AGE_MS = 3_600_000
"""The storage's clock may differ from ours, and a writer needs some minutes for its commit."""


def status(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[TIER]",
            help="Directory, or s3://BUCKET/PREFIX, gs://, az://; the default is the "
            "running tier service.",
        ),
    ] = None,
    data: DataOption = DEFAULT,
    address: AddressOption = None,
    cluster: Annotated[
        str | None, typer.Option(help="Show only this cluster (brokerClusterName).")
    ] = None,
    broker: Annotated[str | None, typer.Option(help="Show only this broker (brokerName).")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """What each broker has in a tier, by its manifests, and what that takes.

    With TIER it works without a broker, and counts on standard error what it has asked of the
    storage; exit code 1 for a manifest that cannot be read. Without TIER it shows what the broker's
    tier service does: what is uploaded and what waits, requests and their price, its cache.
    """
    if target is None:
        _show_service(data, address, output)
        return
    from stratamq.tier.driver.opening import open_counted
    from stratamq.tier.driver.storage import run
    from stratamq.tier.reading.contents import brokers, totals

    require_there(target)
    printer = Printer(output, STATUS_COLUMNS)
    unreadable: list[str] = []
    opened, counted = open_counted(target)
    with opened as storage:
        found = [
            names
            for names in run(brokers(), storage)
            if cluster in (None, names[0]) and broker in (None, names[1])
        ]
        if not found:
            raise NotFoundError(f"{target} has nothing of that broker")
        for names in found:
            total = run(totals(*names), storage)
            unreadable += total.unreadable
            if total.put_back:
                unreadable.append(
                    f"{total.put_back} messages of {'/'.join(names)} are lost: `stratamq tier "
                    "verify` has their offsets"
                )
            printer.row(_status_row(total))
    printer.flush()
    requests, price = counted.requests(), counted.cost_usd()
    print(f"{requests} requests, {price:.6f} USD", file=sys.stderr)
    if unreadable:
        raise CorruptionError("left out: " + "; ".join(unreadable))


def _show_service(data: Path, address: str | None, output: Output) -> None:
    from stratamq.client import Client

    with Client(BrokerTarget(data, address).endpoints()) as client:
        state = client.admin.tier_state()
    if output is Output.JSON:
        printer = Printer(output, ())
        printer.row({"kind": "tierService", **_facts(state)})
    else:
        printer = Printer(output, ("name", "value"))
        for name, value in _facts(state).items():
            printer.row({"kind": "fact", "name": name, "value": value})
        for one in state.requests:
            printer.row({"kind": "fact", "name": f"requests.{one.kind}", "value": _asked(one)})
    printer.flush()


def _facts(state: "TierState") -> Row:
    names = {"not_writing_reason": "state", "log_confirmed_offset": "confirmedOffset"}
    more = {"requests": state.request_count, "costUsd": round(state.cost_usd, 6)}
    return fields_of(state, names, state=state.not_writing_reason or "writes", **more)


def _asked(one: "TierRequests") -> str:
    errors = f", {one.errors} errors" if one.errors else ""
    return f"{one.count}, {one.size_bytes} bytes, {one.cost_usd:.6f} USD{errors}"


def gc(
    target: TargetArgument,
    cluster: ClusterOption = "DefaultCluster",
    broker: BrokerNameOption = "broker-a",
    older_than: Annotated[
        str,
        typer.Option(
            metavar="AGE", help="Select what was last written at least this long ago: 24h, 7d."
        ),
    ] = "24h",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted without deleting it.")
    ] = False,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="Proceed even where a tier service has written; one that still runs stops "
            "writing until its next start.",
        ),
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete objects of a broker's tier that no manifest names: what crashes and lost races left.

    Never deletes what a manifest names, or a writer may still name: the tier is claimed first. That
    is refused where a tier service has claimed it: stop that one, and give --take-over.
    """
    from stratamq.tier.containers.place import broker_folder
    from stratamq.tier.driver.opening import open_storage

    now_ms = SystemClock().wall_ms()
    before_ms = parse_moment(f"-{older_than}")
    if not dry_run and now_ms - before_ms < _LEAST_AGE_MS:
        raise InvalidRequestError(f"--older-than {older_than}: at least 1h, unless with --dry-run")
    require_there(target)
    printer = Printer(output, GARBAGE_COLUMNS)
    folder = "" if dry_run else broker_folder(cluster, broker)
    with open_storage(target, for_writing=folder) as storage:
        faults = _collect(storage, printer, (cluster, broker), before_ms, dry_run, take_over)
    printer.flush()
    if faults:
        raise CorruptionError("nothing deleted of: " + "; ".join(faults))


def _collect(
    storage: "Storage",
    printer: Printer,
    names: tuple[str, str],
    before_ms: int,
    dry_run: bool,
    take_over: bool,
) -> list[str]:
    """The queues that cannot be looked at, and why."""
    from stratamq.tier.driver.storage import run
    from stratamq.tier.reading.contents import BrokerObjects, brokers
    from stratamq.tier.reading.queue_list import load_queue_list
    from stratamq.tier.writing.collecting import claim_to_collect, collect, garbage_of

    if names not in run(brokers(), storage):
        raise NotFoundError(f"the tier has nothing of the broker {'/'.join(names)}")
    listed = run(load_queue_list(*names), storage)
    epoch = None if dry_run else run(claim_to_collect(*names, take_over=take_over), storage)
    listing = BrokerObjects(*names)
    faults, count, size = [], 0, 0
    while (group := run(listing.following(), storage)) is not None:
        place, objects = group
        if place is None:
            continue
        is_listed = (place.topic, place.queue_id) in listed
        found = run(garbage_of(place, objects, before_ms, listed=is_listed), storage)
        if found.fault:
            faults.append(found.fault)
        sizes = {one.path: one for one in objects}
        rows = [("no manifest names it", one.path) for one in found.unnamed]
        rows += [("expired", path) for path in found.dropped if path in sizes]
        if found and epoch is not None:
            run(collect(place, epoch, storage.positions, before_ms), storage)
        for reason, path in rows:
            count, size = count + 1, size + sizes[path].size
            printer.row(
                {
                    "kind": "garbage",
                    "topic": place.topic,
                    "queueId": place.queue_id,
                    "reason": reason,
                    "size": sizes[path].size,
                    "modifiedTimestamp": sizes[path].modified_ms,
                    "path": path,
                }
            )
    done = "would be deleted" if dry_run else "deleted"
    print(f"{count} objects of {size} bytes {done}", file=sys.stderr)
    return faults


def _status_row(total: "BrokerTotals") -> dict[str, object]:
    from stratamq.formats.generation_number import starts_of, term_of

    writer = total.writer
    return {
        "kind": "broker",
        "cluster": total.cluster,
        "broker": total.broker,
        "queues": total.queues,
        "messages": total.messages,
        "bytes": total.bytes,
        "lost": total.lost,
        "firstTimestamp": total.first_ms or None,
        "lastTimestamp": total.last_ms or None,
        "epoch": f"{term_of(writer[0])}.{starts_of(writer[0])}.{writer[1]}" if writer else "",
        "objects": total.objects,
        "objectBytes": total.object_bytes,
        "dropped": total.dropped,
        "ok": not total.unreadable and not total.put_back,
    }
