"""`docs/one-append.md` names functions that are there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROW = re.compile(r"^\| `([^`]+\.py)` \| `([^`]+)` \|", re.MULTILINE)
ROWS = ROW.findall((ROOT / "docs" / "one-append.md").read_text())


def functions(path: Path) -> set[str]:
    """`name`, and `Class.name` of methods."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{inner.name}"
                for inner in node.body
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return found


def test_the_page_goes_from_the_producer_to_the_consumer():
    rooms = [path.split("/stratamq_")[0].rpartition("/")[2] for path, _ in ROWS]
    assert len(ROWS) > 30 and {"commitlog", "ha", "dispatcher"} <= set(rooms)


@pytest.mark.parametrize(("path", "function"), ROWS)
def test_a_function_on_the_way_of_a_message_is_there(path, function):
    assert function in functions(ROOT / path)
