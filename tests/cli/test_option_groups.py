"""A command has the options of the dataclasses among its parameters, in their places."""

import inspect
from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from stratamq.option_groups import option_groups

Name = Annotated[str, typer.Option("--name", help="A name.")]


@dataclass(frozen=True, slots=True)
class Period:
    begin: int = 1
    end: Annotated[int, typer.Option("--until")] = 2


@dataclass(frozen=True, slots=True)
class Place:
    name: Name
    port: int = 3


LONGER, HERE = Period(end=9), Place("here")


@option_groups
def find(topic: str, period: Period = LONGER, count: int = 4, place: Place = HERE) -> None:
    """Find something."""
    typer.echo(f"{topic} {period} {count} {place}")


def found(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(find)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.output.strip()


def test_the_options_of_a_group_stand_in_its_place():
    assert list(inspect.signature(find).parameters) == [
        "topic", "begin", "end", "count", "name", "port",
    ]  # fmt: skip


def test_a_command_has_its_own_defaults_of_a_group():
    assert found("t") == f"t {Period(1, 9)} 4 {Place('here', 3)}"


def test_what_is_given_comes_to_the_group_that_has_it():
    given = ("t", "--until", "7", "--count", "5", "--name", "there", "--port", "8")
    assert found(*given) == f"t {Period(1, 7)} 5 {Place('there', 8)}"
