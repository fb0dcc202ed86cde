"""Expressions and what they say of properties. The answers in ANSWERS are those of RocketMQ's own
filter, rocketmq-filter 5.3.3, to the same expressions."""

import pytest

from stratamq.errors import InvalidRequestError
from stratamq.filters.sql92 import MAX_CHARACTERS, MAX_DEPTH, sql92

ANSWERS = """
true    a > 5                               a=6
false   a > 5                               a=5
null    a > 5                               a=x
null    a > 5
true    5 < a                               a=6
true    a >= 5 and a <= 5                   a=5
false   a < 5                               a=5
true    a > -5                              a=-3
true    a > - 5                             a=-3
true    a > +5                              a=6
true    a > 5L                              a=6
true    a > 1e2                             a=200
true    a > 1.5E-3                          a=1
true    a > .5                              a=1
true    a > 5.                              a=6
true    a > 0x10                            a=20
true    a > 5.0                             a=5.5
true    a = 5                               a=05
true    a = 5.0                             a=5
true    a = 1                               a=+1
true    a = -0                              a=0
true    a > b                               a=10  b=9
false   a = b                               a=1  b=1.0
true    a <> 5                              a=6
null    a <> 5
null    a = 1                               a=1L
null    a > 1                               a=NaN
null    a > 1                               a=Infinity
null    a > 1.0                             a=0x10
true    a = 'x' AND b = 'y'                 a=x  b=y
true    a='x'AND b='y'                      a=x  b=y
true    a = 'it''s'                         a=it's
false   a = ''                              a=x
null    a = ''
true    a <> ''                             a=x
true    a = 'é'                             a=é
true    a = '5'                             a=5
true    5 = '5'
true    a = TRUE                            a=TRUE
true    a = true                            a=true
false   a = TRUE                            a=1
true    a <> TRUE                           a=x
true    TRUE
true    FALSE OR a = 'x'                    a=x
true    a > 5 OR b = 'x'                    b=x
true    b = 'x' OR a > 5                    b=x
false   a > 5 AND b = 'x'                   b=y
null    a > 5 AND b = 'x'                   b=x
null    NOT (a > 5)
true    NOT (b = 'y' AND a > 5)             b=x
true    NOT (a > 5 AND b = 'y')             b=x
true    a = 1 OR b = 2 AND c = 3            a=1
false   (a = 1 OR b = 2) AND c = 3          a=1  c=4
true    a IS NULL
false   a is null                           a=1
true    a IS NOT NULL                       a=1
true    a BETWEEN 1 AND 5                   a=5
false   a BETWEEN 1 AND 5                   a=6
null    a BETWEEN 1 AND 5
true    a NOT BETWEEN 1 AND 5               a=6
null    a NOT BETWEEN 1 AND 5
null    NOT (a BETWEEN 1 AND 5)
true    a BETWEEN b AND c                   a=2  b=1  c=3
true    a between 1 and 2 and b = 'x'       a=1  b=x
true    a IN ('x', 'y')                     a=x
false   a IN ('x')                          a=y
true    a NOT IN ('x')                      a=y
true    a not in('it''s')                   a=y
null    a IN ('x')
null    NOT (a IN ('x'))
true    a CONTAINS 'b'                      a=abc
false   a NOT CONTAINS 'b'                  a=abc
false   a NOT CONTAINS 'b'
true    NOT (a CONTAINS 'b')
false   a CONTAINS ''                       a=abc
true    a STARTSWITH 'a'                    a=abc
false   a STARTSWITH 'b'                    a=abc
false   a NOT STARTSWITH 'a'                a=abc
true    a ENDSWITH 'c'                      a=abc
true    order = 1                           order=1
true    _a$1 = 1                            _a$1=1
true    a > 5 -- and b                      a=6
true    a > 5 /* if */ AND b = 1            a=6  b=1
illegal a > '5'
illegal 'x' > a
illegal a > TRUE
illegal 1
illegal 'x'
illegal a BETWEEN 5 AND 1
illegal a BETWEEN 'a' AND 'c'
illegal a IN (1, 2)
illegal a IN ()
illegal a CONTAINS b
illegal a > 5 > 3
illegal (a > 5
illegal a >
illegal a = 5 AND
illegal a == 5
illegal a != 5
illegal a > 5;
illegal a.b = 1
illegal "a" = 1
illegal a = "x"
illegal a = NULL
illegal a IS TRUE
illegal AND = 1
illegal é = 1
"""
OURS = """
true    a > 5                               a=5.5
true    a = 5                               a=5.0
true    NOT a > 5                           a=3
false   NOT a = 1 AND b = 2                 a=1  b=2
true    a > 5 OR b = 'x'                    a=y  b=x
illegal a + 1 > 5
illegal a LIKE 'x'
illegal a
illegal -a > 5
illegal a > 010
"""
"""RocketMQ compares whole numbers with no others, gives up where a text is no number, reads NOT
before `=`, and does not look at what comes behind an expression."""


def rows(table: str) -> list[tuple[str, str, dict[str, str]]]:
    found = []
    for line in table.strip().splitlines():
        expression, *properties = [one for one in line[8:].split("  ") if one.strip()]
        pairs = (one.strip().split("=", 1) for one in properties)
        found.append((line[:8].strip(), expression.strip(), dict(pairs)))
    return found


@pytest.mark.parametrize("expected, expression, properties", [*rows(ANSWERS), *rows(OURS)])
def test_an_expression_says_what_rocketmq_says(expected, expression, properties):
    if expected == "illegal":
        with pytest.raises(InvalidRequestError):
            sql92(expression)
        return
    found = sql92(expression)
    assert found.test(properties) is {"true": True, "false": False, "null": None}[expected]
    assert found.selects(properties) is (expected == "true")


def test_an_expression_that_is_none_says_where():
    with pytest.raises(InvalidRequestError, match="line 1 col 3"):
        sql92("a ! 5")


@pytest.mark.parametrize("opening, closing", [("(", ")"), ("NOT ", "")])
def test_depth_is_bounded(opening, closing):
    sql92(opening * MAX_DEPTH + "a = 1" + closing * MAX_DEPTH)
    too_deep = opening * (MAX_DEPTH + 1) + "a = 1" + closing * (MAX_DEPTH + 1)
    with pytest.raises(InvalidRequestError, match="within each other"):
        sql92(too_deep)


def test_length_is_bounded_and_what_may_be_long_is_answered():
    whole = " OR ".join(["a = 1"] * 500)[:MAX_CHARACTERS]
    many = sql92(whole[: whole.rindex(" OR ")])
    assert many.selects({"a": "1"}) and not many.selects({"a": "2"})
    with pytest.raises(InvalidRequestError, match="at most"):
        sql92("a = 1" + " " * MAX_CHARACTERS)
    assert sql92("a > 1").test({"a": "9" * 10_000}) is None
    assert sql92("a > 1").test({"a": "1e999"}) is True
