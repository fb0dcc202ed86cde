"""Pulls of one connection whose answer is here already (`read_ahead.py`): they are answered while
they are read, without a task.

Where permissions are checked, or spans are recorded, every pull is served by a task.
"""

from stratamq.errors import StrataError
from stratamq.rpc.request_ids import Request
from stratamq.service.entrance import Entrance
from stratamq_gateway.consuming import PullMessages
from stratamq_gateway.frames import Command, encode_answer
from stratamq_gateway.metrics import requests_of
from stratamq_gateway.row_sends import AnsweringConnection


def answer_at_once(
    connection: AnsweringConnection, command: Command, entrance: Entrance, handler: object
) -> bool:
    """False, and nothing is done: a task is to serve it."""
    if type(handler) is not PullMessages or not entrance.is_plain or command.wrong:
        return False
    caller = connection.caller(None, command)
    client = connection.known_client(caller)
    try:
        asked = handler.decode(command)
        wanted = None if client is None else handler.here(asked)
    except StrataError:
        return False
    if client is None or wanted is None:
        return False
    requests_of(entrance.method).inc()
    request = Request()
    try:
        with entrance.enter(lambda: caller, request) as call:
            call.require_room()
            pieces = handler.give(client, asked, wanted, command.opaque)
    except Exception as error:  # noqa: BLE001 - it is logged, or is the client's
        answer = connection.failure(command, entrance.method, error, request)
        pieces = encode_answer(answer, command.opaque)
    if not command.is_oneway:
        connection.write(pieces)
    return True
