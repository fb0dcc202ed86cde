"""Bodies as people and programs read them: JSON, text, or bytes in hexadecimal."""

import json
from enum import StrEnum
from typing import Any

from stratamq.errors import CorruptRecordError
from stratamq.formats.compression import decompress_body


class BodyAs(StrEnum):
    """`auto` takes JSON if it is, text if it can be shown, otherwise hex."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    NONE = "none"


def body_fields(stored: bytes, sys_flag: int, body_as: BodyAs) -> dict[str, Any]:
    """`body` decompressed, and how it is to be read; `bodyError` beside the stored bytes as hex."""
    if body_as is BodyAs.NONE:
        return {}
    try:
        body = decompress_body(stored, sys_flag)
    except CorruptRecordError as error:
        return {"body": stored.hex(), "bodyEncoding": "hex", "bodyError": str(error)}
    if body_as in (BodyAs.AUTO, BodyAs.JSON) and body[:1] in _JSON_STARTS:
        try:
            return {"body": json.loads(body), "bodyEncoding": "json"}
        except (ValueError, RecursionError):
            pass
    if body_as is BodyAs.TEXT:
        return {"body": body.decode("utf-8", "replace"), "bodyEncoding": "text"}
    if body_as is not BodyAs.HEX:
        try:
            text = body.decode()
        except UnicodeDecodeError:
            pass
        else:
            if text.translate(_LAYOUT).isprintable():
                return {"body": text, "bodyEncoding": "text"}
    return {"body": body.hex(), "bodyEncoding": "hex"}


_LAYOUT = str.maketrans("", "", "\t\r\n")
_JSON_STARTS = (b"{", b"[")
