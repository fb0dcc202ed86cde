"""Every RPC of the services has its method, framed by hand where the contract requires it."""

from stratamq.api.v1 import (
    agent_pb2,
    commitlog_pb2,
    console_pb2,
    delivery_pb2,
    dispatcher_pb2,
    gateway_pb2,
    index_pb2,
    janitor_pb2,
    replication_pb2,
    tier_pb2,
)
from stratamq.rpc.methods import METHODS

MODULES = (
    agent_pb2,
    commitlog_pb2,
    console_pb2,
    delivery_pb2,
    dispatcher_pb2,
    gateway_pb2,
    index_pb2,
    janitor_pb2,
    replication_pb2,
    tier_pb2,
)


def test_every_rpc_is_there_under_its_path():
    paths = {
        f"/{service.full_name}/{method.name}"
        for module in MODULES
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert {method.path for method in METHODS.values()} == paths
    assert len(METHODS) == len(paths)


def test_kinds_follow_the_contract():
    assert METHODS["Append"].kind == "unary_unary"
    assert METHODS["AppendStream"].kind == METHODS["Follow"].kind == "stream_stream"
    assert METHODS["ReadRange"].kind == METHODS["PullStream"].kind == "unary_stream"


def test_only_messages_with_large_fields_are_left_to_the_caller():
    framed = {name for name, method in METHODS.items() if not method.serialize}
    assert framed == {"AppendStream", "AppendData"}
    unframed = {name for name, method in METHODS.items() if not method.deserialize}
    assert unframed == {"ReadRange", "Pull", "PullStream", "FetchMessages"}
