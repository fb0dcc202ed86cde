"""An empty path, as `--data "$UNSET"` gives, names nothing: not the current directory."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from stratamq.cli import __main__ as command_line
from stratamq.errors import ConfigurationError
from stratamq.tier.driver.opening import open_storage


def with_empty_paths(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """A command line for every option and argument that is a path."""
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    for parameter in command.params:
        if parameter.type.name in ("path", "file", "directory"):
            empty = [""] * len(arguments) if parameter in arguments else [parameter.opts[0], ""]
            yield (*words, *empty)
    for name, one in getattr(command, "commands", {}).items():
        yield from with_empty_paths(one, (*words, name))


def test_every_path_of_every_command_is_refused_when_it_is_empty(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    lines = list(with_empty_paths(command_line.application(command_line.ALL)))
    assert len(lines) > 90
    for line in lines:
        code = command_line.run(list(line))
        assert (code, "the path is empty" in capsys.readouterr().err) == (2, True), line
    assert not os.listdir(tmp_path)


def test_a_tier_without_a_name_is_refused():
    with pytest.raises(ConfigurationError, match="is empty"):
        open_storage("")
