"""Whether a setting has been given a value; for defaults that any other source overrides."""

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
    """Looks where `config.load` looks. A file that cannot be read gives nothing: the service will
    report what is wrong with it."""
    environ = os.environ if environ is None else environ
    if f"STRATAMQ_{section.upper()}_{name.upper()}" in environ:
        return True
    if any(text.partition("=")[0].strip() == f"{section}.{name}" for text in overrides):
        return True
    if toml_path is None:
        return False
    try:
        table = tomllib.loads(toml_path.read_text(encoding="utf-8")).get(section)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return False
    return isinstance(table, dict) and name in table
