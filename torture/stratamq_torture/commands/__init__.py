"""`stratamq torture`: each command one trial of the promise that nothing acknowledged is lost.

What works is imported when it is called: every other command of `stratamq` imports this package.
"""

import typer

from stratamq.cli.options import BUILDERS
from stratamq_torture.commands.agents import agents
from stratamq_torture.commands.brokers import brokers
from stratamq_torture.commands.damage import damage
from stratamq_torture.commands.disk import disk
from stratamq_torture.commands.everything import everything
from stratamq_torture.commands.hostile import hostile
from stratamq_torture.commands.janitor import janitor
from stratamq_torture.commands.kill import kill
from stratamq_torture.commands.order import order
from stratamq_torture.commands.power import power
from stratamq_torture.commands.protocol import protocol
from stratamq_torture.commands.replicas import replicas
from stratamq_torture.commands.resend import resend
from stratamq_torture.commands.sim import sim
from stratamq_torture.commands.tier import tier


def register(app: typer.Typer) -> None:
    """Called by the command line through the entry-point group `stratamq.commands`."""
    torture = typer.Typer(
        name="torture",
        help="Nothing acknowledged is ever lost: crashes, kills, power losses, damage, full disks.",
        no_args_is_help=True,
    )
    torture.command("all")(everything)
    torture.command("agents")(agents)
    torture.command("brokers")(brokers)
    torture.command("damage")(damage)
    torture.command("disk")(disk)
    torture.command("hostile")(hostile)
    torture.command()(janitor)
    torture.command("kill")(kill)
    torture.command("order")(order)
    torture.command("power")(power)
    torture.command("protocol")(protocol)
    torture.command("replicas")(replicas)
    torture.command("resend")(resend)
    torture.command("sim")(sim)
    torture.command("tier")(tier)
    app.add_typer(torture, rich_help_panel=BUILDERS)
