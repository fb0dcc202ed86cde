"""The programs that tests need beside Python's packages, and the script that installs them."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from project_files import project_files

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts" / "install_test_tools.sh"
TOOLS = dict(re.findall(r"([\w.]+):([\w-]+)", SCRIPT.read_text().split("TOOLS=(")[1].split(")")[0]))
ELSEWHERE = {
    "git": "a checkout has it",
    "go": "make test-interop",
    "java": "make test-interop",
    "kubectl": "make test-cluster",
    "versitygw": "make storage-servers",
}


def with_programs(directory: Path, *programs: str) -> dict[str, str]:
    """An environment whose PATH has these alone, and that of a script."""
    directory.mkdir()
    for name in (*programs, "bash", "env", "dirname"):
        found = shutil.which(name)
        (directory / name).symlink_to(found or "/bin/true")
    return os.environ | {"PATH": str(directory)}


def test_every_program_that_tests_look_for_is_installed_or_comes_from_elsewhere():
    sought = set()
    for name in project_files():
        if not name.startswith(("tests/", "torture/", "benchmarks/")) or not name.endswith(".py"):
            continue
        text = (ROOT / name).read_text()
        sought |= set(re.findall(r'shutil\.which\("([\w.]+)"\)', text))
        for table in re.findall(r"^_?TOOLS = (\{.*?\})", text, re.MULTILINE | re.DOTALL):
            sought |= set(re.findall(r'"([\w.]+)": "', table))
    assert sought >= {"etcd", "promtool", "ip", "mkfs.ext4"}
    assert sought - ELSEWHERE.keys() <= TOOLS.keys()


def test_where_everything_is_here_nothing_is_asked_of_the_user(tmp_path):
    environment = with_programs(tmp_path / "bin", *TOOLS)
    done = subprocess.run([SCRIPT], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("missing", ["etcd", "promtool"])
def test_a_user_who_cannot_install_reads_what_is_missing_and_what_to_type(tmp_path, missing):
    environment = with_programs(tmp_path / "bin", *(TOOLS.keys() - {missing}), "id")
    done = subprocess.run([SCRIPT], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"not here: {missing}\n" in done.stderr
    assert f"apt-get install --no-install-recommends {TOOLS[missing]}" in done.stderr
