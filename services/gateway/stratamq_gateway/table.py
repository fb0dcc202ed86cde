"""The requests that are served, by their codes."""

from collections.abc import Mapping
from functools import partial

from stratamq.client import AsyncClient
from stratamq.files.port import Clock
from stratamq_gateway.admin_access import PermissionsInUse, handlers_of_access
from stratamq_gateway.admin_broker import BrokerConfig, RuntimeInfo
from stratamq_gateway.admin_cluster import (
    AllProducers,
    CleanNow,
    CloneOffsets,
    CloseBroker,
    ConsumeStatsOfBroker,
    NameServerConfig,
    NoSetting,
    ReplicationInfo,
    SetMode,
    Statistics,
)
from stratamq_gateway.admin_groups import (
    AskConsumer,
    ConnectedConsumers,
    ConnectedProducers,
    ConsumeStats,
    DeleteGroup,
    GroupConfig,
    Groups,
    PutGroup,
    ResetOffsets,
)
from stratamq_gateway.admin_topics import (
    DeleteTopic,
    GroupsOfTopic,
    OrderedTopic,
    OrderedTopics,
    OrderTopic,
    PutTopic,
    QueueUnits,
    SystemTopics,
    TopicConfigOf,
    TopicConfigs,
    TopicStats,
)
from stratamq_gateway.brokers import BrokerName, Brokers
from stratamq_gateway.codes import REGION, RequestCode
from stratamq_gateway.commits import Commits
from stratamq_gateway.config import GatewayConfig
from stratamq_gateway.connection import Handler
from stratamq_gateway.consuming import (
    CommitOffset,
    CommittedOffset,
    EarliestStoreTime,
    OffsetAtTime,
    PullMessages,
    QueryMessages,
    QueueBound,
    ViewMessage,
)
from stratamq_gateway.elsewhere import ClientsElsewhere
from stratamq_gateway.group_rules import GroupRules
from stratamq_gateway.grouping import (
    BeatHeart,
    CheckSubscription,
    ListConsumers,
    LockQueues,
    Unregister,
)
from stratamq_gateway.locks import BrokerLocks
from stratamq_gateway.members import ConnectedClients
from stratamq_gateway.repeats import RepeatedSends, is_kept
from stratamq_gateway.replying import PassReply
from stratamq_gateway.routes import ClusterInfo, RetryTopics, Route, TopicList
from stratamq_gateway.sending import SENDS, EndTransaction, Send, SendBack


def handlers_of(
    where: BrokerName,
    brokers: Brokers,
    members: ConnectedClients,
    elsewhere: ClientsElsewhere,
    locks: BrokerLocks,
    own: AsyncClient,
    config: GatewayConfig,
    clock: Clock,
    permissions: PermissionsInUse,
) -> Mapping[RequestCode, Handler]:
    """`own`: with the broker's own rights, for what the gateway does for itself."""
    retry_topics, rules = RetryTopics(own), GroupRules(own, clock)
    reply, reply_v2 = RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2
    return {
        **_of_clients(members, elsewhere, locks, retry_topics, rules, own, clock),
        **_of_producers(where, retry_topics, rules, own, config, clock),
        **_of_name_server(where, brokers, config),
        **_of_tools_for_topics(where, members, retry_topics),
        **_of_tools_for_groups(where, members, elsewhere, rules),
        **_of_tools_for_clusters(where, brokers, members, clock),
        **handlers_of_access(permissions, where.cluster, clock),
        reply: PassReply(where, members, elsewhere, clock, reply),
        reply_v2: PassReply(where, members, elsewhere, clock, reply_v2),
        RequestCode.GET_BROKER_CONFIG: BrokerConfig(where, config),
        RequestCode.GET_BROKER_RUNTIME_INFO: RuntimeInfo(own, clock),
    }


def _of_name_server(
    where: BrokerName, brokers: Brokers, config: GatewayConfig
) -> Mapping[RequestCode, Handler]:
    creates = config.creates_topics
    return {
        RequestCode.GET_ROUTE_INFO_BY_TOPIC: Route(where, brokers, creates_topics=creates),
        RequestCode.GET_BROKER_CLUSTER_INFO: ClusterInfo(where, brokers),
        RequestCode.GET_ALL_TOPIC_LIST: TopicList(brokers),
        RequestCode.GET_TOPICS_BY_CLUSTER: TopicList(brokers),
        RequestCode.PUT_KV_CONFIG: OrderTopic(brokers, ordered=True),
        RequestCode.DELETE_KV_CONFIG: OrderTopic(brokers, ordered=False),
        RequestCode.GET_KV_CONFIG: OrderedTopic(brokers),
        RequestCode.GET_KVLIST_BY_NAMESPACE: OrderedTopics(brokers),
    }


def _of_tools_for_topics(
    where: BrokerName, members: ConnectedClients, retry_topics: RetryTopics
) -> Mapping[RequestCode, Handler]:
    return {
        RequestCode.UPDATE_AND_CREATE_TOPIC: PutTopic(),
        RequestCode.DELETE_TOPIC_IN_BROKER: DeleteTopic(retry_topics),
        RequestCode.DELETE_TOPIC_IN_NAMESRV: DeleteTopic(retry_topics),
        RequestCode.GET_ALL_TOPIC_CONFIG: TopicConfigs(),
        RequestCode.GET_TOPIC_CONFIG: TopicConfigOf(),
        RequestCode.GET_TOPIC_STATS_INFO: TopicStats(where),
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: GroupsOfTopic(members),
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: SystemTopics(where),
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: SystemTopics(where),
        RequestCode.QUERY_CONSUME_QUEUE: QueueUnits(),
    }


def _of_tools_for_groups(
    where: BrokerName, members: ConnectedClients, elsewhere: ClientsElsewhere, rules: GroupRules
) -> Mapping[RequestCode, Handler]:
    info, consume = RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY
    return {
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: PutGroup(rules),
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Groups(members),
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: GroupConfig(),
        RequestCode.DELETE_SUBSCRIPTIONGROUP: DeleteGroup(rules),
        RequestCode.GET_CONSUMER_CONNECTION_LIST: ConnectedConsumers(members),
        RequestCode.GET_PRODUCER_CONNECTION_LIST: ConnectedProducers(members),
        RequestCode.GET_CONSUME_STATS: ConsumeStats(where),
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: ResetOffsets(where, members, elsewhere),
        info: AskConsumer(members, info, "ListGroupMembers"),
        consume: AskConsumer(members, consume, "GetFrame"),
    }


def _of_tools_for_clusters(
    where: BrokerName, brokers: Brokers, members: ConnectedClients, clock: Clock
) -> Mapping[RequestCode, Handler]:
    return {
        RequestCode.UPDATE_BROKER_CONFIG: NoSetting(),
        RequestCode.WIPE_WRITE_PERM_OF_BROKER: CloseBroker(brokers, close=True),
        RequestCode.ADD_WRITE_PERM_OF_BROKER: CloseBroker(brokers, close=False),
        RequestCode.CLONE_GROUP_OFFSET: CloneOffsets(),
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: CleanNow(),
        RequestCode.CLEAN_UNUSED_TOPIC: CleanNow(),
        RequestCode.DELETE_EXPIRED_COMMITLOG: CleanNow(),
        RequestCode.VIEW_BROKER_STATS_DATA: Statistics(),
        RequestCode.GET_BROKER_CONSUME_STATS: ConsumeStatsOfBroker(where),
        RequestCode.UPDATE_NAMESRV_CONFIG: NoSetting(),
        RequestCode.GET_NAMESRV_CONFIG: NameServerConfig(where),
        RequestCode.GET_ALL_PRODUCER_INFO: AllProducers(members, clock),
        RequestCode.SET_MESSAGE_REQUEST_MODE: SetMode(),
        RequestCode.GET_BROKER_HA_STATUS: ReplicationInfo(),
    }


def _of_producers(
    where: BrokerName,
    retry_topics: RetryTopics,
    rules: GroupRules,
    own: AsyncClient,
    config: GatewayConfig,
    clock: Clock,
) -> Mapping[RequestCode, Handler]:
    window_ms = config.repeated_send_window_ms
    repeats = RepeatedSends(window_ms, clock, partial(is_kept, own)) if window_ms else None
    return {
        **{code: Send(code, REGION, where.cluster, repeats) for code in SENDS},
        RequestCode.CONSUMER_SEND_MSG_BACK: SendBack(retry_topics, rules, own),
        RequestCode.END_TRANSACTION: EndTransaction(own),
    }


def _of_clients(
    members: ConnectedClients,
    elsewhere: ClientsElsewhere,
    locks: BrokerLocks,
    retry_topics: RetryTopics,
    rules: GroupRules,
    own: AsyncClient,
    clock: Clock,
) -> Mapping[RequestCode, Handler]:
    commits = Commits()
    pull = PullMessages(members, rules, clock, commits, own)
    return {
        RequestCode.PULL_MESSAGE: pull,
        RequestCode.LITE_PULL_MESSAGE: pull,
        RequestCode.QUERY_MESSAGE: QueryMessages(),
        RequestCode.VIEW_MESSAGE_BY_ID: ViewMessage(),
        RequestCode.QUERY_CONSUMER_OFFSET: CommittedOffset(commits),
        RequestCode.UPDATE_CONSUMER_OFFSET: CommitOffset(commits),
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: OffsetAtTime(),
        RequestCode.GET_MAX_OFFSET: QueueBound(end=True),
        RequestCode.GET_MIN_OFFSET: QueueBound(end=False),
        RequestCode.GET_EARLIEST_MSG_STORETIME: EarliestStoreTime(),
        RequestCode.HEART_BEAT: BeatHeart(members, rules, retry_topics),
        RequestCode.CHECK_CLIENT_CONFIG: CheckSubscription(),
        RequestCode.UNREGISTER_CLIENT: Unregister(members),
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: ListConsumers(members, elsewhere),
        RequestCode.LOCK_BATCH_MQ: LockQueues(locks, clock, lock=True),
        RequestCode.UNLOCK_BATCH_MQ: LockQueues(locks, clock, lock=False),
    }
