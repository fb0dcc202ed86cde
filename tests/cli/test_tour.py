"""The pages for new users are true: every command works, and shows what the page shows."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest
from stratamq_bench.ports import free_ports

from stratamq.formats.store_paths import UP_LOCK_PATH
from stratamq.rpc.rooms import LARGEST_PORT_OFFSET
from stratamq.service.room_lock import lock_holder
from tests.cli.processes import environment, with_fronts
from tests.cli.tour import differs, run, typed
from tests.support.brokers import geometry_settings
from tests.support.fixtures import geometry, unpack
from tests.support.forked_program import ForkedProgram

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
TRANSCRIPT = Path(__file__).with_name("first_hour.txt")
MOVING = "moving-from-rocketmq.md"
PAGES = {
    "README.md": README[: README.index("## In containers")],
    "coming-from.md": (ROOT / "docs" / "coming-from.md").read_text(),
    "tier.md": (ROOT / "docs" / "tier.md").read_text(),
    "operations.md": (ROOT / "docs" / "operations.md").read_text(),
    "scale.md": (ROOT / "docs" / "scale.md").read_text(),
    MOVING: (ROOT / "docs" / MOVING).read_text(),
}
OF_TWO_BROKERS = 20 + LARGEST_PORT_OFFSET + 1
"""Ports: a second one's begin 20 behind the first's."""
FIRST_HOUR = ("README.md", "coming-from.md")


@pytest.fixture
def place(tmp_path):
    """An empty directory; a broker that a page leaves running there ends with the test."""
    yield tmp_path
    for data in tmp_path.iterdir():
        process = lock_holder(data / UP_LOCK_PATH)
        if process is not None:
            os.kill(process, signal.SIGKILL)


@pytest.fixture
def programs(tmp_path_factory):
    """Where the shell finds `stratamq`, by page. The one that is installed takes half a second of a
    processor for each command: the first page has that, the others one that is forked."""
    forked = tmp_path_factory.mktemp("bin")
    with ForkedProgram(forked):
        yield lambda page: Path(sys.executable).parent if page == "README.md" else forked


def of_rocketmq(place: Path) -> dict[str, str]:
    """A store that RocketMQ wrote, as the page has it; the settings that its small files need."""
    store = unpack("5.5.1-small-clean", place).rename(place / "rocketmq")
    settings = (one.split("=") for one in geometry_settings(geometry(store)))
    return {f"STRATAMQ_{name.replace('.', '_').upper()}": value for name, value in settings}


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_is_what_is_seen(page, place, programs):
    steps = typed(PAGES[page])
    assert steps
    path = f"{programs(page)}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    variables = {"PATH": path, "HOME": str(place)}
    if page == MOVING:
        variables |= of_rocketmq(place)
    seen = run(
        [step.command for step in steps],
        place,
        with_fronts(environment()) | variables,
        free_ports(OF_TWO_BROKERS),
    )
    for step, shown in zip(steps, seen, strict=True):
        difference = differs(step.shown, shown)
        assert not difference, f"$ {step.command}\n{difference}"


def test_the_kept_transcript_of_a_first_hour_is_of_these_pages():
    """As scripts/first_hour.py printed it in an empty Debian 12."""
    first, *parts = re.split(r"^# .*\n", TRANSCRIPT.read_text(), flags=re.MULTILINE)
    screen = re.search(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert screen is not None
    assert first.startswith("".join(f"$ {line}\n" for line in screen[1].splitlines()))
    for name, part in zip(FIRST_HOUR, parts, strict=True):
        steps, kept = typed(PAGES[name]), typed(f"```console\n{part}```\n")
        assert [step.command for step in steps] == [one.command for one in kept]
        for step, one in zip(steps, kept, strict=True):
            assert not differs(step.shown, one.shown), step.command


def test_a_page_that_drifted_is_noticed():
    shown = ["┃ topic  ┃ lag ┃", "│ orders │   7 │"]
    assert not differs(shown, ["┏━━┓", "┃ topic ┃ lag ┃", "┡━━┩", "│ orders │ 1234 │"])
    assert not differs(["…", "│ orders │…"], ["a", "b", "orders 5 c d"])
    assert differs(shown, ["┃ topic ┃ lag ┃"])
    assert differs(shown, [*shown, "error: more"])
    assert differs(shown, ["┃ topic ┃ delay ┃", "│ orders │ 7 │"])
    assert differs(["everything has stopped"], [])
