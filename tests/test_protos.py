"""The generated code is what the protos give, and the protos pass buf's STANDARD lint."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUF = Path(sys.executable).with_name("buf")


def check(root: Path) -> subprocess.CompletedProcess[str]:
    script = root / "scripts" / "gen_protos.py"
    command = [sys.executable, script, "--check"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.fixture
def copy(tmp_path):
    """What the generator reads and writes, to be damaged."""
    for tree in ("protos", "src/stratamq/api"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / tree, tmp_path / tree, ignore=ignored)
    for file in ("scripts/gen_protos.py", "pyproject.toml"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def test_the_generated_code_is_what_the_protos_give():
    done = check(ROOT)
    assert done.returncode == 0, done.stderr


def test_a_changed_proto_a_changed_output_and_a_stale_output_are_found(copy):
    api = copy / "src" / "stratamq" / "api" / "v1"
    proto = copy / "protos" / "stratamq" / "api" / "v1" / "index.proto"
    proto.write_text(proto.read_text() + "\nmessage Unheard {}\n")
    (api / "common_pb2.pyi").write_text("# edited\n")
    (api / "gone_pb2.py").write_text("# its proto was removed\n")
    (api / "dispatcher_pb2.py").unlink()
    done = check(copy)
    assert done.returncode == 1
    for name in ("index_pb2.py", "common_pb2.pyi", "gone_pb2.py", "dispatcher_pb2.py"):
        assert f"src/stratamq/api/v1/{name} is not what protos/ gives" in done.stderr
    assert "commitlog_pb2" not in done.stderr


def test_generating_mends_all_of_it(copy):
    api = copy / "src" / "stratamq" / "api" / "v1"
    (api / "common_pb2.pyi").write_text("# edited\n")
    (api / "gone_pb2.py").write_text("# its proto was removed\n")
    subprocess.run([sys.executable, copy / "scripts" / "gen_protos.py"], check=True)
    assert check(copy).returncode == 0


def test_another_generator_than_the_pinned_one_is_refused(copy):
    project = copy / "pyproject.toml"
    text = project.read_text()
    project.write_text(text.replace("grpcio-tools==", "grpcio-tools==0."))
    done = check(copy)
    assert done.returncode == 2
    assert "run `make dev`" in done.stderr


def lint(protos: Path) -> subprocess.CompletedProcess[str]:
    command = [BUF, "lint"]
    return subprocess.run(command, cwd=protos, capture_output=True, text=True, timeout=120)


def test_the_protos_pass_the_standard_lint():
    done = lint(ROOT / "protos")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_standard_lint_bites(copy):
    proto = copy / "protos" / "stratamq" / "api" / "v1" / "index.proto"
    proto.write_text(proto.read_text() + "\nmessage Unheard { string camelCase = 1; }\n")
    done = lint(copy / "protos")
    assert done.returncode != 0
    assert "camelCase" in done.stdout


def test_no_proto_uses_the_shared_empty_message():
    for proto in (ROOT / "protos").rglob("*.proto"):
        assert "google.protobuf.Empty" not in proto.read_text(), proto
