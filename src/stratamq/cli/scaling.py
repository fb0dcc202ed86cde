"""`stratamq cluster add-shard`, `drain-shard`: brokers of another name come and go.

Every step may be the last one before a kill: the same command, given again, goes on.

    add-shard     the new one takes no messages, has every topic, takes messages
    drain-shard   topics are shown without the permission to write, until producers have looked;
                  messages are refused; what is still to be consumed is shown
"""

import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from stratamq.cli.dump_output import Output, Printer
from stratamq.cli.dump_rows import Row
from stratamq.cli.exit_codes import EXIT_ERROR
from stratamq.cli.options import (
    DEFAULT,
    AddressOption,
    BrokerTarget,
    DataOption,
    OutputOption,
    seconds,
)
from stratamq.client import Client, Drain, Topic, connect
from stratamq.client.scaling import (
    Leftovers,
    cluster_topics,
    differing_topics,
    lacking_topics,
    leftovers,
)
from stratamq.client.shard_routes import FRESH_NS
from stratamq.errors import (
    InvalidRequestError,
    NotFoundError,
    NotWritableError,
    StrataError,
    UnavailableError,
)
from stratamq.formats.topics import PERMISSION_WRITE

COLUMNS = ("group", "topic", "messages")
GRACE_S = FRESH_NS / 1e9 + 5
"""Every producer has asked for its topics again, and what it sent before is answered."""
LOOK_S = 1.0
_RETRY_TIMEOUT_S = 5.0
_NAMED = 5


def register(cluster_app: typer.Typer) -> None:
    cluster_app.command("add-shard")(add_shard)
    cluster_app.command("drain-shard")(drain_shard)


def add_shard(
    new: Annotated[
        str,
        typer.Argument(
            metavar="HOST:PORT",
            help="Address of the new shard, or of its members separated by commas.",
        ),
    ],
    data: DataOption = DEFAULT,
    address: AddressOption = None,
    with_messages: Annotated[
        bool,
        typer.Option("--with-messages", help="Add the shard even if it already holds messages."),
    ] = False,
) -> None:
    """Create the cluster's topics at a new shard, then let it take messages. Clients that find the
    cluster by a DNS name discover the shard themselves; give its address to others.

    Exit codes: 0 it is part of the cluster, 1 it is not.
    """
    with (
        BrokerTarget(data, address).client(_RETRY_TIMEOUT_S) as cluster,
        connect(new, retry_timeout_s=_RETRY_TIMEOUT_S) as found,
    ):
        shards = found.shards()
        if len(shards) != 1:
            raise InvalidRequestError(f"{new} is several shards ({', '.join(shards)}): add each")
        ((name, shard),) = shards.items()
        others = cluster.shards()
        if name in others and others[name].log_state().generation != shard.log_state().generation:
            raise InvalidRequestError(
                f"there is a shard {name} in the cluster, and it is not the one at {new}: give the "
                "new one another commitlog.broker_name"
            )
        others = {other: client for other, client in others.items() if other != name}
        if not others:
            raise InvalidRequestError(
                f"the cluster's addresses lead to {name} alone: name the shards that are there"
            )
        topics = _topics_of(others)
        lacking = lacking_topics(topics, shard.topics(), shard.admin.drain())
        held = sum(queue.max_offset - queue.min_offset for queue in shard.queues())
        if held and lacking and not with_messages:
            raise InvalidRequestError(
                f"{name} holds {held} messages and lacks {_some([one.name for one in lacking])}: "
                "it was used for something else. Nothing was changed; --with-messages adds it, and "
                "clients of the cluster read what it holds"
            )
        _join(name, shard, topics, is_empty=not held)
    print(f"{name} is part of the cluster: {len(topics)} topics, {len(others) + 1} shards")


def _topics_of(others: Mapping[str, Client]) -> list[Topic]:
    """What a shard beside these is to have. UnavailableError when one of them does not answer."""
    found: list[Topic] = []
    drained = set()
    for name, client in others.items():
        found += [replace(one, broker=name) for one in client.topics()]
        if client.admin.drain() is not Drain.OPEN:
            drained.add(name)
    if differing := differing_topics(found, drained):
        _say(
            f"warning: {_some(differing)} is not the same at all shards; that of the first by name "
            "is taken (`stratamq topics alter` makes them alike)"
        )
    topics = cluster_topics(found, drained)
    left_out = sorted({one.name for one in found} - {one.name for one in topics})
    if drained and left_out:
        _say(f"left out, at drained shards ({', '.join(sorted(drained))}) alone: {_some(left_out)}")
    return topics


def _join(name: str, shard: Client, topics: list[Topic], *, is_empty: bool) -> None:
    """One that is empty, or drained, has all topics before it takes a message, whatever ends this
    in between."""
    drain = shard.admin.drain()
    lacking = lacking_topics(topics, shard.topics(), drain)
    if drain is Drain.OPEN and not lacking:
        return
    if drain is Drain.OPEN and is_empty:
        shard.admin.set_drain(Drain.DRAINED)
    for number, topic in enumerate(lacking, 1):
        shard.admin.put_topic(topic)
        if number % 1_000 == 0:
            _say(f"{name}: {number} of {len(lacking)} topics")
    shard.admin.set_drain(Drain.OPEN)
    for topic in lacking_topics(topics, shard.topics(), Drain.OPEN):
        shard.admin.put_topic(topic)  # its permission was hidden by the drain


def drain_shard(
    name: Annotated[str, typer.Argument(help="Broker name of the shard.")],
    data: DataOption = DEFAULT,
    address: AddressOption = None,
    output: OutputOption = Output.TABLE,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait until the shard can be removed, and show what is left."),
    ] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Cancel the drain: let the shard take messages again.")
    ] = False,
    grace_s: Annotated[
        float,
        typer.Option(
            "--grace",
            min=0,
            callback=seconds,
            metavar="SECONDS",
            help="Wait this long for producers, which refresh their topics within 30 s; "
            "messages are taken until then.",
        ),
    ] = GRACE_S,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Proceed even if no other shard takes messages for some of the topics."
        ),
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Allow removal with messages that no group consumes."),
    ] = False,
) -> None:
    """Stop a shard from taking new messages, durably; it stays readable. Then show what each group
    has yet to consume there, and whether the shard can be removed. Can be repeated.

    Exit codes: 0 it can be removed (with --undo: it takes messages again), 1 it cannot.
    """
    with BrokerTarget(data, address).client(_RETRY_TIMEOUT_S) as cluster:
        shards = cluster.shards()
        if name not in shards:
            raise NotFoundError(f"no shard {name} answers: there are {', '.join(sorted(shards))}")
        shard = shards[name]
        others = {other: client for other, client in shards.items() if other != name}
        if undo:
            _join(name, shard, _topics_of(others), is_empty=False)
            _say(f"{name} takes messages again")
            return
        if shard.admin.drain() is Drain.OPEN and not force:
            _require_others(name, shard, others)
        _close(name, shard, grace_s)
        look = _looked(name, shard, others, accept_loss, output)
        while wait and look:
            threading.Event().wait(LOOK_S)
            look = _looked(name, shard, others, accept_loss, output, look)
    if look:
        raise typer.Exit(EXIT_ERROR)


def _require_others(name: str, shard: Client, others: Mapping[str, Client]) -> None:
    """Producers of each of its topics have somewhere to go."""
    elsewhere: set[str] = set()
    takers = [one for one in others.values() if one.admin.drain() is Drain.OPEN]
    if not takers:
        raise InvalidRequestError(
            f"no other shard than {name} takes messages. Nothing was changed; add a shard, or add "
            "--force"
        )
    for client in takers:
        elsewhere |= {one.name for one in client.topics() if one.permission & PERMISSION_WRITE}
    alone = sorted(
        one.name
        for one in shard.topics()
        if one.permission & PERMISSION_WRITE and one.name not in elsewhere
    )
    if alone:
        raise InvalidRequestError(
            f"no other shard takes messages of {_some(alone)}: producers would be refused. Nothing "
            "was changed; add a shard, or create the topic at another one, or add --force"
        )


def _close(name: str, shard: Client, grace_s: float) -> None:
    if shard.admin.drain() is not Drain.DRAINED and grace_s:
        shard.admin.set_drain(Drain.LEAVING)
        _say(
            f"{name} takes messages for {grace_s:g} s more, until producers have refreshed their "
            "topics"
        )
        threading.Event().wait(grace_s)
    if shard.admin.drain() is not Drain.DRAINED:
        shard.admin.set_drain(Drain.DRAINED)
        _say(f"{name} takes no messages; what it has is read as before")


@dataclass(frozen=True, slots=True)
class _Look:
    """Why a shard may not go."""

    left: Leftovers
    reasons: tuple[str, ...]


def _looked(
    name: str,
    shard: Client,
    others: Mapping[str, Client],
    accept_loss: bool,
    output: Output,
    before: _Look | None = None,
) -> _Look | None:
    """Show what is left unless it is as `before`; None: the shard may go."""
    try:
        if shard.admin.drain() is not Drain.DRAINED:
            _say(f"warning: another broker of {name} leads, which took messages: drained again")
            shard.admin.set_drain(Drain.DRAINED)
        left, reasons = _state(shard, others, accept_loss)
    except (UnavailableError, NotWritableError) as error:  # or no master now
        nothing = Leftovers((), (), ()) if before is None else before.left
        left, reasons = nothing, [f"it is not known what it holds: {error.message}"]
    look = _Look(left, tuple(reasons))
    if look != before:
        _show(name, look, output)
    return look if reasons else None


def _state(
    shard: Client, others: Mapping[str, Client], accept_loss: bool
) -> tuple[Leftovers, list[str]]:
    """What is left in the shard, and why it may not go. All of it is of one master's log."""
    log = shard.log_state()
    reasons: list[str] = []
    everywhere = shard.groups()
    for name, client in others.items():
        try:
            everywhere += client.groups()
        except StrataError as error:
            reasons.append(f"it is not known which groups read at {name}: {error.message}")
    applied = shard.admin.dispatch_state().applied_offset
    left = leftovers(shard.queues(), shard.groups(), everywhere)
    if not left.consumed:
        reasons.append("not every group has consumed everything")
    if not accept_loss:
        reasons += [f"{text} would be lost (--accept-loss)" for text in left.lost]
    if applied < log.appended_offset:
        reasons.append(
            f"{log.appended_offset - applied} bytes of its log are not shown to consumers yet"
        )
    for one in shard.members():
        if one.drain not in (None, Drain.DRAINED):
            reasons.append(f"its member at {one.address} would take messages as a master: it has "
                           "not taken the topics over")  # fmt: skip
    after = shard.log_state()
    if (after.generation, after.appended_offset) != (log.generation, log.appended_offset):
        reasons.append("its log has changed meanwhile")
    return left, reasons


def _show(name: str, look: _Look, output: Output) -> None:
    printer = Printer(output, COLUMNS)
    for one in (*look.left.unread, *look.left.ungrouped):
        row: Row = {"kind": "unread", "broker": name, "group": one.group, "topic": one.topic}
        printer.row(row | {"messages": one.messages})
    printer.flush()
    may_go = not look.reasons
    lost = f" With it go {'; '.join(look.left.lost)}." if may_go and look.left.lost else ""
    text = (
        f"{name} can be removed.{lost}"
        if may_go
        else f"{name} cannot be removed: {'; '.join(look.reasons)}"
    )
    facts = {"broker": name, "mayGo": may_go, "reasons": list(look.reasons)}
    printer.note({"kind": "drain", **facts, "lost": look.left.lost}, text, bool(lost))


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
