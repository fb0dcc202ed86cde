"""`stratamq torture order`: the order of flushes and acknowledgements, by strace."""

from typing import Annotated

import typer

from stratamq_torture.commands.output import Output, OutputOption, finish
from stratamq_torture.commands.progress import counting


def order(
    messages: Annotated[
        int, typer.Option(min=1, help="messages of each of the four ways to append")
    ] = 200,
    seed: Annotated[int, typer.Option(min=0, help="which messages")] = 1,
    async_flush: Annotated[
        bool, typer.Option("--async-flush", help="must fail: shows that the trial can see it")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Trace the log service, and hold every acknowledgement against the flush that covers it.

    Unary and stream appends, one at a time and many in flight. Each answer on the wire must leave
    after a sync of its segment that began when its request was there. Needs strace; does nothing,
    and reports that, where it is missing.
    """
    from stratamq_torture.processes.order import WAYS, OrderOptions, run_order

    options = OrderOptions(messages, seed, "ASYNC_FLUSH" if async_flush else "SYNC_FLUSH")
    with counting(messages * len(WAYS), "messages") as progress:
        report = run_order(options, progress)
    finish([report], output)
