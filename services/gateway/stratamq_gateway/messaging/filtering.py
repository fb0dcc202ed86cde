"""Which messages a consumer wants: expressions by tags or in SQL. `spec/gateway.md` 3.4, 6.6."""

from typing import NamedTuple

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.client.received import ReceivedMessage
from stratamq.errors import InvalidRequestError
from stratamq.filters.sql92 import Filter, sql92
from stratamq_gateway.members import ALL_TAGS
from stratamq_gateway.messaging.statuses import RefusedError

MAX_EXPRESSION_CHARACTERS = 16 << 10
"""The dispatcher looks for each tag of a pull."""


class TagsOrSql(NamedTuple):
    tags: tuple[str, ...] = ()
    sql: Filter | None = None

    @property
    def compared(self) -> tuple[str, ...]:
        """The tags that the delivery service compares: to it a star among others means all."""
        return () if ALL_TAGS in self.tags else self.tags

    def selects(self, message: ReceivedMessage) -> bool:
        if self.sql is not None:
            return self.sql.selects(message.properties)
        return not self.tags or message.tag in self.tags


def filter_of(given: pb.FilterExpression) -> TagsOrSql:
    """RefusedError."""
    expression = given.expression.strip()
    if len(expression) > MAX_EXPRESSION_CHARACTERS:
        raise RefusedError(pb.ILLEGAL_FILTER_EXPRESSION, "the expression is too long")
    if given.type == pb.SQL:
        try:
            return TagsOrSql(sql=sql92(expression))
        except InvalidRequestError as error:
            raise RefusedError(pb.ILLEGAL_FILTER_EXPRESSION, str(error)) from error
    if expression in ("", ALL_TAGS):
        return TagsOrSql()
    tags = tuple(one.strip() for one in expression.split("||"))
    if not all(tags) or any(" " in one for one in tags):
        raise RefusedError(pb.ILLEGAL_FILTER_EXPRESSION, f"no tags: {expression!r:.80}")
    return TagsOrSql(tags)
