"""A shard of `tiered-shard` on a real Kubernetes: what its logs have no more comes from a bucket,
from whichever member leads."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import in_namespace
from tests.cluster.judging import healed
from tests.cluster.shard import ADDRESSES, PODS, Shard, pod_of
from tests.support.s3_servers import ACCESS_KEY, SECRET_KEY, versitygw

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

PORT, SEGMENT = 7070, 1 << 20
SENT = 40
"""Eleven fill a segment."""
SCRIPT = Path(__file__).with_name("tiered.py").read_text(encoding="utf-8")
SETTINGS = {
    "STRATAMQ_TIER_TARGET": "s3://messages/prefix",
    "STRATAMQ_TIER_ENDPOINT": f"http://s3:{PORT}",
    "STRATAMQ_TIER_ALLOW_HTTP": "true",
    "STRATAMQ_TIER_BATCH_WAIT_MS": "200",
    "STRATAMQ_TIER_SCAN_INTERVAL_MS": "100",
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
}
SMALL_SEGMENTS = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "any"},
    "spec": {
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "commitlog",
                        "env": [
                            {"name": "STRATAMQ_COMMITLOG_SEGMENT_BYTES", "value": str(SEGMENT)}
                        ],
                    },
                    {"name": "tier", "resources": {"requests": {"cpu": "10m"}}},
                ]
            }
        }
    },
}
PATCHES = (
    {"target": {"kind": "StatefulSet"}, "patch": json.dumps(SMALL_SEGMENTS)},
    {
        "target": {"kind": "NetworkPolicy", "name": ".*tier"},
        "patch": json.dumps(
            [{"op": "add", "path": "/spec/egress/-", "value": {"ports": [{"port": PORT}]}}]
        ),
    },
)


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shard]:
    program = versitygw()
    if program is None:
        pytest.skip("`make storage-servers` installs the S3 server that this needs")
    place = tmp_path_factory.mktemp("overlay")
    with in_namespace(place, "tiered-shard", PATCHES) as shard:
        serve_bucket(shard, Path(program))
        literals = [f"--from-literal={name}={value}" for name, value in SETTINGS.items()]
        shard.kubectl("create", "secret", "generic", "tier", *literals)
        shard.apply()
        yield shard


def serve_bucket(shard: Shard, program: Path) -> None:
    """An S3 server in a pod, with the bucket `messages`."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s3"},
        "spec": {"selector": {"stratamq-s3": "true"}, "ports": [{"port": PORT}]},
    }
    for item in (pod_of(shard.image, "s3"), service):
        shard.kubectl("apply", "-f", "-", given=json.dumps(item))
    shard.kubectl("wait", "--for=condition=Ready", "pod/s3", "--timeout=300s")
    take = "cat > /tmp/versitygw && chmod +x /tmp/versitygw && mkdir -p /tmp/data/messages"
    words = ["kubectl", "--namespace", shard.namespace, "exec", "-i", "s3", "--", "sh", "-c", take]
    with program.open("rb") as file:
        subprocess.run(words, stdin=file, check=True, timeout=300)
    serve = (
        f"ROOT_ACCESS_KEY={ACCESS_KEY} ROOT_SECRET_KEY={SECRET_KEY} setsid /tmp/versitygw "
        f"--port 0.0.0.0:{PORT} --quiet posix /tmp/data >/tmp/server.log 2>&1 </dev/null &"
    )
    shard.in_pod("s3", "client", "sh", "-c", serve)


def sent_and_read(shard: Shard, first: int) -> tuple[list[int], int]:
    """SENT more messages; all that are read once the log has deleted what it may, and where it
    begins then."""
    words = (ADDRESSES, "orders", str(first), str(SENT), str(SEGMENT))
    output = shard.in_pod("client", "client", "python3", "-c", SCRIPT, *words)
    *numbers, last = output.splitlines()
    return sorted(map(int, numbers)), int(last.removeprefix("log "))


def test_messages_come_from_the_bucket_also_under_the_next_leader(tiered: Shard):
    healed(tiered)
    numbers, minimum = sent_and_read(tiered, 0)
    assert numbers == list(range(SENT))
    assert minimum >= 3 * SEGMENT, "the log has deleted what the bucket has"
    before = tiered.leader()
    tiered.switch_over(next(pod for pod in PODS if pod != before))
    healed(tiered)
    numbers, later = sent_and_read(tiered, SENT)
    assert numbers == list(range(2 * SENT))
    assert later >= minimum + 3 * SEGMENT
