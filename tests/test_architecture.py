"""The import contracts of pyproject.toml hold, and each detects its violation."""

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS = {contract["id"]: contract for contract in PROJECT["tool"]["importlinter"]["contracts"]}
PACKAGES = [Path(p) for p in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]

# Each contract, and an import that breaks it: the module that imports, what it imports.
VIOLATIONS = {
    "layers": [
        ("src/stratamq/rpc/planted.py", "stratamq.client"),
        ("src/stratamq/formats/planted.py", "stratamq.files"),
        ("src/stratamq/client/planted.py", "stratamq_commitlog"),
        ("services/index/stratamq_index/planted.py", "stratamq_dispatcher"),
        ("services/dispatcher/stratamq_dispatcher/planted.py", "stratamq_bench"),
    ],
    "commitlog-layers": [
        (
            "services/commitlog/stratamq_commitlog/write/planted.py",
            "stratamq_commitlog.replica.follow_hub",
        ),
    ],
    "formats-are-pure": [
        ("src/stratamq/formats/planted.py", "time"),
        ("src/stratamq/formats/planted.py", "os.path"),
    ],
    "table-files-need-no-wire": [("src/stratamq/table/decode.py", "stratamq.client")],
    "files-know-no-loop": [("src/stratamq/files/planted.py", "asyncio")],
    "cli-knows-no-room": [("src/stratamq/cli/planted.py", "stratamq_index")],
    # Through another module: what access stands on is part of it.
    "access-knows-no-protocol": [
        ("src/stratamq/service/entrance.py", "grpc"),
        ("src/stratamq/service/access.py", "stratamq.rpc.credentials"),
    ],
    "engines-know-no-grpc": [("services/commitlog/stratamq_commitlog/planted.py", "grpc.aio")],
    "engines-know-no-messages": [
        ("services/index/stratamq_index/planted.py", "stratamq.api.v1.common_pb2"),
    ],
    "use-cases-know-no-protocol": [
        ("services/commitlog/stratamq_commitlog/use_cases/appending.py", "google.protobuf"),
        ("services/commitlog/stratamq_commitlog/use_cases/append_stream.py", "stratamq.rpc.status"),
    ],
    "servicer-calls-use-cases": [
        ("services/commitlog/stratamq_commitlog/servicer/values.py", "stratamq_commitlog.engine"),
    ],
    # Through another module of the room: what an engine imports is part of it.
    "engines-know-no-loop": [
        ("services/dispatcher/stratamq_dispatcher/engine.py", "stratamq_dispatcher.planted_part"),
        ("services/dispatcher/stratamq_dispatcher/planted_part.py", "threading"),
    ],
    "engines-use-the-port": [
        ("services/commitlog/stratamq_commitlog/engine.py", "mmap"),
        ("services/index/stratamq_index/engine.py", "time"),
    ],
}


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    """Run the contracts of `root`'s pyproject over `root`'s packages, installed or not."""
    parents = dict.fromkeys(str(root / package.parent) for package in PACKAGES)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(parents), "COLUMNS": "200"}
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    return subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, timeout=120
    )


@pytest.fixture(scope="module")
def violated(tmp_path_factory) -> str:
    """The linter's output for a copy of the tree with every violation planted."""
    root = tmp_path_factory.mktemp("violated")
    shutil.copy(ROOT / "pyproject.toml", root)
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, root / package, ignore=ignored)
    for planted in VIOLATIONS.values():
        for module, imported in planted:
            with (root / module).open("a") as file:
                file.write(f"\nimport {imported}\n")
    done = lint(root)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_every_contract_is_kept():
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("contract", CONTRACTS)
def test_every_contract_bites(violated, contract):
    name = CONTRACTS[contract]["name"]
    assert f"{name} BROKEN" in violated
    _, _, details = violated.partition("Broken contracts")
    for module, imported in VIOLATIONS[contract]:
        ours = imported.startswith("stratamq")
        target = imported if ours else imported.partition(".")[0]
        assert f"{dotted(Path(module))} -> {target} " in details


def dotted(module: Path) -> str:
    [package] = (package for package in PACKAGES if module.is_relative_to(package))
    return ".".join(module.relative_to(package.parent).with_suffix("").parts)


def test_every_contract_is_a_sentence():
    for contract in CONTRACTS.values():
        assert len(contract["name"].split()) >= 5


def test_every_package_of_the_wheel_stands_under_the_contracts():
    roots = PROJECT["tool"]["importlinter"]["root_packages"]
    assert sorted(roots) == sorted(package.name for package in PACKAGES)
    layers = " | ".join(CONTRACTS["layers"]["layers"]).split(" | ")
    for package in set(roots) - {"stratamq"}:
        assert package in layers


def test_every_room_of_the_tree_is_in_the_wheel():
    for place in ("services/*/stratamq_*", "benchmarks/stratamq_*", "torture/stratamq_*"):
        for init in ROOT.glob(f"{place}/__init__.py"):
            assert init.parent.relative_to(ROOT) in PACKAGES


def test_every_module_of_the_library_is_in_a_layer():
    layers = " | ".join(CONTRACTS["layers"]["layers"]).split(" | ")
    for path in (ROOT / "src" / "stratamq").iterdir():
        module = path.suffix == ".py" or (path / "__init__.py").exists()
        if module and not path.name.startswith("__"):
            assert f"stratamq.{path.stem}" in layers


def test_errors_import_nothing():
    tree = ast.parse((ROOT / "src" / "stratamq" / "errors.py").read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert imports == []
