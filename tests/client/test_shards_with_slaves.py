"""Brokers of several names of which one has a slave: its failover is no business of the others."""

from stratamq.client import Topic
from stratamq.rpc import discovery
from tests.client.test_several_addresses import DEADLINE_S, address, bodies
from tests.ha.brokers_of_one_name import Brokers
from tests.support.brokers import COMMITLOG, DISPATCHER, Broker


def test_a_demoted_master_of_one_name_is_left_for_its_slave_and_other_names_continue(
    tmp_path, opened
):
    pair = Brokers(
        tmp_path / "pair", "a", "b", role="SYNC_MASTER", rooms=[DISPATCHER],
        settings=["commitlog.broker_name=pair"],
    )  # fmt: skip
    single = Broker(
        tmp_path / "single",
        tmp_path / "logs",
        ["commitlog.broker_name=single", "commitlog.followers=dispatcher"],
    )
    with pair, single:
        pair.start("a", "b")
        pair.serving("a")
        pair.counted("a")
        pair.follows("b", "a")
        single.start([COMMITLOG, DISPATCHER])
        endpoint = discovery.read(single.root, COMMITLOG)
        assert endpoint is not None
        where = ",".join([address(pair, "a"), address(pair, "b"), endpoint.address])
        with opened(where, retry_timeout_s=DEADLINE_S) as client:
            client.admin.create_topic(Topic("t", 1, 1))
            assert [one.broker for one in client.topics("t")] == ["pair", "single"]
            options = {"follow": True, "group": "g", "refresh_s": 0.5, "commit_interval_s": 0.1}
            with client.producer() as producer, client.consume("t", **options) as reader:
                first = [producer.send("t", body) for body in bodies(0, 20)]
                assert {one.result(DEADLINE_S).broker for one in first} == {"pair", "single"}
                pair.demote("a")
                meanwhile = [producer.send("t", body) for body in bodies(20, 20)]
                pair.promote("b")
                assert all(one.result(DEADLINE_S).stored for one in meanwhile)
                sent = [client.send("t", body) for body in bodies(40, 4)]
                missing = set(bodies(0, 44))
                while missing:
                    missing.discard(next(reader).body)
                reader.commit()
            assert {one.broker for one in sent} <= {"pair", "single"}
            assert {one.broker: one.lag for one in client.groups()} == {"pair": 0, "single": 0}
        with opened(where, broker="pair", retry_timeout_s=DEADLINE_S) as chosen:
            assert chosen.services()[COMMITLOG] == address(pair, "b")
        stored = [one.body for one in opened(where, retry_timeout_s=DEADLINE_S).consume("t")]
        assert sorted(stored) == sorted(bodies(0, 44)), "each once"
