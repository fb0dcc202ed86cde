"""Options that the commands of `stratamq tier` have in common."""

from pathlib import Path
from typing import Annotated

import typer

from stratamq.errors import NotFoundError

TargetArgument = Annotated[
    str, typer.Argument(metavar="TIER", help="a directory, or s3://BUCKET/PREFIX, gs://, az://")
]
ClusterOption = Annotated[str, typer.Option(help="brokerClusterName: part of every path")]
BrokerNameOption = Annotated[str, typer.Option(help="brokerName: part of every path")]


def require_there(target: str) -> None:
    """NotFoundError for a directory that is not there: a slip of the pen makes none."""
    if "://" not in target and not Path(target or "-/").is_dir():
        raise NotFoundError(f"there is no directory {target!r}: name a tier's, or a bucket's URL")
