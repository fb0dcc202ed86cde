"""RocketMQ's Spring starter 2.3.1, unchanged, at a gateway: its template, its listeners and its
transaction listener, in an application of `tests/classic_clients/java/src/spring`."""

import pytest

from stratamq.client import Topic, connect
from tests.gateway.test_java_clients import build, run, served

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]

TOPICS = ("plain", "ordered", "failing", "decided", "pulled")
"""Each has a group of its name, but for what stands in front of it."""
QUEUES = 4
ROWS = ("template", "ordered", "delayed", "retried", "transactions", "received")


def test_an_application_with_the_spring_starter_sees_what_it_is_to_see(tmp_path):
    build("spring")
    with served(tmp_path) as address:
        with connect(tmp_path / "store") as client:
            for name in TOPICS:
                topic = f"spring-{name}"
                client.admin.create_topic(Topic(topic, QUEUES, QUEUES))
                # Otherwise the application's groups begin behind what it sends before they do.
                begins = {(topic, queue_id): 0 for queue_id in range(QUEUES)}
                client.commit_offsets(name, begins)
        assert run("spring", address, *ROWS) == "".join(f"{row}\tok\n" for row in ROWS)
