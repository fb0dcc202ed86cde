"""Requests of tools about the broker: 26 and 28. `spec/remoting.md` 11 and 11.1."""

from collections.abc import Mapping

from stratamq.client import AsyncClient, LogState, Queue, Role
from stratamq.errors import InvalidRequestError, NotFoundError
from stratamq.files.port import Clock
from stratamq.rpc.address import split_address
from stratamq_gateway.brokers import BrokerName
from stratamq_gateway.config import GatewayConfig
from stratamq_gateway.frames import VERSION, Answer, compact
from stratamq_gateway.routes import NoRequest, WithoutFields, data_version

VERSION_NAME = "V5_3_3"
"""What `VERSION` is called."""
_NO_RATE = "0.0 0.0 0.0"
"""A rate has three numbers: of the last 10 s, minute and 10 minutes."""
_ZEROS = (
    "sendThreadPoolQueueSize", "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueSize", "pullThreadPoolQueueHeadWaitTimeMills", "ackThreadPoolQueueSize",
    "ackThreadPoolQueueHeadWaitTimeMills", "pageCacheLockTimeMills", "timerReadBehind",
    "timerOffsetBehind", "timerCongestNum", "timerEnqueueTps", "timerDequeueTps",
    "remainHowManyDataToFlush", "msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning",
    "msgGetTotalYesterdayMorning", "msgGetTotalTodayMorning", "msgGetTotalTodayNow",
)  # fmt: skip
_RATES = (
    "putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferredTps",
    "getTransferedTps",
)  # fmt: skip
_NOT_COUNTED = dict.fromkeys(_ZEROS, "0") | dict.fromkeys(_RATES, _NO_RATE)
"""Tools fail without these numbers, which are not counted here."""


class RuntimeInfo(WithoutFields):
    """28. `msgPutTotalTodayNow` is the number of all messages that queues were given, and the two
    mornings are 0: what it was then is not kept."""

    use_case = "ListQueues"

    def __init__(self, own: AsyncClient, clock: Clock) -> None:
        self._own = own
        self._clock = clock
        self._began_ms = clock.wall_ms()

    async def answer(self, client: AsyncClient, channel: object, asked: NoRequest) -> Answer:
        state, queues = await client.log_state(), await client.queues()
        table = {**_NOT_COUNTED, **self._times(), **_of_log(state, queues)}
        oldest_ms = await self._oldest_ms(state)
        if oldest_ms:
            table["earliestMessageTimeStamp"] = str(oldest_ms)
        return Answer(body=compact({"table": table}))

    def _times(self) -> Mapping[str, str]:
        now_ms = self._clock.wall_ms()
        seconds = max(0, now_ms - self._began_ms) // 1_000
        days, hours, minutes = seconds // 86_400, seconds // 3_600 % 24, seconds // 60 % 60
        lasted = f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]"
        return {"bootTimestamp": str(self._began_ms), "runtime": lasted}

    async def _oldest_ms(self, state: LogState) -> int:
        """When the log's first message was stored; 0: it has none."""
        if state.minimum_offset >= state.confirmed_offset:
            return 0
        try:
            return (await self._own.message_at(state.minimum_offset)).store_timestamp_ms
        except (NotFoundError, InvalidRequestError):
            return 0  # retention has gone on


def _of_log(state: LogState, queues: list[Queue]) -> Mapping[str, str]:
    total = sum(one.max_offset for one in queues)
    size = state.appended_offset - state.minimum_offset
    behind = [one.lag_bytes for one in state.followers if one.name == "dispatcher"]
    return {
        "brokerActive": str(state.writable).lower(),
        "brokerVersion": str(VERSION),
        "brokerVersionDesc": VERSION_NAME,
        "commitLogDiskRatio": str(state.disk_used_ratio),
        "commitLogMaxOffset": str(state.appended_offset),
        "commitLogMinOffset": str(state.minimum_offset),
        "dispatchBehindBytes": str(max(behind, default=0)),
        "dispatchMaxBuffer": "0",
        "msgPutTotalTodayNow": str(total),
        "putMessageAverageSize": str(size / total if total else 0.0),
        "putMessageSizeTotal": str(size),
    }


class BrokerConfig(WithoutFields):
    """26: what the broker is, by the names of RocketMQ's settings. Lines of Java's properties."""

    use_case = "GetStatus"

    def __init__(self, where: BrokerName, config: GatewayConfig) -> None:
        self._where = where
        self._config = config

    async def answer(self, client: AsyncClient, channel: object, asked: NoRequest) -> Answer:
        state = await client.log_state()
        host, port = split_address(self._where.address)
        role = state.role or Role.SLAVE
        said = {
            "autoCreateTopicEnable": str(self._config.creates_topics).lower(),
            "brokerClusterName": self._where.cluster,
            "brokerIP1": host,
            "brokerId": state.broker_id,
            "brokerName": self._where.broker,
            "brokerRole": role.name,
            "flushDiskType": "SYNC_FLUSH" if state.sync_flush else "ASYNC_FLUSH",
            "listenPort": port,
            "mappedFileSizeCommitLog": state.segment_bytes,
            "rocketmqVersion": VERSION_NAME,
        }
        lines = "".join(f"{name}={_escaped(str(value))}\n" for name, value in said.items())
        return Answer(fields={"version": compact(data_version()).decode()}, body=lines.encode())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")
