package strata.tools;

import static strata.tools.Tools.*;

import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.admin.ConsumeStats;
import org.apache.rocketmq.remoting.protocol.admin.OffsetWrapper;
import org.apache.rocketmq.remoting.protocol.admin.TopicOffset;
import org.apache.rocketmq.remoting.protocol.body.AclInfo;
import org.apache.rocketmq.remoting.protocol.body.BrokerStatsData;
import org.apache.rocketmq.remoting.protocol.body.CMResult;
import org.apache.rocketmq.remoting.protocol.body.ClusterInfo;
import org.apache.rocketmq.remoting.protocol.body.Connection;
import org.apache.rocketmq.remoting.protocol.body.ConsumerRunningInfo;
import org.apache.rocketmq.remoting.protocol.body.UserInfo;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.remoting.protocol.route.TopicRouteData;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.admin.api.MessageTrack;
import org.apache.rocketmq.tools.admin.api.TrackType;
import org.apache.rocketmq.tools.command.stats.StatsAllSubCommand;

/**
 * What the pages of RocketMQ's dashboard, and its Flink connector, ask for, by RocketMQ's own tools: a row for each
 * page. Usage: ADDRESS ROW... With the properties `key` and `secret` every request is signed.
 */
public final class Pages {
    interface Page {
        void show(DefaultMQAdminExt tool) throws Exception;
    }

    private static final Map<String, Page> PAGES = new HashMap<>();

    static {
        PAGES.put("cluster", Pages::cluster);
        PAGES.put("topics", Pages::topics);
        PAGES.put("consumers", Pages::consumers);
        PAGES.put("producers", Pages::producers);
        PAGES.put("messages", Pages::messages);
        PAGES.put("dead-letters", Pages::deadLetters);
        PAGES.put("trace", Pages::trace);
        PAGES.put("access", Pages::access);
        PAGES.put("flink-source", Connector::source);
        PAGES.put("flink-sink", Connector::sink);
    }

    public static void main(String[] arguments) throws Exception {
        address = arguments[0];
        int failed = 0;
        DefaultMQAdminExt tool = tool();
        for (String name : Arrays.copyOfRange(arguments, 1, arguments.length)) {
            String seen = "ok";
            try {
                PAGES.get(name).show(tool);
            } catch (Throwable error) {
                failed++;
                seen = error.toString().replace('\n', ' ');
                error.printStackTrace();
            }
            closeAll();
            System.out.println(name + "\t" + seen);
            System.out.flush();
        }
        Runtime.getRuntime().halt(failed == 0 ? 0 : 1);
    }

    /** And the first page, whose figures are collected by a task. */
    private static void cluster(DefaultMQAdminExt tool) throws Exception {
        ClusterInfo cluster = tool.examineBrokerClusterInfo();
        same(cluster.getClusterAddrTable().keySet(), Collections.singleton("DefaultCluster"));
        same(cluster.getBrokerAddrTable().size(), 1);
        for (BrokerData broker : cluster.getBrokerAddrTable().values()) {
            same(broker.getBrokerAddrs(), Collections.singletonMap(0L, address));
            Map<String, String> stats = tool.fetchBrokerRuntimeStats(address).getTable();
            for (String rate : Arrays.asList("putTps", "getTransferredTps", "getTransferedTps", "getTotalTps")) {
                Double.parseDouble(stats.get(rate).split(" ")[0]);
            }
            for (String count : Arrays.asList(
                "msgPutTotalTodayMorning", "msgPutTotalYesterdayMorning", "msgPutTotalTodayNow",
                "msgGetTotalTodayMorning", "msgGetTotalYesterdayMorning", "msgGetTotalTodayNow", "bootTimestamp")) {
                Long.parseLong(stats.get(count));
            }
            same(stats.get("brokerVersionDesc"), "V5_3_3");
            Properties config = tool.getBrokerConfig(address);
            same(config.getProperty("brokerName"), broker.getBrokerName());
        }
        same(tool.getNameServerAddressList(), Collections.singletonList(address));
        for (String name : Arrays.asList("TOPIC_PUT_NUMS", "GROUP_GET_NUMS")) {
            BrokerStatsData data = tool.viewBrokerStatsData(address, name, "any");
            same(data.getStatsMinute().getTps(), 0.0);
            same(StatsAllSubCommand.compute24HourSum(data), 0L);
        }
    }

    private static void topics(DefaultMQAdminExt tool) throws Exception {
        tool.createAndUpdateTopicConfig(address, new TopicConfig("shown", 2, 2, 6));
        DefaultMQProducer producer = producer("shows", false);
        Set<String> system = systemTopics(producer);
        require(!system.contains("shown"), system);
        require(tool.fetchAllTopicList().getTopicList().contains("shown"), "it is not in the list");
        TopicRouteData route = tool.examineTopicRouteInfo("shown");
        same(route.getQueueDatas().get(0).getReadQueueNums(), 2);
        for (int number = 0; number < 4; number++) {
            producer.send(new Message("shown", "tag", "key", bytes("m" + number)));
        }
        until(() -> {
            long all = 0;
            for (TopicOffset one : tool.examineTopicStats("shown").getOffsetTable().values()) {
                all += one.getMaxOffset() - one.getMinOffset();
            }
            return all == 4;
        }, "its messages are not counted");
        same(tool.getAllTopicConfig(address, PATIENCE_MS).getTopicConfigTable().get("shown").getWriteQueueNums(), 2);
        tool.createAndUpdateTopicConfig(address, new TopicConfig("shown", 4, 4, 6));
        same(tool.examineTopicConfig(address, "shown").getWriteQueueNums(), 4);
        same(tool.queryTopicConsumeByWho("shown").getGroupList(), Collections.emptySet());
        tool.deleteTopicInBroker(Collections.singleton(address), "shown");
        tool.deleteTopicInNameServer(Collections.singleton(address), "shown");
        refused(() -> tool.examineTopicRouteInfo("shown"), 17);
    }

    private static Set<String> systemTopics(DefaultMQProducer producer) throws Exception {
        return producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl()
            .getSystemTopicList(PATIENCE_MS).getTopicList();
    }

    private static void consumers(DefaultMQAdminExt tool) throws Exception {
        tool.createAndUpdateTopicConfig(address, new TopicConfig("read", 1, 1, 6));
        SubscriptionGroupConfig made = new SubscriptionGroupConfig();
        made.setGroupName("reads");
        made.setRetryMaxTimes(3);
        tool.createAndUpdateSubscriptionGroupConfig(address, made);
        same(tool.getAllSubscriptionGroup(address, PATIENCE_MS)
            .getSubscriptionGroupTable().get("reads").getRetryMaxTimes(), 3);
        same(tool.examineSubscriptionGroupConfig(address, "reads").getRetryMaxTimes(), 3);
        refused(() -> tool.examineConsumerConnectionInfo("reads"), 206);
        MessageQueue queue = producer("writes", false).send(new Message("read", bytes("m"))).getMessageQueue();
        AtomicInteger heard = new AtomicInteger();
        DefaultMQPushConsumer consumer = consumer("reads", "read", message -> {
            heard.incrementAndGet();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        until(() -> heard.get() == 1, "it is not consumed");
        Connection connection = tool.examineConsumerConnectionInfo("reads").getConnectionSet().iterator().next();
        ConsumerRunningInfo running = tool.getConsumerRunningInfo("reads", connection.getClientId(), true);
        require(running.getMqTable().containsKey(queue) && !running.getJstack().isEmpty(), running);
        require(tool.queryTopicConsumeByWho("read").getGroupList().contains("reads"), "no group of the topic");
        until(() -> committed(tool.examineConsumeStats("reads", "read"), queue) == 1, "its offset is not committed");
        same(tool.resetOffsetByTimestamp("read", "reads", 0, true), Collections.singletonMap(queue, 0L));
        until(() -> heard.get() == 2, "it is not consumed again");
        consumer.shutdown();
        until(() -> isGone(tool, "reads"), "the consumer is still shown");
        until(() -> committed(tool.examineConsumeStats("reads"), queue) == 1, "its last offset is not committed");
        same(tool.resetOffsetByTimestamp("read", "reads", 0, true), Collections.singletonMap(queue, 0L));
        same(tool.examineConsumeStats("reads").computeTotalDiff(), 1L);
        tool.resetOffsetNew("reads", "read", -1); // skips what has gathered
        same(tool.examineConsumeStats("reads").computeTotalDiff(), 0L);
        tool.deleteSubscriptionGroup(address, "reads", true);
        for (String prefix : Arrays.asList("%RETRY%", "%DLQ%")) {
            tool.deleteTopicInBroker(Collections.singleton(address), prefix + "reads");
            tool.deleteTopicInNameServer(Collections.singleton(address), prefix + "reads");
        }
        require(!tool.getAllSubscriptionGroup(address, PATIENCE_MS).getSubscriptionGroupTable().containsKey("reads"),
            "the group is still there");
    }

    /** -1: nothing yet. */
    private static long committed(ConsumeStats stats, MessageQueue queue) {
        OffsetWrapper found = stats.getOffsetTable().get(queue);
        return found == null ? -1 : found.getConsumerOffset();
    }

    private static boolean isGone(DefaultMQAdminExt tool, String group) throws Exception {
        try {
            tool.examineConsumerConnectionInfo(group);
            return false;
        } catch (MQBrokerException gone) {
            return gone.getResponseCode() == 206;
        }
    }

    private static void producers(DefaultMQAdminExt tool) throws Exception {
        tool.createAndUpdateTopicConfig(address, new TopicConfig("produced", 1, 1, 6));
        producer("produces", false).send(new Message("produced", bytes("m")));
        until(() -> {
            try {
                return tool.examineProducerConnectionInfo("produces", "produced").getConnectionSet().size() == 1;
            } catch (MQBrokerException notYet) {
                return false; // its first heartbeat is on its way
            }
        }, "the producer is not shown");
    }

    /** By id, by key, and by the time of a topic; who has consumed one, and once more to a consumer. */
    private static void messages(DefaultMQAdminExt tool) throws Exception {
        tool.createAndUpdateTopicConfig(address, new TopicConfig("found", 2, 2, 6));
        long began = System.currentTimeMillis();
        DefaultMQProducer producer = producer("finds", false);
        SendResult sent = producer.send(new Message("found", "tag", "the-key", bytes("first")));
        for (int number = 0; number < 5; number++) {
            producer.send(new Message("found", bytes("m" + number)));
        }
        long later = began + HOUR_MS;
        until(() -> {
            try {
                return tool.queryMessage("found", "the-key", 64, 0, later).getMessageList().size() == 1;
            } catch (MQClientException notYet) {
                return false; // the index follows the log
            }
        }, "it is not found by its key");
        MessageExt byId = tool.viewMessage("found", sent.getMsgId());
        same(text(byId), "first");
        same(text(tool.viewMessage("found", sent.getOffsetMsgId())), "first");
        same(between("found", began - HOUR_MS, later), new HashSet<>(Arrays.asList("first", "m0", "m1", "m2", "m3", "m4")));
        same(between("found", began - 2 * HOUR_MS, began - HOUR_MS), Collections.emptySet());
        same(tool.messageTrackDetail(byId), Collections.emptyList());
        AtomicInteger heard = new AtomicInteger();
        DefaultMQPushConsumer consumer = consumer("hears", "found", message -> {
            heard.addAndGet(text(message).equals("first") ? 1 : 0);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        until(() -> track(tool, byId) == TrackType.CONSUMED, "it is not tracked");
        String client = tool.examineConsumerConnectionInfo("hears").getConnectionSet().iterator().next().getClientId();
        same(tool.consumeMessageDirectly("hears", client, "found", sent.getMsgId()).getConsumeResult(), CMResult.CR_SUCCESS);
        same(heard.get(), 2);
        consumer.shutdown();
        until(() -> track(tool, byId) == TrackType.NOT_ONLINE, "its consumer is still shown");
    }

    private static TrackType track(DefaultMQAdminExt tool, MessageExt message) throws Exception {
        List<MessageTrack> tracks = tool.messageTrackDetail(message);
        return tracks.isEmpty() ? null : tracks.get(0).getTrackType();
    }

    /** They are shown, and consumed once more by a consumer of their group. */
    private static void deadLetters(DefaultMQAdminExt tool) throws Exception {
        tool.createAndUpdateTopicConfig(address, new TopicConfig("refused", 1, 1, 6));
        AtomicInteger attempts = new AtomicInteger();
        DefaultMQPushConsumer consumer = consumer("refuses", "refused", message -> attempts.incrementAndGet() > 2
            ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
            : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        SendResult sent = producer("offers", false).send(new Message("refused", bytes("poison")));
        String letters = "%DLQ%refuses";
        until(() -> {
            try {
                return between(letters, 0, System.currentTimeMillis() + HOUR_MS).size() == 1;
            } catch (MQClientException notYet) {
                return false; // the topic is there with the first of them
            }
        }, "there is no dead letter");
        MessageExt letter = allOf(letters, 0, System.currentTimeMillis() + HOUR_MS).get(0);
        same(letter.getMsgId(), sent.getMsgId());
        String topic = letter.getProperty("RETRY_TOPIC");
        same(topic, "refused");
        String origin = letter.getProperty("ORIGIN_MESSAGE_ID");
        String client = consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
        same(tool.consumeMessageDirectly("refuses", client, topic, origin).getConsumeResult(), CMResult.CR_SUCCESS);
        same(attempts.get(), 3);
    }

    private static void trace(DefaultMQAdminExt tool) throws Exception {
        tool.createAndUpdateTopicConfig(address, new TopicConfig("traced", 1, 1, 6));
        long began = System.currentTimeMillis();
        DefaultMQProducer producer = producer("traces", true);
        String id = producer.send(new Message("traced", bytes("m"))).getMsgId();
        until(() -> {
            try {
                MessageExt found = tool.queryMessage("RMQ_SYS_TRACE_TOPIC", id, 64, began - HOUR_MS, began + HOUR_MS)
                    .getMessageList().get(0);
                return text(found).startsWith("Pub") && text(found).contains(id);
            } catch (MQClientException notYet) {
                return false; // the client sends records later
            }
        }, "no record of the message");
        require(systemTopics(producer).contains("RMQ_SYS_TRACE_TOPIC"), "its topic is not one of the system");
    }

    private static void access(DefaultMQAdminExt tool) throws Exception {
        tool.createUser(address, UserInfo.of("shop", "secret-of-shop", "Normal"));
        same(tool.getUser(address, "shop").getUserType(), "Normal");
        require(tool.listUser(address, "").size() >= 2, "not all users");
        tool.createAcl(address, "User:shop", Collections.singletonList("Topic:orders"), Arrays.asList("Pub", "Sub"), null, "Allow");
        AclInfo rules = tool.getAcl(address, "User:shop");
        same(rules.getPolicies().get(0).getEntries().get(0).getResource(), "Topic:orders");
        same(tool.listAcl(address, "shop", "").size(), 1);
        tool.updateAcl(address, "User:shop", Collections.singletonList("Topic:orders"), Collections.singletonList("Sub"), null, "Allow");
        List<String> actions = tool.getAcl(address, "User:shop").getPolicies().get(0).getEntries().get(0).getActions();
        require(actions.contains("Sub") && !actions.contains("Pub"), actions);
        tool.updateUser(address, UserInfo.of("shop", "another-secret", "Normal"));
        tool.deleteAcl(address, "User:shop", "Topic:orders");
        tool.deleteUser(address, "shop");
        require(tool.listUser(address, "").stream().noneMatch(one -> one.getUsername().equals("shop")), "still there");
    }

    private Pages() {
    }
}
