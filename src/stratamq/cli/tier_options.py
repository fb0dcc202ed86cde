"""Options that the commands of `stratamq tier` have in common."""

from typing import Annotated

import typer

TargetArgument = Annotated[
    str, typer.Argument(metavar="TIER", help="a directory, or s3://BUCKET/PREFIX, gs://, az://")
]
ClusterOption = Annotated[str, typer.Option(help="brokerClusterName: part of every path")]
BrokerNameOption = Annotated[str, typer.Option(help="brokerName: part of every path")]
