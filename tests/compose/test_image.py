"""The image by itself: without a command it is a whole broker in one container."""

import secrets
from collections.abc import Iterator

import pytest

from tests.compose.stack import docker, until

pytestmark = pytest.mark.compose


@pytest.fixture
def whole(image: str) -> Iterator[str]:
    name = f"{image.partition(':')[0]}-{secrets.token_hex(3)}"
    limits = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL")
    docker("run", "--detach", "--name", name, *limits, image)
    try:
        yield name
    finally:
        docker("rm", "--force", "--volumes", name)


def test_an_image_without_a_command_is_a_whole_broker(whole: str):
    def health() -> str:
        return docker("inspect", "-f", "{{.State.Health.Status}}", whole)

    until(lambda: health() == "healthy", "the broker to be healthy")
    assert "kernel: C)" in docker("exec", whole, "stratamq", "--version")
    assert "1" in docker("exec", whole, "sh", "-c", "echo one | stratamq produce topic")
    assert "one" in docker("exec", whole, "stratamq", "consume", "topic", "--output", "json")
    docker("stop", "--time", "60", whole)
    assert docker("inspect", "-f", "{{.State.ExitCode}}", whole) == "0"
    output = docker("logs", whole)
    assert "everything has stopped" in output
