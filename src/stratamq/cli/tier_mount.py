"""`stratamq tier mount`: a broker that reads another one's tier, and has nothing else."""

from pathlib import Path
from typing import Annotated

import typer

from stratamq.cli.listening import LARGEST_PORT
from stratamq.cli.options import ConfigOption, SettingsOption
from stratamq.cli.tier_options import (
    BrokerNameOption,
    ClusterOption,
    TargetArgument,
    require_free,
    require_there,
)
from stratamq.cli.up import up
from stratamq.errors import NotFoundError, StoreRefusedError
from stratamq.files.metadata import JsonObject, MetadataFile
from stratamq.files.real import RealFiles
from stratamq.formats.store_paths import LOGS_DIRECTORY, MOUNT_PATH, OWN_DIRECTORY
from stratamq.service.file_modes import use_file_modes


def mount(
    target: TargetArgument,
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Directory for the mount's own few files: empty, missing, or of an earlier mount.",
        ),
    ],
    cluster: ClusterOption = "DefaultCluster",
    broker: BrokerNameOption = "broker-a",
    config: ConfigOption = None,
    settings: SettingsOption = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=0,
            max=LARGEST_PORT,
            help="Listen on this port, as in `stratamq up`; the default is 10911, 0 picks "
            "free ports.",
        ),
    ] = None,
    bind: Annotated[
        str | None,
        typer.Option(
            metavar="HOST",
            help="Listen on this host, as in `stratamq up`; the default is 127.0.0.1.",
        ),
    ] = None,
    daemon: Annotated[
        bool,
        typer.Option(
            "--daemon", help="Return once the mount is ready; it runs until `stratamq down`."
        ),
    ] = False,
) -> None:
    """Serve what a broker's tier has, on any machine that reaches it, until Ctrl-C.

    Pulls, streams, searches by time and key, topics and groups' offsets are answered as by that
    broker; messages and offsets are not taken. Nothing in the tier is changed: its broker may run,
    or be no more. What it adds is seen `tier.mount_look_ms` later.
    """
    require_there(target)
    require_free(directory, target)
    _require_broker(target, cluster, broker)
    _remember(directory, {"tier": target, "cluster": cluster, "broker": broker})
    # The last one counts: what makes it a mount cannot be set otherwise.
    given = [*(settings or ()), *mount_settings(target, cluster, broker)]
    up(directory, config, given, port, bind, daemon=daemon)


def mount_settings(target: str, cluster: str, broker: str) -> list[str]:
    """Return the settings of a mount: a slave without a master that reads a tier."""
    return [
        "tier.mounted=true",
        f"tier.target={target}",
        f"tier.cluster={cluster}",
        f"tier.broker={broker}",
        "dispatcher.tier_mounted=true",
        "commitlog.role=SLAVE",
        "commitlog.broker_id=1",
        f"commitlog.broker_name={broker}",
    ]


def _require_broker(target: str, cluster: str, broker: str) -> None:
    from stratamq.tier.driver.opening import open_storage
    from stratamq.tier.driver.storage import run
    from stratamq.tier.reading.queue_list import brokers_of

    with open_storage(target) as storage:
        found = run(brokers_of(cluster), storage)
    if broker not in found:
        there = ", ".join(found[:5]) if found else "none"
        raise NotFoundError(
            f"{target} has nothing of the broker {broker} (--broker): of the cluster {cluster} "
            f"(--cluster) it has {there}"
        )


def _remember(directory: Path, mounted: JsonObject) -> None:
    """StoreRefusedError for a directory that holds a store, or is another tier's mount."""
    use_file_modes()
    files = RealFiles(directory)
    record = MetadataFile(files, MOUNT_PATH)
    known = record.load(keep_aside=False)
    if known == mounted:
        return
    if known is not None:
        raise StoreRefusedError(
            f"{directory} mounts {known.get('broker')} of {known.get('tier')}: name another "
            "directory, or remove it"
        )
    foreign = [one.name for one in files.list("") if one.name != OWN_DIRECTORY]
    own = [f"{OWN_DIRECTORY}/{one.name}" for one in files.list(OWN_DIRECTORY)]
    if foreign or any(path != LOGS_DIRECTORY for path in own):
        raise StoreRefusedError(f"{directory} is not empty, and no mount: name another directory")
    record.store(mounted)
