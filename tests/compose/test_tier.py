"""One broker with a tier in an S3 server: `docker compose -f compose.yaml -f tier.yaml up --wait`.
What the log has no more is read from the bucket; a lost volume is restored from it alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stratamq.client import SendStatus
from tests.compose.conftest import running
from tests.compose.stack import ONE, Shape, Stack, docker, until
from tests.support.s3_servers import ACCESS_KEY, SECRET_KEY, versitygw

pytestmark = pytest.mark.compose

TIERED = Shape((*ONE.files, "tier.yaml", "s3.yaml"), others=("tier",))
SEGMENT = 1 << 20
TARGET, ENDPOINT = "s3://messages/prefix", "http://s3:7070"
TOPIC, GROUP = "orders", "billing"
MESSAGES, BODY = 40, b"m" * 100_000
"""Eleven of them fill a segment."""
SERVER = """
services:
  s3:
    image: ${{STRATAMQ_IMAGE}}
    command:
      - sh
      - -c
      - mkdir -p /data/messages && exec /opt/versitygw --port 0.0.0.0:7070 --quiet posix /data
    environment: {{ROOT_ACCESS_KEY: "{access}", ROOT_SECRET_KEY: "{secret}"}}
    volumes: ["{program}:/opt/versitygw:ro", "s3:/data"]
    healthcheck: {{test: [CMD, bash, -c, "</dev/tcp/127.0.0.1/7070"], interval: 2s, retries: 60}}
volumes:
  s3: {{}}
"""


@pytest.fixture(scope="module")
def tiered(tree: Path, session: str, image: str) -> Iterator[Stack]:
    program = versitygw()
    if program is None:
        pytest.skip("`make storage-servers` installs the S3 server that this needs")
    settings = {
        "STRATAMQ_TIER_BATCH_WAIT_MS": "200",
        "STRATAMQ_TIER_SCAN_INTERVAL_MS": "100",
        "STRATAMQ_TIER_CONSUMER_OFFSETS_INTERVAL_MS": "200",
    }
    stack = Stack(tree, f"{session}-tier", image, settings, TIERED)
    stack.set_compose(
        [
            f"STRATAMQ_TIER_TARGET={TARGET}",
            f"STRATAMQ_TIER_ENDPOINT={ENDPOINT}",
            "STRATAMQ_TIER_ALLOW_HTTP=true",
            f"AWS_ACCESS_KEY_ID={ACCESS_KEY}",
            f"AWS_SECRET_ACCESS_KEY={SECRET_KEY}",
            "AWS_REGION=us-east-1",
        ]
    )
    stack.add_file("s3.yaml", SERVER.format(access=ACCESS_KEY, secret=SECRET_KEY, program=program))
    yield from running(stack, build=False)


def bodies(stack: Stack) -> list[bytes]:
    with stack.client() as client:
        return sorted(message.body for message in client.consume(TOPIC))


def everything_is_there(stack: Stack) -> None:
    assert bodies(stack) == sorted(BODY + b"%d" % number for number in range(MESSAGES))
    with stack.client() as client:
        for number in (0, MESSAGES - 1):
            found = until(
                lambda key=f"key-{number}": client.query_key(TOPIC, key).messages,
                "the message by its key",
            )
            assert [one.body for one in found] == [BODY + b"%d" % number]


def test_messages_come_back_from_the_bucket_without_segments_and_without_the_volume(tiered: Stack):
    with tiered.client() as client:
        for number in range(MESSAGES):
            result = client.send(TOPIC, BODY + b"%d" % number, keys=[f"key-{number}"])
            assert result.status is SendStatus.PUT_OK
        end = client.log_state().appended_offset
        until(lambda: client.admin.tier_state().committed_offset >= end, "all in the bucket")
        below = end - end % SEGMENT
        until(lambda: client.admin.delete_below(below)[0] >= below, "the segments to go")
    until(
        lambda: int(tiered.look("ls /data/commitlog").split()[0]) >= below > 0, "their files to go"
    )
    everything_is_there(tiered)

    with tiered.client() as client:
        committed = {(TOPIC, queue.queue_id): queue.max_offset for queue in client.queues(TOPIC)}
        client.commit_offsets(GROUP, committed)
        state = client.admin.tier_state
        until(lambda: not state().queues_not_indexed, "the keys in the bucket")
    until(
        lambda: tiered.execute("s3", "grep", "-rl", GROUP, "/data/messages", check=False),
        "the group's offsets in the bucket",
    )
    tiered.run("stop")
    tiered.run("rm", "--force", *tiered.services())
    tiered.remove_volume("data")
    tiered.run("start", "s3")
    done = tiered.run(
        "run", "--rm", "--no-deps", "-T", "-e", f"AWS_ENDPOINT={ENDPOINT}", "tier",
        "stratamq", "tier", "restore", TARGET, "/data", "--segment-bytes", str(SEGMENT),
    )  # fmt: skip
    assert f"restored {MESSAGES} messages" in done.stdout + done.stderr
    tiered.up()
    everything_is_there(tiered)
    with tiered.client() as client:
        assert client.committed_offsets(GROUP, TOPIC) == committed
        assert client.send(TOPIC, b"after").status is SendStatus.PUT_OK


def test_a_bucket_that_hangs_holds_up_no_message(tiered: Stack):
    docker("pause", tiered.container("s3"))
    try:
        with tiered.client() as client:
            assert client.send("apart", b"stored meanwhile").status is SendStatus.PUT_OK
    finally:
        docker("unpause", tiered.container("s3"))
    with tiered.client() as client:
        end = client.log_state().appended_offset
        until(lambda: client.admin.tier_state().committed_offset >= end, "the bucket to catch up")
