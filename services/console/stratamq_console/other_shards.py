"""What the console knows of the cluster's other shards: by addresses that its settings name, since
shards do not know each other."""

from dataclasses import dataclass, replace

from stratamq.client import AsyncClient, Drain, MemberLook, Shard, connect_async, shards_of
from stratamq.errors import ConfigurationError, StrataError
from stratamq.rpc.credentials import Credentials
from stratamq_console.config import ConsoleConfig

ANSWER_S = 2.0


@dataclass(frozen=True, slots=True)
class ShardsView:
    """All shards by name, the console's own among them, and what did not answer. `target`: where
    they were looked for. `problem`: why none is known."""

    target: str
    shards: tuple[Shard, ...] = ()
    silent: tuple[MemberLook, ...] = ()
    problem: str = ""

    def others(self, own: str) -> list[Shard]:
        return [one for one in self.shards if one.name != own]

    def beside(self, own: str) -> bool:
        """There is more to show than the console's own shard."""
        return bool(self.others(own) or self.silent or self.problem)

    @staticmethod
    def state_of(shard: Shard) -> tuple[str, bool]:
        """Whether a shard takes messages, in words, and whether that is as it should be."""
        if shard.master is None or shard.master.log is None:
            return "no master answers", False
        if shard.drain is Drain.DRAINED:
            return "drained", True
        if not shard.writable:
            return f"takes no messages: {shard.master.log.not_writable_reason}", False
        return ("being drained" if shard.drain is Drain.LEAVING else "takes messages"), True


class OtherShards:
    """Asks the shards by the console's own right. Close it at the end."""

    def __init__(self, target: str, credentials: Credentials) -> None:
        self._target = target
        self._client: AsyncClient = connect_async(
            target, timeout_s=ANSWER_S, credentials=credentials
        )

    async def gather(self) -> ShardsView:
        """All members are asked at once, and each is waited for `ANSWER_S` for its address, and
        once more for how it is."""
        try:
            shards, silent = shards_of(await self._client.members())
        except StrataError as error:
            return ShardsView(self._target, problem=error.message)
        return ShardsView(self._target, tuple(shards), tuple(silent))

    async def close(self) -> None:
        await self._client.close()


def other_shards(
    config: ConsoleConfig, credentials: Credentials, asks_who_calls: bool
) -> OtherShards | None:
    """None: the settings name none."""
    if not config.cluster:
        return None
    token_file = config.metrics_token_file if asks_who_calls else None
    if token_file is not None:
        try:
            token = token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError([f"console.metrics_token_file: {error}"]) from error
        credentials = replace(credentials, token=token)
    return OtherShards(config.cluster, credentials)
