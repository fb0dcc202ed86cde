"""`stratamq cluster shards`: every shard, its members, and how far each is."""

import typer

from stratamq.cli.dump_output import Output, Printer
from stratamq.cli.dump_rows import Row
from stratamq.cli.exit_codes import EXIT_ERROR
from stratamq.cli.options import HERE, BrokerTarget, OutputOption, WatchOption, shown
from stratamq.client import Drain, Shard, ShardMember, shards_of
from stratamq.option_groups import option_groups

COLUMNS = ("shard", "member", "role", "term", "logEnd", "behind", "drain", "address")
ANSWER_S = 3.0


def register(cluster_app: typer.Typer) -> None:
    cluster_app.command("shards")(shards)


@option_groups
def shards(
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
    watch: WatchOption = None,
) -> None:
    """Show the members of every shard at these addresses: roles, terms, how many bytes of the log a
    slave lacks, drains. All are asked at once.

    Exit code 0: each shard takes messages or is drained, and every member answers. 1: otherwise.
    """
    shown(lambda: _show(place, output), watch)


def _show(place: BrokerTarget, output: Output) -> int:
    with place.client() as client:
        found, silent = shards_of(client.members())
    printer = Printer(output, COLUMNS)
    for shard in found:
        for member in shard.members:
            printer.row(_row(shard, member))
    printer.flush()
    problems = [text for shard in found for text in _problems(shard)]
    problems += [f"the shard is not known: {one.problem}" for one in silent]
    for text in problems:
        printer.note({"kind": "problem", "text": text}, text, True)
    return EXIT_ERROR if problems or not found else 0


def _row(shard: Shard, member: ShardMember) -> Row:
    row: Row = {"kind": "member", "shard": shard.name, "member": member.name}
    look, log = member.look, member.log
    if look is None or log is None:
        return row | {"role": "not known"}
    return row | {
        "role": "" if log.role is None else log.role.name,
        "term": log.term,
        "promisedTo": log.promised_to,
        "logEnd": log.appended_offset,
        "behind": member.lag_bytes,
        "behindMs": member.lag_ms,
        "drain": "" if look.drain is None else look.drain.name,
        "writable": log.writable,
        "address": look.address,
    }


def _problems(shard: Shard) -> list[str]:
    found = [
        f"the member {one.name} of {shard.name} does not answer at these addresses"
        for one in shard.members
        if one.look is None
    ]
    found += [
        f"the member {one.name} of {shard.name}: {one.look.problem}"
        for one in shard.members
        if one.look is not None and one.look.problem
    ]
    if shard.master is None or shard.master.log is None:
        return [*found, f"the shard {shard.name} has no master that answers"]
    if not shard.writable and shard.drain is not Drain.DRAINED:
        return [
            *found,
            f"the shard {shard.name} takes no messages: {shard.master.log.not_writable_reason}",
        ]
    return found
