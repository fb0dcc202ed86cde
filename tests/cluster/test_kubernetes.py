"""A shard on a real Kubernetes heals by itself, and loses nothing that it acknowledged."""

import subprocess

import pytest

from tests.cluster import node
from tests.cluster.judging import LONGEST_S, TTL_S, healed, judge
from tests.cluster.page import commands
from tests.cluster.shard import PODS
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def test_what_is_sent_over_the_service_is_found_by_queue_and_key(shard):
    shard.in_pod(
        "client", "client", "sh", "-c",
        "seq 1 100 | stratamq produce first --key k --address stratamq-client:10911",
    )  # fmt: skip
    assert shard.stored("first") == list(range(1, 101))

    def is_indexed() -> bool:
        try:
            found = shard.client("query", "key", "first", "k", "--output", "json")
        except AssertionError:
            return False  # it has none yet
        return '"body": "100"' in found

    until(is_indexed, "the index has the last one")
    assert shard.masters() == {shard.leader()}


def test_a_switchover_is_hardly_noticed(shard):
    healed(shard)
    before = shard.leader()
    other = next(pod for pod in PODS if pod != before)
    with shard.load("switched", 15) as load:
        assert load.begun.wait(60)
        shard.switch_over(other)
    judge(shard, "switched", load.acknowledged, LONGEST_S["handover"])


def test_a_pod_that_is_drained_hands_over_first(shard):
    healed(shard)
    before = shard.leader()
    with shard.load("drained", 40) as load:
        assert load.begun.wait(60)
        shard.kubectl("delete", "pod", before, "--wait=false")
    judge(shard, "drained", load.acknowledged, LONGEST_S["handover"])


@pytest.mark.parametrize("loss", ["pod", "volume"])
def test_a_lost_leader_is_replaced(shard, loss):
    """With its volume: it comes back as a new member, and has everything again."""
    healed(shard)
    before = shard.leader()
    volume = shard.volume(before)
    with shard.load(f"lost-{loss}", TTL_S + 45) as load:
        assert load.begun.wait(60)
        if loss == "pod":
            shard.kubectl("delete", "pod", before, "--force", "--grace-period=0", "--wait=false")
        else:
            shard.lose_volume(before)
    judge(shard, f"lost-{loss}", load.acknowledged, LONGEST_S["lost"])
    healed(shard)
    assert (shard.volume(before) == volume) == (loss == "pod")


@pytest.mark.parametrize("fault", [node.frozen, node.cut_off], ids=["frozen", "cut-off"])
def test_a_leader_that_answers_no_call_is_replaced_and_comes_back(shard, fault):
    """For twice the ttl; its containers are restarted meanwhile, or continue where they were."""
    if not shard.has_node:
        pytest.skip("needs the processes and the network of a node")
    healed(shard)
    before = shard.leader()
    name = fault.__name__.replace("_", "-")
    with shard.load(name, 2 * TTL_S) as load:
        assert load.begun.wait(60)
        with fault(shard.uid(before)):
            load.wait()
    judge(shard, name, load.acknowledged, LONGEST_S["lost"])
    healed(shard)


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "forgotten"])
def test_a_leaders_volume_that_is_put_back_to_a_backup_loses_nothing(shard, marked):
    """Whether or not somebody thought of `stratamq replica restored`."""
    healed(shard)
    last, topic = PODS[-1], f"restored-{'marked' if marked else 'forgotten'}"
    shard.switch_over(last)
    with shard.load(topic, 5) as before:
        assert before.begun.wait(60)
    backup = shard.back_up(last)
    with shard.load(topic, 10, first=1_000_000) as after:
        assert after.begun.wait(60)
    with shard.scaled_to(2):
        shard.put_back(last, backup, marked=marked)
    healed(shard)
    shard.switch_over(last)
    stored = shard.stored(topic)
    assert len(stored) == len(set(stored))
    assert before.acknowledged.confirmed | after.acknowledged.confirmed <= set(stored)


def test_a_rolling_restart_loses_nothing(shard):
    healed(shard)
    with shard.load("rolled", 120) as load:
        assert load.begun.wait(60)
        shard.kubectl("rollout", "restart", "statefulset", "stratamq-broker")
        shard.until_ready()
    judge(shard, "rolled", load.acknowledged, LONGEST_S["handover"])


def test_the_leader_is_updated_last_and_the_lead_changes_once(shard):
    """By the commands of docs/kubernetes.md; a switchover comes first."""
    healed(shard)
    with shard.load("before", 900) as load:  # an empty log is taken over by no member
        assert load.begun.wait(60)
        load.finish()
    shard.switch_over(PODS[-1])
    ours = {"-n messages": f"-n {shard.namespace}", "OVERLAY": str(shard.overlay)}
    switchover, apply, wait = commands("A new image", **ours)
    before = {pod: shard.uid(pod) for pod in PODS}
    with shard.leaders() as leaders:
        with shard.load("to-the-first", 900) as load:
            assert load.begun.wait(60)
            run(switchover)
            load.finish()
        judge(shard, "to-the-first", load.acknowledged, LONGEST_S["handover"])
        shard.ask_for_pods("2")
        with shard.load("updated", 900) as load:
            assert load.begun.wait(60)
            run(apply)
            run(wait)
            healed(shard)
            load.finish()
        judge(shard, "updated", load.acknowledged, LONGEST_S["handover"])
    assert not {shard.uid(pod) for pod in PODS} & set(before.values())
    print(f"led: {', '.join(leaders)}")
    assert leaders[:2] == [PODS[-1], PODS[0]]
    assert len(leaders) == 3


def run(command: str) -> None:
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=600)
    print(done.stdout, end="")
    assert done.returncode == 0, f"{command}: {done.stderr}{done.stdout}"


def test_a_second_disruption_is_refused(shard):
    healed(shard)
    shard.kubectl("delete", "pod", PODS[2], "--wait=false")
    until(
        lambda: '"disruptionsAllowed": 0' in shard.kubectl("get", "pdb", "-o", "json"),
        "the budget is used",
    )
    healed(shard)
