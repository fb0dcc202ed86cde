"""Generate Python from `protos/`, or with --check say what differs.

The modules of our own package lie where its name says (`stratamq.api.v1.commitlog_pb2`), and import
each other so. RocketMQ's are one file without imports of its own, which the gateway speaks. The
generator is pinned in pyproject.toml one major version behind the run time: its code serves
protobuf 6 and 7, and refuses older run times than those in `dependencies`.
"""

import argparse
import importlib.metadata
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGETS = {
    Path("stratamq/api/v1"): Path("src/stratamq/api/v1"),
    Path("apache/rocketmq/v2"): Path("src/stratamq/api/rocketmq"),
}
"""Folders of `protos/`, and where their modules lie."""
GENERATED = ("*_pb2.py", "*_pb2.pyi")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; fail on differences")
    arguments = parser.parse_args()
    fault = wrong_generator()
    if fault:
        print(f"gen_protos: {fault}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as temporary:
        if not generate(ROOT / "protos", Path(temporary)):
            return 1
        changed = [
            (Path(temporary) / package / name, target / name)
            for package, target in TARGETS.items()
            for name in differences(Path(temporary) / package, ROOT / target)
        ]
        if arguments.check:
            for _, present in changed:
                print(f"gen_protos: {present} is not what protos/ gives", file=sys.stderr)
            if changed:
                print("gen_protos: run `make protos` and commit the result", file=sys.stderr)
            return 1 if changed else 0
        for fresh, present in changed:
            copy(fresh, ROOT / present)
    print(f"gen_protos: {len(changed)} files changed")
    return 0


def wrong_generator() -> str | None:
    """A sentence unless the pinned grpcio-tools is installed: others generate other bytes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = project["optional-dependencies"]["dev"]
    [wanted] = (r.partition("==")[2] for r in requirements if r.startswith("grpcio-tools=="))
    try:
        installed = importlib.metadata.version("grpcio-tools")
    except importlib.metadata.PackageNotFoundError:
        installed = "none"
    if installed == wanted:
        return None
    return f"grpcio-tools {wanted} is needed, {installed} is installed; run `make dev`"


def generate(protos: Path, output: Path) -> bool:
    """Run protoc over each package; its own messages go to standard error."""
    import grpc_tools
    from grpc_tools import protoc

    includes = [f"-I{protos}", f"-I{Path(grpc_tools.__file__).parent / '_proto'}"]
    for package in TARGETS:
        sources = sorted(path.relative_to(protos) for path in (protos / package).glob("*.proto"))
        if not sources:
            print(f"gen_protos: no .proto file under {protos / package}", file=sys.stderr)
            return False
        # Methods have no generated code: `rpc/methods.py` and `handlers_of` read the descriptors.
        outputs = [f"--python_out={output}", f"--pyi_out={output}"]
        if protoc.main(["protoc", *includes, *outputs, *map(str, sources)]) != 0:
            return False
    return True


def differences(fresh: Path, present: Path) -> list[str]:
    """Names of generated files that are missing, stale or different."""
    names = {path.name for where in (fresh, present) for g in GENERATED for path in where.glob(g)}
    return sorted(name for name in names if content(fresh / name) != content(present / name))


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def copy(source: Path, target: Path) -> None:
    if source.exists():
        target.write_bytes(source.read_bytes())
    else:
        target.unlink()


if __name__ == "__main__":
    sys.exit(main())
