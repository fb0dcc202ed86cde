"""The command line that every service has: where its settings come from, and what was given."""

import argparse
import os
import tomllib
from collections.abc import Mapping, Sequence
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


def is_given(
    section: str,
    name: str,
    toml_path: Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
) -> bool:
    return given_value(section, name, toml_path, environ, overrides) is not None


def given_value(
    section: str,
    name: str,
    toml_path: Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
) -> object | None:
    """The value that wins, unchecked, or None. Looks where `config.load` looks. A file that cannot
    be read gives nothing: the service will report what is wrong with it."""
    environ = os.environ if environ is None else environ
    for text in reversed(overrides):
        key, _, value = text.partition("=")
        if key.strip() == f"{section}.{name}":
            return value.strip()
    variable = f"STRATAMQ_{section.upper()}_{name.upper()}"
    if variable in environ:
        return environ[variable]
    if toml_path is None:
        return None
    try:
        table = tomllib.loads(toml_path.read_text(encoding="utf-8")).get(section)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return None
    return table.get(name) if isinstance(table, dict) else None
