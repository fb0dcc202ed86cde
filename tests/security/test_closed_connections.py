"""Calls that gRPC had taken of a connection by the time it was closed."""

import asyncio
from types import SimpleNamespace

import pytest

from stratamq.errors import UnauthenticatedError
from stratamq.rpc.credentials import AUTHORIZATION, BEARER
from stratamq.rpc.permission_file import Permissions, dump
from stratamq.service.access import AccessControl, AuditLog, Line
from stratamq.service.permission_source import PermissionSource

CLOSED, OPEN = "ipv4:127.0.0.1:5", "ipv4:127.0.0.1:6"


def context(peer: str, token: str = "") -> SimpleNamespace:
    metadata = ((AUTHORIZATION, BEARER + token),) if token else ()
    return SimpleNamespace(
        peer=lambda: peer, auth_context=dict, invocation_metadata=lambda: metadata
    )


@pytest.fixture
def token_and_control(tmp_path):
    permissions = Permissions()
    token = permissions.add_token("alice", "")
    file = tmp_path / "access.json"
    file.write_bytes(dump(permissions))
    return token, AccessControl(PermissionSource(file), [], AuditLog())


def test_calls_of_a_closed_connection_are_dropped_and_those_of_authenticated_clients_are_not(
    token_and_control, caplog
):
    token, control = token_and_control
    counted: list[str] = []
    control.on_stranger = lambda peer: bool(counted.append(peer))
    control.is_closed = lambda peer: peer == CLOSED
    with pytest.raises(asyncio.CancelledError):
        control.admit(control.caller(context(CLOSED)), "Pull")
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(control.no_such_method(context(CLOSED), "Nothing"))
    assert (counted, caplog.records) == ([], [])
    control.admit(control.caller(context(CLOSED, token)), "Pull")
    with pytest.raises(UnauthenticatedError):
        control.admit(control.caller(context(OPEN)), "Pull")
    assert counted == [OPEN]


def test_connections_of_authenticated_clients_are_known_and_no_others(token_and_control):
    token, control = token_and_control
    known: list[str] = []
    control.on_known = known.append
    with pytest.raises(UnauthenticatedError):
        control.admit(control.caller(context(CLOSED)), "Pull")
    asyncio.run(control.no_such_method(context(CLOSED), "Nothing"))
    with pytest.raises(UnauthenticatedError):
        control.admit(control.caller(context(CLOSED, "unknown")), "Pull")
    assert known == []
    control.admit(control.caller(context(OPEN, token)), "Pull")
    asyncio.run(control.no_such_method(context(OPEN, token), "Nothing"))
    assert known == [OPEN, OPEN]


def test_a_host_that_is_kept_out_is_a_line_of_its_own(token_and_control, caplog):
    _, control = token_and_control
    control.kept_out("ipv4:10.0.0.1", 8)
    (line,) = caplog.records
    assert (line.getMessage(), line.host, line.one_in) == (Line.KEPT_OUT.value, "ipv4:10.0.0.1", 8)
