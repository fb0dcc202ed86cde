"""The reference in docs/python.md: the client's classes, methods and values with their docstrings.

Signatures are read from the source, as they are written there.
"""

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

SHELLS = ("Client", "AdminClient", "Lookup", "Producer", "Delivery", "Consumer")
"""Each has a twin `Async…` with the same methods, to be awaited."""
BESIDE = (
    ("stratamq", ("scan",)),
    ("stratamq.client.tracing", ("Tracing", "TraceContext", "context_of")),
)


def python_reference() -> str:
    client = importlib.import_module("stratamq.client")
    errors = importlib.import_module("stratamq.errors")
    parts = ["## Connecting", *_function(client.connect), *_function(client.connect_async)]
    for name in SHELLS:
        parts += _class(getattr(client, name))
    parts += _function(client.one_request)
    parts += ["## Values", "Each is importable from `stratamq.client`."]
    for name in client.__all__:
        value = getattr(client, name)
        if inspect.isclass(value) and name.removeprefix("Async") not in SHELLS:
            parts += _value(value)
    parts += ["## Errors", "In `stratamq.errors`; each is a `StrataError`."]
    for error in vars(errors).values():
        if inspect.isclass(error) and issubclass(error, Exception):
            parts += [f"### `{error.__name__}`", _doc(error)]
    for module, names in BESIDE:
        parts.append(f"## `{module}`")
        for name in names:
            value = getattr(importlib.import_module(module), name)
            parts += _value(value) if inspect.isclass(value) else _function(value)
    return "\n\n".join(parts)


def _class(cls: type) -> Iterator[str]:
    yield f"## `{cls.__name__}`"
    yield _doc(cls)
    for node in _body(cls):
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield from _callable(node)


def _value(cls: type) -> Iterator[str]:
    yield f"### `{cls.__name__}`"
    if _doc(cls):
        yield _doc(cls)
    lines = []
    for node in _body(cls):
        if isinstance(node, ast.AnnAssign | ast.Assign):
            if not ast.unparse(node).startswith("_"):
                lines.append(ast.unparse(node))
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            if any(ast.unparse(one) in ("property", "kept") for one in node.decorator_list):
                given = f" -> {ast.unparse(node.returns)}" if node.returns else ""
                lines.append(f"{node.name}{given}")
            else:
                lines.append(_signature(node))
    if lines:
        yield "```text\n" + "\n".join(lines) + "\n```"


def _function(function: Any) -> Iterator[str]:
    yield from _callable(ast.parse(textwrap.dedent(inspect.getsource(function))).body[0])


def _callable(node: ast.AST) -> Iterator[str]:
    assert isinstance(node, ast.FunctionDef)
    yield f"### `{node.name}`"
    yield f"```text\n{_signature(node)}\n```"
    doc = ast.get_docstring(node)
    if doc:
        yield _paragraphs(doc)


def _signature(node: ast.FunctionDef) -> str:
    """One line, or one for each argument when that is longer than a screen."""
    arguments = ast.unparse(node.args).removeprefix("self").removeprefix(", ")
    given = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"{node.name}({arguments}){given}"
    if len(line) <= 90:
        return line
    return f"{node.name}(\n    " + ",\n    ".join(_arguments(node.args)) + f",\n){given}"


def _arguments(arguments: ast.arguments) -> Iterator[str]:
    plain = [one for one in arguments.posonlyargs + arguments.args if one.arg != "self"]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(arguments.defaults))
    for one, default in zip(plain, [*defaults, *arguments.defaults], strict=True):
        yield _argument(one, default)
    if arguments.vararg is not None:
        yield f"*{ast.unparse(arguments.vararg)}"
    elif arguments.kwonlyargs:
        yield "*"
    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _argument(one, default)
    if arguments.kwarg is not None:
        yield f"**{ast.unparse(arguments.kwarg)}"


def _argument(one: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(one) + (f" = {ast.unparse(default)}" if default is not None else "")


def _body(cls: type) -> list[ast.stmt]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(tree, ast.ClassDef)
    return tree.body


def _doc(value: Any) -> str:
    doc = inspect.getdoc(value) or ""
    # A dataclass without a docstring is given its signature for one.
    return "" if doc.startswith(f"{value.__name__}(") else _paragraphs(doc)


def _paragraphs(doc: str) -> str:
    """Text filled by the reader; indented lines, and lists, as they are."""
    parts = []
    for paragraph in inspect.cleandoc(doc).split("\n\n"):
        laid_out = any(line.startswith((" ", "* ")) for line in paragraph.splitlines())
        if laid_out and not paragraph.startswith("* "):
            parts.append(f"```\n{paragraph}\n```")
        else:
            parts.append(paragraph if laid_out else " ".join(paragraph.split()))
    return "\n\n".join(parts)
