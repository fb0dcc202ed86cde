"""Damaged stores under the real services: they start or refuse with a message, `stratamq status`
names the damage, and no output contains a traceback."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stratamq_torture.damage.engines import Template, make_template
from stratamq_torture.damage.trial import MEMORY
from stratamq_torture.processes.services import Services, until

from stratamq.cli.status import describe
from stratamq.client import Client
from stratamq.errors import CorruptionError, StrataError
from stratamq.rpc.endpoints import Endpoints
from stratamq.rpc.rooms import COMMITLOG, DISPATCHER, ESSENTIAL, INDEX
from stratamq.service.server import EXIT_STORE_REFUSED

SETTINGS = ("commitlog.reserve_bytes=0", "commitlog.segment_bytes=16384")
REFUSAL_S = 30.0


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    memory = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="stratamq-damage-", dir=memory) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def template(directory: Path) -> Template:
    (directory / "made").mkdir()
    return make_template(directory / "made", 1, clean=True, property_checksum=True)


@pytest.fixture
def root(template: Template, directory: Path) -> Iterator[Path]:
    root = directory / "store"
    template.copy(root)
    yield root
    shutil.rmtree(root)


def replaced_by_directory(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir(parents=True)


def replaced_by_fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


REFUSALS: list[tuple[str, str, Callable[[Path], None], str]] = [
    (COMMITLOG, "commitlog/00000000000000016384", Path.unlink, "A segment is missing"),
    (COMMITLOG, "lock", replaced_by_directory, "Is a directory"),
    (COMMITLOG, "stratamq/commitlog.lock", replaced_by_fifo, "stratamq/commitlog.lock"),
    (DISPATCHER, "stratamq/dispatcher.lock", replaced_by_directory, "Is a directory"),
    (INDEX, "stratamq/run/index.json", replaced_by_directory, "index.json cannot be written"),
]


@pytest.mark.parametrize("room, path, damage, reason", REFUSALS, ids=[r[1] for r in REFUSALS])
def test_a_service_refuses_in_one_sentence(root: Path, tmp_path: Path, room, path, damage, reason):
    damage(root / path)
    with Services(root, tmp_path / "logs", SETTINGS) as services:
        services.spawn(room)
        assert until(lambda: services.ended(room), REFUSAL_S), services.output(room)
        assert services._processes[room].returncode == EXIT_STORE_REFUSED, services.output(room)
        written = services.output(room)
        sentences = [line for line in written.splitlines() if line.startswith("store refused: ")]
        assert len(sentences) == 1 and reason in sentences[0], written
        assert "Traceback" not in written


FOUND: list[tuple[str, str, Callable[[Path], None], str]] = [
    (COMMITLOG, "config/topics.json", replaced_by_fifo, "config/topics.json"),
    (COMMITLOG, "stratamq/queue-offsets.journal", flipped, "queue-offsets.journal"),
    (DISPATCHER, "consumequeue/orders/0/00000000000000000000", Path.unlink, "files are missing"),
    (DISPATCHER, "stratamq/dispatcher.json", flipped, "dispatcher.json"),
    (INDEX, "stratamq/index.json", replaced_by_directory, "stratamq/index.json"),
]


@pytest.mark.parametrize("room, path, damage, reason", FOUND, ids=[f[1] for f in FOUND])
def test_status_names_what_a_start_found(template, root, tmp_path, room, path, damage, reason):
    damage(root / path)
    with Services(root, tmp_path / "logs", SETTINGS) as services:
        services.start()
        with Client(Endpoints(root), timeout_s=60) as client:
            _, notes = describe(room, Endpoints(root), client)
            assert any(reason in str(note["text"]) for note in notes), notes
            for message in template.messages:
                pulled = client.pull(message.topic, message.queue_id, message.queue_offset)
                assert pulled.messages[0].frame == message.raw
        services.stop()
        assert not any("Traceback" in services.output(each) for each in ESSENTIAL)


def test_a_damaged_message_is_data_loss_everywhere_and_in_the_status(template, root, tmp_path):
    """In a sealed segment, below all watermarks: no service reads it before a client does."""
    victim = template.messages[40]
    with (root / "commitlog" / "00000000000000000000").open("r+b") as segment:
        segment.seek(victim.offset + 50)
        byte = segment.read(1)[0]
        segment.seek(victim.offset + 50)
        segment.write(bytes([byte ^ 1]))
    with Services(root, tmp_path / "logs", SETTINGS) as services:
        services.start()
        with Client(Endpoints(root), timeout_s=60) as client:
            with pytest.raises(CorruptionError, match=f"log offset {victim.offset}"):
                client.pull(victim.topic, victim.queue_id, victim.queue_offset)
            assert not client.query_unique_key(victim.topic, victim.unique_key).messages
            others = [m for m in template.messages if m is not victim]
            for message in others[::10]:
                pulled = client.pull(message.topic, message.queue_id, message.queue_offset)
                assert pulled.messages[0].frame == message.raw
            for room in (DISPATCHER, INDEX):
                _, notes = describe(room, Endpoints(root), client)
                lines = [str(note["text"]) for note in notes]
                assert any(str(victim.offset) in line for line in lines), lines
            with pytest.raises(StrataError, match="damaged"):
                client.message_at(victim.offset)
