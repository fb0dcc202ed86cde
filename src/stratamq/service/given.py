"""What a setting has been given, if anything; for defaults that any other source overrides."""

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path


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
