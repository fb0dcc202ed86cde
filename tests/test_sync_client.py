"""The synchronous client is what the asyncio one gives."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CLIENT = Path("src/stratamq/client")


def generator(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, root / "scripts" / "gen_sync_client.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.fixture
def copy(tmp_path):
    """What the generator reads and writes, to be damaged."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / CLIENT, tmp_path / CLIENT, ignore=ignored)
    (tmp_path / "scripts").mkdir()
    for file in ("scripts/gen_sync_client.py", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def test_the_synchronous_client_is_what_the_asyncio_one_gives():
    done = generator(ROOT, "--check")
    assert done.returncode == 0, done.stderr


def test_a_changed_source_an_edited_a_stale_and_a_missing_file_are_found_and_mended(copy):
    source, generated = copy / CLIENT / "_async", copy / CLIENT / "_sync"
    (source / "admin.py").write_text(
        (source / "admin.py").read_text() + "\n\nasync def f(x):\n    return await x\n"
    )
    (generated / "calls.py").write_text('"""Edited."""\n')
    (generated / "gone.py").write_text('"""Its source was removed."""\n')
    (generated / "consumer.py").unlink()
    done = generator(copy, "--check")
    assert done.returncode == 1
    for name in ("admin.py", "calls.py", "gone.py", "consumer.py"):
        assert f"{CLIENT}/_sync/{name} is not what _async gives" in done.stderr
    assert "producer.py" not in done.stderr
    assert generator(copy).returncode == 0
    assert generator(copy, "--check").returncode == 0
    assert (generated / "admin.py").read_text().endswith("def f(x):\n    return x\n")


def test_nothing_of_asyncio_is_left_and_generated_files_are_marked():
    for path in sorted((ROOT / CLIENT / "_sync").glob("*.py")):
        text = path.read_text()
        assert text.startswith(f"# Generated from _async/{path.name} by scripts/gen_sync_client.py")
        assert not any(word in text for word in ("await", "async ", "Async", "asyncio"))
