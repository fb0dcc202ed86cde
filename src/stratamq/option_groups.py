"""Options that several commands have, declared once: the fields of a dataclass.

    @dataclass(frozen=True)
    class Period:
        begin: FromOption = None
        end: ToOption = None

    @option_groups
    def query_time(topic: str, period: Period = Period()) -> None: ...

The command has the options of `Period` in the place of its parameter `period`. Their defaults are
the parameter's default value, so that two commands may have the same options with other defaults.
"""

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import update_wrapper
from typing import Any, TypeVar, get_type_hints

R = TypeVar("R")


def option_groups(command: Callable[..., R]) -> Callable[..., R]:
    """`command` with the fields of each dataclass among its parameters as parameters of its own.

    typer reads the signature; so does `inspect`, by which the documentation is made.
    """
    groups: dict[str, type[Any]] = {}
    parameters: list[inspect.Parameter] = []
    for one in inspect.signature(command).parameters.values():
        if is_dataclass(one.annotation):
            groups[one.name] = one.annotation
            parameters += _options(one)
        else:
            parameters.append(one)

    def with_options(**given: Any) -> R:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        return command(**given)

    update_wrapper(with_options, command)
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {one.name: one.annotation for one in parameters}
    return with_options


def _options(group: inspect.Parameter) -> list[inspect.Parameter]:
    hints = get_type_hints(group.annotation, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            group.kind,
            default=getattr(group.default, field.name),
            annotation=hints[field.name],
        )
        for field in fields(group.annotation)
    ]
