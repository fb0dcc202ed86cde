"""The command line's page is made from what the commands declare."""

import enum
import importlib
import sys
import types
from pathlib import Path
from typing import Annotated

import pytest
import typer

SCRIPTS = str(Path(__file__).resolve().parent.parent / "scripts")


class Output(enum.StrEnum):
    TABLE = "table"
    JSON = "json"


def example() -> typer.Typer:
    app = typer.Typer(help="A message store.")

    @app.callback()
    def main(data: Annotated[Path | None, typer.Option("--data", "-d", help="Where.")] = None):
        pass

    @app.command()
    def status(
        context: typer.Context,
        output: Annotated[Output, typer.Option(help="How | what.")] = Output.TABLE,
        follow: Annotated[bool, typer.Option(help="Go on.")] = False,
        tags: list[str] = typer.Option([], "--tag", help="Only these."),  # noqa: B008 - Typer's older style
    ):
        """Show the state.

        Exit code 0: healthy.
        """

    @app.command(hidden=True)
    def secret():
        """Hidden."""

    query = typer.Typer(help="Find messages.")
    app.add_typer(query, name="query")

    @query.command("by-key")
    def anything(topic: str, count: Annotated[int, typer.Option(min=1)] = 32):
        """By key."""

    return app


@pytest.fixture
def page(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    module = types.ModuleType("stratamq.cli.__main__")
    module.build_app = example
    monkeypatch.setitem(sys.modules, "stratamq.cli.__main__", module)
    return importlib.import_module("docs_of_commands").commands_page()


def test_commands_groups_arguments_and_options_are_shown(page):
    _, _, commands = page.partition("says the same.\n\n")
    assert commands == (
        "## `stratamq`\n\nA message store.\n\n"
        "| Option | Values | Default | Meaning |\n| --- | --- | --- | --- |\n"
        "| `--data, -d` | path |  | Where. |\n\n"
        "## `stratamq status`\n\nShow the state.\n\nExit code 0: healthy.\n\n"
        "| Option | Values | Default | Meaning |\n| --- | --- | --- | --- |\n"
        "| `--output` | `table`, `json` | `table` | How \\| what. |\n"
        "| `--follow/--no-follow` |  |  | Go on. |\n"
        "| `--tag` | text, repeated |  | Only these. |\n\n"
        "## `stratamq query`\n\nFind messages.\n\n"
        "## `stratamq query by-key`\n\nBy key.\n\n"
        "| Argument | Values | Default | Meaning |\n| --- | --- | --- | --- |\n"
        "| `TOPIC` | text | required |  |\n\n"
        "| Option | Values | Default | Meaning |\n| --- | --- | --- | --- |\n"
        "| `--count` | number | `32` |  |\n"
    )


def test_hidden_commands_stay_hidden(page):
    assert "secret" not in page


def test_what_is_used_every_day_comes_first_then_panel_by_panel(monkeypatch):
    app = typer.Typer()
    for name, panel in (("z", "Rarely"), ("b", None), ("y", "Never"), ("a", None)):
        app.command(name, rich_help_panel=panel)(lambda: None)
    app.add_typer(typer.Typer(), name="x", rich_help_panel="Rarely")
    monkeypatch.syspath_prepend(SCRIPTS)
    module = types.ModuleType("stratamq.cli.__main__")
    module.build_app = lambda: app
    monkeypatch.setitem(sys.modules, "stratamq.cli.__main__", module)
    page = importlib.import_module("docs_of_commands").commands_page()
    order = [line[len("## `stratamq ") : -1] for line in page.splitlines() if line[:2] == "##"]
    assert order[1:] == ["b", "a", "z", "x", "y"]
    assert "- Rarely: [z](#stratamq-z), [x](#stratamq-x)\n- Never: " in page
