"""`stratamq pipeline`: jobs over a whole log on Spark, each a file of this package.

What works is imported when it is called: every other command of `stratamq` imports this package.
"""

import sys

import typer

from stratamq.errors import StrataError
from stratamq_pipeline.commands.audit import audit
from stratamq_pipeline.commands.export import export
from stratamq_pipeline.commands.offload import offload
from stratamq_pipeline.commands.pack import pack
from stratamq_pipeline.commands.rebuild import rebuild
from stratamq_pipeline.commands.stats import stats
from stratamq_pipeline.commands.verify_tier import verify_tier

PANEL = "Jobs over a whole log"
"""The part of `stratamq --help` in which they are."""


def register(app: typer.Typer) -> None:
    """Called by the command line through the entry-point group `stratamq.commands`."""
    app.add_typer(_jobs(), rich_help_panel=PANEL)


def submitted() -> None:
    """The same jobs as a program of their own, for spark-submit."""
    try:
        _jobs()()
    except StrataError as error:
        sys.exit(f"error: {' '.join(str(error).split())}")


def _jobs() -> typer.Typer:
    pipeline = typer.Typer(
        name="pipeline",
        help="Jobs over a whole log on Spark: on this machine, or on a cluster with --master.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    pipeline.command("audit")(audit)
    pipeline.command("export")(export)
    pipeline.command("offload")(offload)
    pipeline.command("rebuild")(rebuild)
    pipeline.command("stats")(stats)
    pipeline.command("verify-tier")(verify_tier)
    pipeline.command("zip")(pack)
    return pipeline
