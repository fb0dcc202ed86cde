"""A JSON object as a message: what people write by hand, and the lines of `consume -o json`."""

import base64
import binascii
import json
from typing import Any

from stratamq.cli.dump_rows import Row
from stratamq.client import Message
from stratamq.client.message_rows import REPORTED
from stratamq.errors import InvalidRequestError

FIELDS = ("body", "bodyEncoding", "key", "keys", "tag", "queue", "properties", "flag")
DOCUMENT_HELP = (
    "body (text, or any JSON; base64 or hex if bodyEncoding says so), key or keys, tag, queue, "
    "properties, flag: also the lines of `consume -o json`"
)
_ENCODINGS = ("text", "json", "base64", "hex")


def message_of(document: Any, defaults: Message) -> Message:
    """InvalidRequestError for an object that is no message."""
    if not isinstance(document, dict):
        raise InvalidRequestError("a message must be a JSON object")
    unknown = document.keys() - set(FIELDS) - REPORTED
    if unknown:
        raise InvalidRequestError(
            f"unknown field {', '.join(sorted(unknown))}: {', '.join(FIELDS)} are known"
        )
    if "key" in document and "keys" in document:
        raise InvalidRequestError("use either key or keys")
    keys = document.get("keys", document.get("key", []))
    keys = [keys] if isinstance(keys, str) else keys
    properties = document.get("properties", {})
    tag, queue = document.get("tag") or defaults.tag, document.get("queue", defaults.queue_id)
    flag = document.get("flag", 0)
    if not (isinstance(keys, list) and all(isinstance(key, str) for key in keys)):
        raise InvalidRequestError("keys must be a string or a list of strings")
    if not (
        isinstance(properties, dict) and all(isinstance(text, str) for text in properties.values())
    ):
        raise InvalidRequestError("properties must be an object of strings")
    if not isinstance(tag, str):
        raise InvalidRequestError("tag is a text")
    if not (queue is None or _is_number(queue)):
        raise InvalidRequestError("queue is a number")
    if not _is_number(flag):
        raise InvalidRequestError("flag is a number")
    return Message(
        defaults.topic,
        _body(document),
        tag=tag,
        keys=(*defaults.keys, *keys),
        properties=properties,
        queue_id=queue,
        delay_level=defaults.delay_level,
        delay=defaults.delay,
        deliver_at=defaults.deliver_at,
        flag=flag,
    )


def _body(document: Row) -> bytes:
    if "body" not in document:
        raise InvalidRequestError("the field body is missing")
    body, encoding = document["body"], document.get("bodyEncoding")
    if encoding not in (None, *_ENCODINGS):
        raise InvalidRequestError(f"bodyEncoding is one of {', '.join(_ENCODINGS)}")
    if encoding in (None, "text") and isinstance(body, str):
        return body.encode()
    if encoding in (None, "json"):
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    if not isinstance(body, str):
        raise InvalidRequestError(f"a body in {encoding} must be a string")
    try:
        return (
            base64.b64decode(body, validate=True) if encoding == "base64" else bytes.fromhex(body)
        )
    except (ValueError, binascii.Error) as error:
        raise InvalidRequestError(f"the body is not valid {encoding}: {error}") from error


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
