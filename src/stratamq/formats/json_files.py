"""The metadata files in `config/`: fastjson's JSON read, strict JSON written. Spec 8.4.

fastjson writes numeric keys of maps without quotes (`{0:5}`), which is no JSON. Such keys become
texts here. What is written has quotes, which RocketMQ reads as well.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from stratamq.errors import CorruptRecordError

DEFAULT_RETRIES = 16
"""RocketMQ's `retryMaxTimes` of a group that was not configured."""
NEW_GROUP: Mapping[str, object] = {
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "consumeMessageOrderly": False,
    "groupSysFlag": 0,
    "notifyConsumerIdsChangedEnable": True,
    "retryMaxTimes": DEFAULT_RETRIES,
    "retryQueueNums": 1,
    "whichBrokerWhenConsumeSlowly": 1,
}
"""An entry of `subscriptionGroup.json` has these settings by default."""

_STRING_OR_BARE_KEY = re.compile(r'"(?:[^"\\]|\\.)*"|([{,]\s*)(-?\d+)(?=\s*:)', re.DOTALL)


def parse_json(raw: bytes) -> Any:
    """CorruptRecordError (reason `json`) for what is neither JSON nor fastjson's."""
    try:
        text = raw.decode("utf-8-sig")
        return json.loads(_STRING_OR_BARE_KEY.sub(_quote_key, text))
    except (ValueError, RecursionError) as error:
        position = getattr(error, "pos", 0)
        raise CorruptRecordError(f"not a JSON file: {error}", position, "json") from error


def parse_json_object(raw: bytes) -> dict[str, Any]:
    value = parse_json(raw)
    if not isinstance(value, dict):
        raise CorruptRecordError("not a JSON file: the outermost value is no object", 0, "json")
    return value


def format_json(value: Any) -> bytes:
    """Pretty-printed; RocketMQ reads these files with any layout."""
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode("utf-8", "replace")


def _quote_key(match: re.Match[str]) -> str:
    return match[0] if match[2] is None else f'{match[1]}"{match[2]}"'
