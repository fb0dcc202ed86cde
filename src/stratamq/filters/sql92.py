r"""Filters of messages by their properties: RocketMQ's subset of SQL 92. `spec/gateway.md` 6.6.

    a > 5 AND b = 'x'        region IN ('eu', 'us') OR NOT (urgent IS NULL)

    =  <>  >  >=  <  <=  [NOT] BETWEEN … AND …  [NOT] IN ('text', …)  IS [NOT] NULL
    [NOT] CONTAINS, STARTSWITH, ENDSWITH 'text'  AND  OR  NOT  ( )

Values are numbers, texts in single quotes (a quote within is doubled), TRUE and FALSE; names are
those of properties. A property is a text, and a number where it is compared with a number or by
order. What is said of a property that the message does not have, or of a text that should be a
number, is unknown. AND, OR and NOT treat that as in SQL; what is unknown is not selected.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import LarkError, VisitError

from stratamq.errors import InvalidRequestError

Properties = Mapping[str, str]
Truth = bool | None
"""None: unknown."""

MAX_CHARACTERS = 4_096
MAX_DEPTH = 64
"""NOT and parentheses within each other: each takes a frame of the stack."""
KEPT = 1_000
"""Compiled expressions: 10 KiB each is common, and the longest take 1 MiB."""
_GRAMMAR = r"""
    ?start: either
    ?either: both (_OR both)*
    ?both: single (_AND single)*
    ?single: NOT single                        -> negated
        | "(" either ")"                       -> enclosed
        | BOOLEAN                              -> constant
        | value (EQUAL | ORDER) value          -> compared
        | value BETWEEN value _AND value       -> between
        | name IN "(" text ("," text)* ")"     -> among
        | name PART text                       -> part
        | name NULL                            -> absent
    ?value: name | text | SIGN? NUMBER -> number | BOOLEAN -> boolean
    name: NAME
    text: TEXT

    _OR.3: /OR\b/i
    _AND.3: /AND\b/i
    NOT.3: /NOT\b/i
    BETWEEN.4: /(NOT\s+)?BETWEEN\b/i
    IN.4: /(NOT\s+)?IN\b/i
    PART.4: /(NOT\s+)?(CONTAINS|STARTSWITH|ENDSWITH)\b/i
    NULL.4: /IS\s+(NOT\s+)?NULL\b/i
    BOOLEAN.3: /(TRUE|FALSE)\b/i
    EQUAL.2: "=" | "<>"
    ORDER: ">=" | ">" | "<=" | "<"
    SIGN: "+" | "-"
    NUMBER: /0x[0-9a-f]+/i
          | /(0|[1-9][0-9]*)L\b/i
          | /(0|[1-9][0-9]*)(\.[0-9]*)?(e[+-]?[0-9]+)?/i
          | /\.[0-9]+(e[+-]?[0-9]+)?/i
    TEXT: /'([^']|'')*'/
    NAME: /(?!(IS|NULL)\b)[A-Za-z_$][A-Za-z0-9_$]*/i
    %ignore /\s+|--[^\n]*|\/\*(.|\n)*?\*\//
"""
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE)
_LONGEST_NUMBER = 40
_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "<>": operator.ne, ">": operator.gt, ">=": operator.ge, "<": operator.lt,
    "<=": operator.le,
}  # fmt: skip
_PARTS: Mapping[str, Callable[[str, str], bool]] = {
    "CONTAINS": operator.contains, "STARTSWITH": str.startswith, "ENDSWITH": str.endswith,
}  # fmt: skip


class Filter(NamedTuple):
    """A compiled expression."""

    test: Callable[[Properties], Truth]
    depth: int = 0

    def selects(self, properties: Properties) -> bool:
        return self.test(properties) is True


class _Value(NamedTuple):
    of: Callable[[Properties], Any]
    """None: the message does not have it."""
    constant: str | bool | float | None = None
    """None: it is a property."""


@lru_cache(KEPT)
def sql92(expression: str) -> Filter:
    """InvalidRequestError says where it is no expression, or what is compared that cannot be."""
    if len(expression) > MAX_CHARACTERS:
        raise InvalidRequestError(f"a filter has at most {MAX_CHARACTERS} characters")
    try:
        return _PARSER.parse(expression)  # type: ignore[return-value]
    except VisitError as error:
        raise InvalidRequestError(f"a filter that means nothing: {error.orig_exc}") from error
    except LarkError as error:
        where = str(error).splitlines()[0]
        raise InvalidRequestError(f"a filter that cannot be parsed: {where}") from error


@v_args(inline=True)
class _Compile(Transformer[Token, Filter]):
    """Builds filters from the innermost outwards, while it is parsed."""

    def name(self, token: Token) -> _Value:
        name = str(token)
        return _Value(lambda properties: properties.get(name))

    def text(self, token: Token) -> _Value:
        return _constant(token[1:-1].replace("''", "'"))

    def number(self, *tokens: Token) -> _Value:
        *sign, token = map(str.lower, tokens)
        value = int(token, 16) if token.startswith("0x") else _number(token.removesuffix("l"))
        if value is None:
            raise InvalidRequestError(f"a number has at most {_LONGEST_NUMBER} characters")
        return _constant(-value if sign == ["-"] else value)

    def boolean(self, token: Token) -> _Value:
        return _constant(token.upper() == "TRUE")

    def constant(self, token: Token) -> Filter:
        holds = token.upper() == "TRUE"
        return Filter(lambda _: holds)

    def either(self, *some: Filter) -> Filter:
        return _joined(some, decides=True)

    def both(self, *some: Filter) -> Filter:
        return _joined(some, decides=False)

    def negated(self, _: Token, one: Filter) -> Filter:
        return _not(_deeper(one))

    def enclosed(self, one: Filter) -> Filter:
        return _deeper(one)

    def compared(self, left: _Value, token: Token, right: _Value) -> Filter:
        compare = _COMPARED[token]
        if token.type == "ORDER":
            return _of_values(compare, _ordered(left), _ordered(right))
        kinds = {type(one.constant) for one in (left, right)}
        if bool in kinds:
            return _of_values(compare, _as(_truth, left), _as(_truth, right))
        if kinds & {int, float}:
            return _of_values(compare, _as(_number, left), _as(_number, right))
        return _of_values(compare, left, right)

    def between(self, value: _Value, token: Token, low: _Value, high: _Value) -> Filter:
        of, least, most = map(_ordered, (value, low, high))
        ends = (least.constant, most.constant)
        if None not in ends and ends[0] > ends[1]:  # type: ignore[operator]
            raise InvalidRequestError(f"nothing is between {ends[0]} and {ends[1]}")
        above = _of_values(operator.ge, of, least)
        return _unless(token, _joined((above, _of_values(operator.le, of, most)), decides=False))

    def among(self, value: _Value, token: Token, *texts: _Value) -> Filter:
        known = frozenset(one.constant for one in texts)
        return _unless(token, _of_values(operator.contains, _constant(known), value))

    def part(self, value: _Value, token: Token, text: _Value) -> Filter:
        """False, with NOT as well, where the property is missing or the text is empty: as in
        RocketMQ."""
        *negated, word = token.upper().split()
        holds, wanted, looked_for = _PARTS[word], not negated, str(text.constant)

        def test(properties: Properties) -> Truth:
            there = value.of(properties)
            return bool(there and looked_for) and holds(there, looked_for) is wanted

        return Filter(test)

    def absent(self, value: _Value, token: Token) -> Filter:
        wanted = len(token.split()) == 2
        return Filter(lambda properties: (value.of(properties) is None) is wanted)


def _constant(value: Any) -> _Value:
    return _Value(lambda _: value, value)


def _as(kind: Callable[[str], Any], value: _Value) -> _Value:
    """The value's text as something else."""
    if isinstance(value.constant, str):
        return _constant(kind(value.constant))
    if value.constant is not None:
        return value

    def of(properties: Properties) -> Any:
        text = value.of(properties)
        return None if text is None else kind(text)

    return _Value(of)


def _ordered(value: _Value) -> _Value:
    if isinstance(value.constant, str | bool):
        raise InvalidRequestError(f"{value.constant!r:.80} has no order: numbers have")
    return _as(_number, value)


def _truth(text: str) -> bool:
    return text.lower() == "true"


def _number(text: str) -> float | None:
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        return None
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def _of_values(compare: Callable[[Any, Any], bool], left: _Value, right: _Value) -> Filter:
    first, second = left.of, right.of

    def test(properties: Properties) -> Truth:
        one, other = first(properties), second(properties)
        return None if one is None or other is None else compare(one, other)

    return Filter(test)


def _joined(some: Sequence[Filter], *, decides: bool) -> Filter:
    """OR: one that holds decides. AND: one that does not."""
    tests = [one.test for one in some]

    def test(properties: Properties) -> Truth:
        found: Truth = not decides
        for one in tests:
            truth = one(properties)
            if truth is decides:
                return decides
            if truth is None:
                found = None
        return found

    return Filter(test, max(one.depth for one in some))


def _not(one: Filter) -> Filter:
    def test(properties: Properties) -> Truth:
        truth = one.test(properties)
        return None if truth is None else not truth

    return Filter(test, one.depth)


def _unless(token: Token, one: Filter) -> Filter:
    return _not(one) if token.upper().startswith("NOT") else one


def _deeper(one: Filter) -> Filter:
    if one.depth >= MAX_DEPTH:
        raise InvalidRequestError(f"NOT and parentheses are within each other {MAX_DEPTH} times")
    return one._replace(depth=one.depth + 1)


_PARSER = Lark(_GRAMMAR, parser="lalr", lexer="basic", transformer=_Compile())
