"""The command line that every service has: where its settings come from."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Arguments:
    """What `config.load` takes beside the environment."""

    toml_path: Path | None
    overrides: tuple[str, ...]


def parse_arguments(section: str, doc: str, argv: Sequence[str] | None = None) -> Arguments:
    """Read `argv` (the process's by default); `doc` is shown by --help.

    Exits with code 2 if the arguments make no sense, as after wrong settings.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m stratamq_{section}", description=doc, allow_abbrev=False
    )
    parser.add_argument("--config", metavar="FILE", type=Path, help="a TOML file with settings")
    parser.add_argument(
        "--data", metavar="DIR", help=f"the store directory; short for --set {section}.root=DIR"
    )
    parser.add_argument(
        "--set",
        metavar="SERVICE.SETTING=VALUE",
        action="append",
        default=[],
        help="change one setting; may be repeated; wins over file and environment",
    )
    parsed = parser.parse_args(argv)
    shorthand = [] if parsed.data is None else [f"{section}.root={parsed.data}"]
    return Arguments(parsed.config, (*shorthand, *parsed.set))
