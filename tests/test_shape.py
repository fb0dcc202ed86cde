"""No module depends on itself through others; no file and no function is longer than one idea.

Every exception is named here with its reason, and goes when the reason does.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = sorted(path.parent for path in ROOT.glob("services/*/stratamq_*/__init__.py"))
GENERATED = ROOT / "src" / "stratamq" / "api"

FILE_LINES, FUNCTION_LINES = 450, 60
MEASURED = ("src", "services", "torture")

CIRCLES: dict[str, str] = {}

LONG_FILES: dict[str, str] = {
    "src/stratamq/client/_async/client.py": "one method for each call",
    "src/stratamq/client/_sync/client.py": "the same, generated",
    "torture/stratamq_torture/commands.py": "one function for each command",
    "torture/stratamq_torture/protocol_model/steps.py": "one method for each step of the protocol",
    "torture/stratamq_torture/simulated/simulation.py": "one method for each operation",
}

_CHECKS = "one check after the other, in the order in which the broker makes them"

LONG_FUNCTIONS = {
    "services/ha/stratamq_ha/history.py::judge": "one case after the other",
    "src/stratamq/cli/consume.py::consume": "a command's options take a line each",
    "src/stratamq/cli/dump_index.py::dump_index": "a command's options take a line each",
    "src/stratamq/cli/logs.py::logs": "a command's options take a line each",
    "src/stratamq/cli/produce.py::produce": "a command's options take a line each",
    "src/stratamq/cli/tier_restore.py::restore": "a command's options take a line each",
    "src/stratamq/cli/up.py::up": "a command's options take a line each",
    "src/stratamq/formats/columns.py::columns_at": "one column a line",
    "src/stratamq/formats/frame.py::encode": "one field a line, in the order of the bytes",
    "src/stratamq/formats/frame_check.py::check": _CHECKS,
}


def circles(graph: grimp.ImportGraph) -> list[set[str]]:
    """The sets of modules that reach each other."""
    reach = {module: graph.find_upstream_modules(module) for module in graph.modules}
    found = []
    for module in sorted(graph.modules):
        circle = {other for other in reach[module] if module in reach[other]} | {module}
        if len(circle) > 1 and circle not in found:
            found.append(circle)
    return found


def scripts_graph() -> grimp.ImportGraph:
    """Return which scripts import which: they are modules of no package."""
    graph, trees = grimp.ImportGraph(), {}
    for path in (ROOT / "scripts").glob("*.py"):
        graph.add_module(path.stem)
        trees[path.stem] = ast.parse(path.read_text())
    for importer, tree in trees.items():
        for node in ast.walk(tree):
            names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            for imported in trees.keys() & set(names):
                graph.add_import(importer=importer, imported=imported)
    return graph


def test_no_import_goes_in_a_circle_type_checking_imports_counted():
    graph = grimp.build_graph(
        "stratamq",
        *(room.name for room in ROOMS),
        *("stratamq_torture", "stratamq_pipeline", "stratamq_bench"),
        exclude_type_checking_imports=False,
        cache_dir=None,
    )
    found = circles(graph) + circles(scripts_graph())
    assert [circle for circle in found if not circle <= set(CIRCLES)] == []
    mended = set(CIRCLES) - set().union(*found)
    assert mended == set(), "no longer in a circle: take them out of CIRCLES"


@pytest.mark.parametrize(
    ("module", "importer"),
    [("a", "c"), ("b", "c"), ("a", "b")],
)
def test_a_circle_is_found(module, importer):
    graph = grimp.ImportGraph()
    for name in ("a", "b", "c"):
        graph.add_module(name)
    graph.add_import(importer="a", imported="b")
    graph.add_import(importer="b", imported="c")
    assert circles(graph) == []
    graph.add_import(importer=importer, imported=module)
    assert [module in circle and importer in circle for circle in circles(graph)] == [True]


def sources(*places: str) -> Iterator[Path]:
    for place in (ROOT / name for name in places):
        for path in sorted(place.rglob("*.py")):
            if not path.is_relative_to(GENERATED):
                yield path


def test_no_file_is_longer_than_one_idea():
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in sources(*MEASURED)
    }
    longer = {name for name, lines in lengths.items() if lines > FILE_LINES}
    assert longer - set(LONG_FILES) == set()
    assert set(LONG_FILES) - longer == set(), "short enough: take them out of LONG_FILES"


def test_no_function_is_longer_than_a_screen():
    longer = set()
    for path in sources(*MEASURED):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                if node.end_lineno - node.lineno >= FUNCTION_LINES:
                    longer.add(f"{path.relative_to(ROOT)}::{node.name}")
    assert longer - set(LONG_FUNCTIONS) == set()
    assert set(LONG_FUNCTIONS) - longer == set(), "short enough: take them out of LONG_FUNCTIONS"


SET_FROM_OUTSIDE = {
    "services/delivery/stratamq_delivery/metrics.py: one.copies.lateness_ms": "decision 076",
}


def test_listeners_are_given_in_constructors():
    """Not set on another object after it was made: an event before that would be lost."""
    found = set()
    for path in sources("src", "services"):
        text = path.read_text()
        if " = lambda" not in text and ".on_" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            targets = node.targets if isinstance(node, ast.Assign) else []
            for target in (one for one in targets if isinstance(one, ast.Attribute)):
                is_own = isinstance(target.value, ast.Name) and target.value.id in ("self", "cls")
                is_listener = isinstance(node.value, ast.Lambda) or target.attr.startswith("on_")
                if is_listener and not is_own:
                    found.add(f"{path.relative_to(ROOT)}: {ast.unparse(target)}")
    assert found == set(SET_FROM_OUTSIDE)


PATHS = ROOT / "src" / "stratamq" / "formats" / "store_paths.py"


def literals(tree: ast.Module) -> set[str]:
    """Strings of the code, parts of f-strings too; neither docstrings nor prose."""
    prose = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
    }


def test_paths_of_a_store_are_written_in_one_file():
    paths = {value for value in literals(ast.parse(PATHS.read_text())) if "/" in value}
    beginnings = ("stratamq/", "commitlog/", "consumequeue/", "config/")
    elsewhere = {
        (str(path.relative_to(ROOT)), value)
        for path in [*sources("src", "services"), *sorted((ROOT / "pipeline").rglob("*.py"))]
        if path != PATHS
        for value in literals(ast.parse(path.read_text()))
        if value in paths or (value.startswith(beginnings) and " " not in value)
    }
    assert elsewhere == set()
