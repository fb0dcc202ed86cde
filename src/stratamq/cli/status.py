"""`stratamq status`: is every service of the broker well, and how far is each."""

from collections.abc import Callable, Iterator

import grpc
import typer
from grpc_health.v1 import health_pb2, health_pb2_grpc

from stratamq.cli.dump_output import Output, Printer
from stratamq.cli.dump_rows import Row, fields_of
from stratamq.cli.exit_codes import EXIT_ERROR
from stratamq.cli.options import HERE, BrokerTarget, OutputOption, WatchOption, shown
from stratamq.client import Client, Drain
from stratamq.client.replication_state import ReplicationState
from stratamq.client.values import (
    ConsoleState,
    Election,
    FollowerServiceState,
    GatewayState,
    JanitorState,
    TierState,
)
from stratamq.errors import StrataError, UnavailableError
from stratamq.formats.log_state import LogState, Role
from stratamq.option_groups import option_groups
from stratamq.rpc.endpoints import CHANNEL_OPTIONS, Endpoints
from stratamq.rpc.rooms import (
    AGENT,
    COMMITLOG,
    CONSOLE,
    DELIVERY,
    DISPATCHER,
    ESSENTIAL,
    GATEWAY,
    HA,
    INDEX,
    JANITOR,
    REGISTER,
    TIER,
)
from stratamq.rpc.status import from_rpc_error

COLUMNS = ("service", "state", "address", "applied", "durable", "lag", "detail")
ANSWER_S = 3.0
SHOWN_FORECAST_S = 30 * 24 * 3600


def register(app: typer.Typer) -> None:
    app.command("status")(status)


@option_groups
def status(
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
    watch: WatchOption = None,
) -> None:
    """Show for every service whether it serves, how far it is, and what it found at its start.

    Exit code 0: every service is healthy, messages are taken, and the scrubber has found no damage.
    1: otherwise.
    """
    shown(lambda: _show(place, output), watch)


def _show(place: BrokerTarget, output: Output) -> int:
    where = place.endpoints()
    printer = Printer(output, COLUMNS)
    healthy = True
    notes: list[Row] = []
    with Client(where, timeout_s=ANSWER_S) as client:
        if where.searched:
            client.services()
        for room in _rooms(where):
            row, reports = describe(room, where, client)
            healthy = healthy and row["state"] == "ready" and not row.get("damagedStretches")
            notes += reports
            printer.row(row)
    printer.flush()
    for note in notes:
        printer.note(note, f"{note['service']}: {note['text']}", note["kind"] == "problem")
    return 0 if healthy else EXIT_ERROR


def _rooms(where: Endpoints) -> Iterator[str]:
    """The essential services, and those that have announced themselves or are named."""
    known = where.known()
    for room, service in REGISTER.items():
        if where.names(room) if service.essential else room in known:
            yield room


def describe(room: str, where: Endpoints, client: Client) -> tuple[Row, list[Row]]:
    """The row of one service, and the further lines about it."""
    row: Row = {"kind": "service", "service": room, "state": "not running", "address": ""}
    try:
        row["address"], reached = _address(room, where)
        row["state"] = _health(reached, where)
    except UnavailableError as error:
        if row["address"]:
            row["state"] = "unreachable"
        return row | {"detail": error.message}, []
    try:
        return DETAILS[room](row, client)
    except StrataError as error:
        return row | {"detail": error.message}, []


def _with_agent(row: Row, state: Election) -> tuple[Row, list[Row]]:
    led = f"{state.leader} leads" if state.leader else "no member leads"
    row["detail"] = f"{led}; {'paused; ' if state.paused else ''}{state.last_action}"
    if state.store_problem:
        row["state"] = "not ready"
    problems = filter(None, (state.store_problem, *state.problems))
    return row, [_note(row, "problem", text) for text in problems]


def _address(room: str, where: Endpoints) -> tuple[str, str]:
    """Return the address that other machines use, and the one that this process uses."""
    reached = where.address(room) if room in ESSENTIAL else where.known().get(room, "")
    return where.listening(room) or reached, reached


def _health(address: str, where: Endpoints) -> str:
    """`ready` or `not ready`; UnavailableError without an answer."""
    host = where.hosts.certified_as(address)
    with where.credentials.connect(grpc, address, CHANNEL_OPTIONS, host) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=ANSWER_S
            )
        except grpc.RpcError as failure:
            raise UnavailableError(from_rpc_error(failure).message) from failure
    serving = answer.status == health_pb2.HealthCheckResponse.SERVING
    return "ready" if serving else "not ready"


def _drained(drain: Drain, name: str) -> str:
    taken = "no messages" if drain is Drain.DRAINED else "messages for a while yet"
    return f"is being drained, takes {taken} (`stratamq cluster drain-shard {name} --undo`)"


def _with_log(row: Row, state: LogState, drain: Drain) -> tuple[Row, list[Row]]:
    slave = state.role is Role.SLAVE and state.not_writable_reason.startswith("a slave ")
    role = state.role.name if state.role else "no role"
    if state.term:
        role += f" of term {state.term}"
    if not state.writable and not slave and row["state"] == "ready":
        row["state"] = "not writable"
    detail = (
        f"{role}, "
        f"{'sync' if state.sync_flush else 'async'} flush, segments: {state.segment_count} of "
        f"{state.segment_bytes} bytes, disk {state.disk_used_ratio:.0%} full"
        f"{forecast(state.disk_full_in_s)}, {_scrub(state)}"
    )
    row |= {
        "applied": state.appended_offset,
        "durable": state.flushed_offset,
        "lag": state.appended_offset - state.flushed_offset,
        "detail": detail,
        "minimum": state.minimum_offset,
        "confirmed": state.confirmed_offset,
        "role": state.role.name if state.role else "",
        "generation": state.generation,
        "term": state.term,
        "configuredRole": state.configured_role.name if state.configured_role else "",
        "writable": state.writable,
        "drain": drain.name,
        "segmentBytes": state.segment_bytes,
        "segments": state.segment_count,
        "diskUsedRatio": state.disk_used_ratio,
        "diskFullInSeconds": state.disk_full_in_s,
        "brokerName": state.broker_name,
        "brokerId": state.broker_id,
        "damagedStretches": len(state.scrub.damage),
        "scrubPosition": state.scrub.position_offset,
        "scrubPasses": state.scrub.passes,
    }
    return row, _notes_of_log(row, state, drain, slave=slave)


def _notes_of_log(row: Row, state: LogState, drain: Drain, *, slave: bool) -> list[Row]:
    notes = [_note(row, "report", line) for line in state.recovery_report]
    if state.role_reason and state.role_reason not in state.recovery_report:
        notes.append(_note(row, "report", state.role_reason))
    notes += [
        _note(
            row,
            "problem",
            f"the log is damaged in [{one.start}, {one.end}) ({one.reason}): take "
            "it from a replica or a backup",
        )
        for one in state.scrub.damage
    ]
    if drain is not Drain.OPEN:
        notes.append(_note(row, "report", _drained(drain, state.broker_name)))
    if state.clock_doubt:
        notes.append(_note(row, "problem", state.clock_doubt))
    if state.not_writable_reason:
        kind = "report" if slave else "problem"
        notes.append(_note(row, kind, f"takes no messages: {state.not_writable_reason}"))
    notes += [
        _note(row, "problem", f"the follower {one.name} is away, {one.lag_bytes} bytes behind")
        for one in state.followers
        if not one.connected
    ]
    return notes


def forecast(full_in_s: int | None) -> str:
    """Nothing beyond a month: the last two hours do not foretell that."""
    if full_in_s is None or full_in_s > SHOWN_FORECAST_S:
        return ""
    if full_in_s == 0:
        return " (too full for messages)"
    if full_in_s < 2 * 3600:
        return f" (too full for messages in {full_in_s // 60} min as it fills now)"
    return f" (too full for messages in {full_in_s // 3600} h as it fills now)"


def with_replication(row: Row, state: ReplicationState) -> tuple[Row, list[Row]]:
    """A master's row names its slaves, a slave's its master."""
    following = state.following
    if following is not None:
        row |= {
            "applied": following.appended_offset,
            "lag": following.received_offset - following.appended_offset,
            "detail": f"follows {following.master_address or 'no master'}",
            "master": following.master_address,
            "connected": following.connected,
        }
        if not following.connected and row["state"] == "ready":
            row["state"] = "not following"
        reported = (following.problem, following.metadata_problem, state.problem)
        problems = [text for text in reported if text]
        return row, [_note(row, "problem", text) for text in problems]
    connected = [one for one in state.slaves if one.connected]
    names = {"acknowledged_offset": "acknowledged"}
    row |= {
        "applied": state.shippable_offset,
        "lag": max((one.lag_bytes for one in connected), default=0),
        "detail": f"slaves: {len(connected)}, they connect to {state.replication_address}",
        "replicationAddress": state.replication_address,
        "slaves": [
            fields_of(one, names, bytesPerSecond=round(one.bytes_per_second))
            for one in state.slaves
        ],
    }
    notes = [
        _note(
            row,
            "report",
            f"the slave {one.address} has {one.acknowledged_offset}, {one.lag_bytes} bytes and "
            f"{one.lag_ms} ms behind, {one.bytes_per_second / 1e6:.1f} MB/s",
        )
        for one in connected
    ]
    notes += [
        _note(row, "problem", f"the slave {one.address} is away: {one.problem}")
        for one in state.slaves
        if not one.connected
    ]
    if state.problem:
        notes.append(_note(row, "problem", state.problem))
    return row, notes


def _with_janitor(row: Row, state: JanitorState) -> tuple[Row, list[Row]]:
    retention = "disabled" if state.disabled else "enabled"
    row |= {"detail": f"retention {retention}, segments deleted: {state.deleted_segments}"}
    alarm = state.failure or (state.last.alarm if state.last is not None else "")
    return row, [_note(row, "problem", alarm)] if alarm else []


def _with_tier(row: Row, state: TierState) -> tuple[Row, list[Row]]:
    role = "writes" if not state.not_writing_reason else "does not write"
    row |= {
        "applied": state.committed_offset,
        "durable": state.committed_offset,
        "lag": max(0, state.log_confirmed_offset - state.committed_offset),
        "detail": f"{role}, queues: {state.queues}, waiting: {state.waiting_messages} messages, "
        f"oldest {state.lag_ms / 1000:.0f} s, requests: {state.request_count}, "
        f"{state.cost_usd:.4f} USD",
    }
    notes = []
    if state.not_writing_reason:
        notes.append(_note(row, "report", state.not_writing_reason))
    if state.failing_queues:
        text = f"uploads of {state.failing_queues} queues fail: {state.last_failure}"
        notes.append(_note(row, "problem", text))
    return row, notes


def _with_gateway(row: Row, state: GatewayState) -> tuple[Row, list[Row]]:
    parts = []
    if state.remoting_address:
        parts.append(
            f"RocketMQ's clients at {state.remoting_address}, connections: {state.connections}, "
            f"consumer groups: {state.consumer_groups}"
        )
    if state.grpc_address:
        parts.append(f"RocketMQ 5's at {state.grpc_address}, clients: {state.grpc_clients}")
    row["detail"] = "; ".join(parts)
    return row, []


def _with_console(row: Row, state: ConsoleState) -> tuple[Row, list[Row]]:
    row |= {"detail": f"{state.url}, logged in: {state.sessions}", "url": state.url}
    return row, []


def _scrub(state: LogState) -> str:
    scrub = state.scrub
    if scrub.passing:
        whole = max(1, state.appended_offset - state.minimum_offset)
        part = max(0, scrub.position_offset - state.minimum_offset) / whole
        return f"scrub at {part:.0%}"
    return "scrubbed" if scrub.passes else "not scrubbed yet"


def _with_follower(row: Row, state: FollowerServiceState, parts: str) -> tuple[Row, list[Row]]:
    row |= {
        "applied": state.applied_offset,
        "durable": state.durable_offset,
        "lag": max(0, state.log_confirmed_offset - state.applied_offset),
        "detail": f"{parts}: {state.parts}",
        parts: state.parts,
    }
    if state.stopped_reason and row["state"] == "ready":
        row["state"] = "stopped"
    notes = [_note(row, "report", line) for line in state.recovery_report]
    if state.stopped_reason:
        notes.append(_note(row, "problem", state.stopped_reason))
    return row, notes


def _note(row: Row, kind: str, text: str) -> Row:
    return {"kind": kind, "service": row["service"], "text": text}


DETAILS: dict[str, Callable[[Row, Client], tuple[Row, list[Row]]]] = {
    COMMITLOG: lambda row, client: _with_log(row, client.log_state(), client.admin.drain()),
    DISPATCHER: lambda row, client: _with_follower(row, client.admin.dispatch_state(), "queues"),
    INDEX: lambda row, client: _with_follower(row, client.admin.index_state(), "files"),
    HA: lambda row, client: with_replication(row, client.admin.replication_state()),
    JANITOR: lambda row, client: _with_janitor(row, client.admin.janitor_state()),
    DELIVERY: lambda row, client: _with_follower(row, client.admin.delivery_state(), "waiting"),
    GATEWAY: lambda row, client: _with_gateway(row, client.admin.gateway_state()),
    TIER: lambda row, client: _with_tier(row, client.admin.tier_state()),
    AGENT: lambda row, client: _with_agent(row, client.admin.election()),
    CONSOLE: lambda row, client: _with_console(row, client.admin.console_state()),
}
"""How each registered service completes its row."""
