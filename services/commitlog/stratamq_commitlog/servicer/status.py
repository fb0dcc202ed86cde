"""The log's status as a message of the wire."""

import math

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.api.v1 import common_pb2
from stratamq.formats.broker_role import Role
from stratamq.rpc.members import members_message
from stratamq_commitlog.engine import CommitLog
from stratamq_commitlog.servicer.values import scrub_status


def status_message(engine: CommitLog) -> pb.GetStatusResponse:
    status, state = engine.status(), engine.state
    assigned, configured = state.assigned, engine.role_file.configured
    master = assigned.role is not Role.SLAVE
    return pb.GetStatusResponse(
        minimum_offset=status.minimum,
        appended_offset=status.appended,
        flushed_offset=status.flushed,
        confirmed_offset=status.confirmed,
        role=assigned.role.value,
        generations=[
            common_pb2.Generation(generation=g.number, start_offset=g.start)
            for g in status.generations
        ],
        writable=status.writable,
        not_writable_reason=status.not_writable_reason,
        segment_bytes=status.segment_bytes,
        segment_count=status.segment_count,
        followers=_followers(engine, status.confirmed),
        replicas=_replicas(engine, status.appended),
        disk_used_ratio=status.disk_used_ratio,
        disk_full_in_s=_seconds(status.disk_full_in_s),
        sync_flush=engine.config.flush_disk_type == "SYNC_FLUSH",
        recovery_report=status.recovery_report,
        broker_name=engine.config.broker_name,
        broker_id=0 if master else max(1, engine.config.broker_id),
        scrub=scrub_status(engine.scrubber),
        configured_role=configured.value,
        role_reason=assigned.difference(configured),
        term=state.highest_term,
        master_replication_address=assigned.master,
        master_address="" if master else engine.gate.master_address,
        held_reason=(state.uncertain or state.held or state.recovering_tail) if master else "",
        taking_back=bool(state.recovering_tail),
        has_peers=assigned.peers,
        clock_doubt=engine.store_clock.doubt_now(),
        master_confirmed_offset=engine.master_confirmed.value,
        identity=engine.membership.identity.number,
        members=members_message(engine.membership.members),
        member=engine.membership.member,
        rejoining=engine.membership.rejoining,
        promised_to=assigned.candidate,
        required_replicas=engine.config.required_replicas,
        window_offset=engine.window.complete_from,
        lease_required=engine.gate.lease.required,
        lease_remaining_ms=engine.gate.lease.remaining_ms,
        lead_ended_reason=engine.gate.lease.ended if master else "",
        unable_ms=status.unable_ms,
        unable_reason=status.unable_reason,
    )


def _seconds(forecast: float | None) -> int | None:
    return None if forecast is None or math.isinf(forecast) else round(forecast)


def _followers(engine: CommitLog, confirmed: int) -> list[pb.FollowerStatus]:
    return [
        pb.FollowerStatus(
            name=state.name,
            connected=state.connections > 0,
            applied_offset=state.applied,
            durable_offset=state.durable,
            lag_bytes=max(0, confirmed - state.applied),
            durable_store_timestamp_ms=state.durable_store_timestamp_ms,
        )
        for state in engine.hub.followers.values()
    ]


def _replicas(engine: CommitLog, appended: int) -> list[pb.ReplicaStatus]:
    return [
        pb.ReplicaStatus(
            address=replica.address,
            acknowledged_offset=replica.acknowledged,
            connected=replica.connected,
            lag_bytes=max(0, appended - replica.acknowledged),
            lag_ms=replica.lag_ms,
            counts=replica.counts,
            member=replica.member,
        )
        for replica in engine.replicas.known
    ]
