"""Options that the commands of `stratamq tier` have in common."""

from pathlib import Path
from typing import Annotated

import typer

from stratamq.errors import InvalidRequestError, NotFoundError
from stratamq.formats.store_paths import COMMIT_LOG

TargetArgument = Annotated[
    str, typer.Argument(metavar="TIER", help="Directory, or s3://BUCKET/PREFIX, gs://, az://.")
]
ClusterOption = Annotated[
    str, typer.Option(help="Cluster name (brokerClusterName); part of every path.")
]
BrokerNameOption = Annotated[
    str, typer.Option(help="Broker name (brokerName); part of every path.")
]


def require_there(target: str) -> None:
    """NotFoundError for a directory that is not there: a slip of the pen makes none."""
    if "://" not in target and not Path(target or "-/").is_dir():
        raise NotFoundError(f"there is no directory {target!r}: name a tier's, or a bucket's URL")


def require_free(directory: Path, target: str) -> None:
    """InvalidRequestError for a place in which a store would be found by others."""
    place = directory.resolve()
    if "://" not in target and place.is_relative_to(Path(target).resolve()):
        raise InvalidRequestError(f"{directory} is in the tier itself: name a directory beside it")
    for above in place.parents:
        if (above / COMMIT_LOG).is_dir():
            raise InvalidRequestError(f"{directory} is in the store {above}: name one beside it")
