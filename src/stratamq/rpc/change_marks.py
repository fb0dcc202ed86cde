"""Marks of `rpc.changes` on the wire."""

from stratamq.api.v1 import common_pb2
from stratamq.rpc.changes import Mark


def mark_message(mark: Mark) -> common_pb2.ChangeMark:
    return common_pb2.ChangeMark(
        incarnation=mark.incarnation, since=mark.since, upto=mark.upto, position=mark.position
    )


def mark_of(message: common_pb2.ChangeMark) -> Mark:
    return Mark(message.incarnation, message.since, message.upto, message.position)
