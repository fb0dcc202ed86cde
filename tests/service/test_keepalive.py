"""What keeps an idle connection: the options that gRPC gets."""

from pathlib import Path

from grpc._cython import cygrpc

from stratamq.rpc.endpoints import CHANNEL_OPTIONS
from stratamq.service.server import Server


def test_every_option_of_channels_and_servers_is_one_that_grpc_knows():
    # gRPC ignores what it does not know: an idle connection ended by a third ping, for example.
    library = Path(cygrpc.__file__).read_bytes()
    options = (*CHANNEL_OPTIONS, *Server("test")._options)
    assert [name for name, _ in options if name.encode() + b"\0" not in library] == []
