"""Where a broker is looked for, and that a service which moved is found again."""

import pytest

from stratamq.errors import InvalidRequestError, UnavailableError
from stratamq.rpc import discovery
from stratamq.rpc.discovery import Endpoint
from stratamq.rpc.endpoints import Channels, Endpoints, parse_target
from stratamq.rpc.locating import FoundBroker
from stratamq.rpc.methods import METHODS
from stratamq.rpc.rooms import COMMITLOG, DISPATCHER


class FakeChannel:
    """A channel that only knows its address."""

    def __init__(self, address, options):
        self.address = address

    @classmethod
    def insecure_channel(cls, address, options):
        return cls(address, options)

    def unary_unary(self, path, **_):
        return lambda: (self.address, path)


def announce(root, room, port):
    discovery.write(root, room, Endpoint(f"127.0.0.1:{port}", "", 1))


def test_a_directory_is_a_store_whose_services_announce_themselves(tmp_path):
    announce(tmp_path, COMMITLOG, 4000)
    for target in (tmp_path, str(tmp_path)):
        assert parse_target(target).address(COMMITLOG) == "127.0.0.1:4000"
        with pytest.raises(UnavailableError, match="dispatcher"):
            parse_target(target).address(DISPATCHER)


def test_what_is_behind_an_address_is_not_known_before_it_was_asked():
    endpoints = parse_target("a:1, b:2,a:1")
    assert endpoints.searched and endpoints.unknown(COMMITLOG) and endpoints.names(DISPATCHER)
    asked = next(endpoints.plan()).questions
    assert [question.address for question in asked] == ["a:1", "b:2"]
    endpoints.found(FoundBroker("a:1", "broker-a", {COMMITLOG: "a:5"}, {"index": "hidden"}))
    assert not endpoints.unknown(DISPATCHER)
    assert endpoints.address(COMMITLOG) == "a:5"
    assert endpoints.known() == {COMMITLOG: "a:5"}
    with pytest.raises(UnavailableError, match="a:1: no dispatcher service has announced"):
        endpoints.address(DISPATCHER)
    with pytest.raises(UnavailableError, match="a:1: hidden"):
        endpoints.address("index")


def test_services_can_be_named_one_by_one():
    endpoints = parse_target("commitlog=a:1, dispatcher=[::1]:2,index=unix:/run/index")
    assert endpoints.address(COMMITLOG) == "a:1"
    assert endpoints.address(DISPATCHER) == "[::1]:2"
    assert endpoints.address("index") == "unix:/run/index"


@pytest.mark.parametrize(
    "target", ["", "nowhere", "a:b", "log=a:1", "a:99999", "/no/such/dir", "a:1,b", ":1", "a:1,"]
)
def test_anything_else_is_refused(target):
    with pytest.raises(InvalidRequestError):
        parse_target(target)


def test_a_directory_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidRequestError, match="no directory"):
        parse_target(tmp_path / "missing")


def test_a_service_that_moved_is_found_again(tmp_path):
    announce(tmp_path, COMMITLOG, 4000)
    channels = Channels(Endpoints(tmp_path), FakeChannel)
    method = METHODS["GetStatus"]
    before = channels.callable(method)
    assert before() == ("127.0.0.1:4000", method.path)
    assert not channels.renew(COMMITLOG)
    assert channels.callable(method) is before
    announce(tmp_path, COMMITLOG, 4001)
    assert channels.callable(method) is before
    assert channels.renew(COMMITLOG)
    assert channels.callable(method)() == ("127.0.0.1:4001", method.path)
    assert sorted(channel.address for channel in channels.close()) == [
        "127.0.0.1:4000",
        "127.0.0.1:4001",
    ]


def test_a_service_that_took_back_its_announcement_stays_where_it_was(tmp_path):
    announce(tmp_path, COMMITLOG, 4000)
    channels = Channels(Endpoints(tmp_path), FakeChannel)
    channels.callable(METHODS["GetStatus"])
    discovery.remove(tmp_path, COMMITLOG, 1)
    assert not channels.renew(COMMITLOG)
    assert channels.callable(METHODS["GetStatus"])()[0] == "127.0.0.1:4000"
