package strata.tools;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Function;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What the pages are written with. */
final class Tools {
    /** More than by default, 3 s: the machine may have other work. */
    static final int PATIENCE_MS = 30_000;
    static final long HOUR_MS = 3_600_000;
    static String address;
    private static final int DEADLINE_S = 120;
    private static final RPCHook SIGNING = System.getProperty("key") == null
        ? null
        : new AclClientRPCHook(new SessionCredentials(System.getProperty("key"), System.getProperty("secret")));
    private static final List<Runnable> CLOSING = new ArrayList<>();

    interface Call {
        void make() throws Exception;
    }

    interface Question {
        boolean holds() throws Exception;
    }

    static DefaultMQAdminExt tool() throws MQClientException {
        DefaultMQAdminExt tool = new DefaultMQAdminExt(SIGNING, PATIENCE_MS);
        reach(tool);
        tool.start();
        return tool;
    }

    static DefaultMQProducer producer(String group, boolean traces) throws MQClientException {
        return started(new DefaultMQProducer(group, SIGNING, traces, null));
    }

    static DefaultMQProducer started(DefaultMQProducer producer) throws MQClientException {
        reach(producer);
        producer.setSendMsgTimeout(PATIENCE_MS);
        producer.start();
        CLOSING.add(producer::shutdown);
        return producer;
    }

    static void started(DefaultLitePullConsumer consumer) throws MQClientException {
        reach(consumer);
        consumer.start();
        CLOSING.add(consumer::shutdown);
    }

    /** From the first message on. One that fails is given once more, after a second. */
    static DefaultMQPushConsumer consumer(
        String group, String topic, Function<MessageExt, ConsumeConcurrentlyStatus> take) throws MQClientException {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, SIGNING);
        reach(consumer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(1);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            context.setDelayLevelWhenNextConsume(1);
            return take.apply(messages.get(0));
        });
        consumer.start();
        CLOSING.add(consumer::shutdown);
        return consumer;
    }

    /** A page's messages of a topic, of so long: by offsets at these times, and pulls. */
    static List<MessageExt> allOf(String topic, long fromMs, long untilMs) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("TOOLS_CONSUMER", SIGNING);
        reach(consumer);
        consumer.start();
        List<MessageExt> found = new ArrayList<>();
        try {
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
                long last = consumer.searchOffset(queue, untilMs);
                for (long offset = consumer.searchOffset(queue, fromMs); offset <= last; ) {
                    PullResult pulled = consumer.pull(queue, "*", offset, 32);
                    offset = pulled.getNextBeginOffset();
                    if (pulled.getPullStatus() != PullStatus.FOUND) {
                        break;
                    }
                    found.addAll(pulled.getMsgFoundList());
                }
            }
        } finally {
            consumer.shutdown();
        }
        found.removeIf(one -> one.getStoreTimestamp() < fromMs || one.getStoreTimestamp() > untilMs);
        return found;
    }

    static Set<String> between(String topic, long fromMs, long untilMs) throws Exception {
        Set<String> texts = new HashSet<>();
        allOf(topic, fromMs, untilMs).forEach(one -> texts.add(text(one)));
        return texts;
    }

    private static void reach(ClientConfig client) {
        client.setNamesrvAddr(address);
        client.setMqClientApiTimeout(PATIENCE_MS);
        client.setInstanceName(Long.toString(System.nanoTime()));
    }

    static void closeAll() {
        Collections.reverse(CLOSING);
        CLOSING.forEach(Runnable::run);
        CLOSING.clear();
    }

    static void until(Question question, String what) throws Exception {
        long end = System.nanoTime() + DEADLINE_S * 1_000_000_000L;
        while (!question.holds()) {
            require(System.nanoTime() < end, what);
            Thread.sleep(50);
        }
    }

    /** The tools have two classes for what a server refuses. */
    static void refused(Call call, int code) throws Exception {
        int seen;
        try {
            call.make();
            throw new AssertionError("it is not refused");
        } catch (MQBrokerException refused) {
            seen = refused.getResponseCode();
        } catch (MQClientException refused) {
            seen = refused.getResponseCode();
        }
        same(seen, code);
    }

    static void same(Object found, Object wanted) {
        require(found.equals(wanted), found + ", and not " + wanted);
    }

    static void require(boolean holds, Object what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private Tools() {
    }
}
