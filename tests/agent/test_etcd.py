"""The election's value in a real etcd."""

import asyncio
import contextlib

import pytest
from stratamq_bench.failover import Etcd
from stratamq_bench.ports import free_port

from stratamq.election.etcd import EtcdStore
from stratamq.election.opening import open_store, store_fault
from stratamq.election.store import ABSENT
from stratamq.errors import ConfigurationError, CorruptRecordError, UnavailableError
from stratamq.files.clock import SystemClock
from stratamq.formats.election_state import (
    decode_election_state,
    encode_election_state,
)
from stratamq.rpc.credentials import Credentials
from tests.agent.store_rules import STATE, created_once_and_replaced_by_who_has_read_it
from tests.support.freezing import freeze, thaw


async def _with_store(endpoints: list[str], work, timeout_s: float = 20.0, key: str = "t/k"):
    store = EtcdStore(endpoints, key, timeout_s, Credentials())
    try:
        return await work(store)
    finally:
        await store.close()


def ask(etcd: Etcd, work, *more: str, **options):
    endpoints = [*more, f"127.0.0.1:{etcd.port}"]
    return asyncio.run(_with_store(endpoints, work, **options))


def test_a_value_is_created_once_and_replaced_by_who_has_read_it(etcd):
    ask(etcd, created_once_and_replaced_by_who_has_read_it)


def test_keys_are_apart(etcd):
    ask(etcd, lambda store: store.swap(STATE, ABSENT), key="one/x")
    assert ask(etcd, lambda store: store.read(), key="two/x").state is None


def test_another_member_of_etcd_is_asked_when_one_does_not_answer(etcd):
    unreachable = f"127.0.0.1:{free_port()}"

    async def work(store: EtcdStore) -> None:
        assert await store.swap(STATE, ABSENT)
        assert (await store.read()).state == STATE

    ask(etcd, work, unreachable)


def test_a_swap_that_was_not_answered_is_not_known_to_be_done(etcd):
    async def work(store: EtcdStore) -> None:
        found = None
        while found is None:
            with contextlib.suppress(UnavailableError):  # it is late on a busy machine
                found = await store.read()
        freeze(etcd.pid)
        with pytest.raises(UnavailableError, match="does not answer"):
            await store.swap(STATE, found.revision)
        with pytest.raises(UnavailableError):
            await store.read()
        thaw(etcd.pid)

    ask(etcd, lambda store: store.read())
    ask(etcd, work, timeout_s=1.0)


def test_a_connection_that_is_gone_without_a_word_is_replaced(etcd):
    """As after a host or its address was lost: nothing is answered, nothing is closed."""

    async def scenario() -> None:
        writers: list[asyncio.StreamWriter] = []
        lost: list[asyncio.StreamWriter] = []

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            writers.append(target)
            while data := await source.read(65536):
                if target not in lost:
                    target.write(data)

        async def relay(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            onward, backward = await asyncio.open_connection("127.0.0.1", etcd.port)
            await asyncio.gather(copy(source, backward), copy(onward, target))

        server = await asyncio.start_server(relay, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        store = EtcdStore([f"127.0.0.1:{port}"], "t/k", 5.0, Credentials())
        assert await store.swap(STATE, ABSENT)
        lost += writers
        with pytest.raises(UnavailableError):
            await store.read()
        assert (await store.read()).state == STATE
        await store.close()
        server.close()
        for writer in writers:
            writer.close()

    ask(etcd, lambda store: store.read())  # until it listens
    asyncio.run(scenario())


def test_a_value_that_is_none_is_named():
    assert decode_election_state(encode_election_state(STATE)) == STATE
    for raw in (b"", b"[]", b'{"format": 2}', b'{"format": 1}'):
        with pytest.raises(CorruptRecordError, match="no state of an election"):
            decode_election_state(raw)


@pytest.mark.parametrize(
    "setting",
    [
        "",
        "etcd",
        "etcd://",
        "zk://a:1",
        "etcd://a",
        "etcds://a",
        "etcd://a:1/x/y",
        "kubernetes",
        "kubernetes://a/b",
        "etcd://a:1,b",
    ],
)
def test_a_setting_that_names_no_store_is_refused(setting):
    assert store_fault(setting)
    with pytest.raises(ConfigurationError, match=r"agent\.store"):
        open_store(setting, "broker-a", 30, 1.0, SystemClock(), Credentials())
