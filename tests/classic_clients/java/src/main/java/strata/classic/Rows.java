package strata.classic;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;

import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.exception.RemotingException;

/** The behaviours that RocketMQ's own Java clients must see, one method each. A line for each row: `row<TAB>ok` or what was seen. */
public final class Rows {
    interface Row {
        void run() throws Exception;
    }

    private static final int PATIENCE_MS = 30_000;
    /** So many times as long as the rows say may what they wait for take on a machine with other work; -Dbusy=1: as long. */
    private static final int BUSY = Integer.getInteger("busy", 3);
    /** With the properties `key` and `secret` every request is signed. */
    private static final RPCHook SIGNING = System.getProperty("key") == null
        ? null
        : new AclClientRPCHook(new SessionCredentials(System.getProperty("key"), System.getProperty("secret")));

    private final String address;
    private final String salt = Long.toHexString(new Random().nextLong());
    private final List<Runnable> closing = new ArrayList<>();

    private Rows(String address) {
        this.address = address;
    }

    public static void main(String[] arguments) {
        int failed = 0;
        for (String name : Arrays.copyOfRange(arguments, 1, arguments.length)) {
            Rows rows = new Rows(arguments[0]);
            String seen = "ok";
            try {
                rows.named().get(name).run();
            } catch (Throwable error) {
                failed++;
                seen = error.toString().replace('\n', ' ');
                error.printStackTrace();
            }
            Collections.reverse(rows.closing);
            for (Runnable each : rows.closing) {
                each.run();
            }
            System.out.println(name + "\t" + seen);
            System.out.flush();
        }
        Runtime.getRuntime().halt(failed == 0 ? 0 : 1);
    }

    private Map<String, Row> named() {
        Map<String, Row> rows = new LinkedHashMap<>();
        rows.put("send-sync", this::sendSync);
        rows.put("send-async", this::sendAsync);
        rows.put("send-oneway", this::sendOneway);
        rows.put("send-batch", this::sendBatch);
        rows.put("fields", this::fields);
        rows.put("compressed", this::compressed);
        rows.put("too-big", this::tooBig);
        rows.put("illegal-topic", this::illegalTopic);
        rows.put("no-topic", this::noTopic);
        rows.put("no-topic-refused", this::noTopicRefused);
        rows.put("read-only-topic", this::readOnlyTopic);
        rows.put("push", this::push);
        rows.put("listen", this::listen);
        rows.put("push-orderly", this::pushOrderly);
        rows.put("broadcast", this::broadcast);
        rows.put("tag-filter", this::tagFilter);
        rows.put("sql-filter", this::sqlFilter);
        rows.put("long-poll", this::longPoll);
        rows.put("pull", this::pull);
        rows.put("lite-pull", this::litePull);
        rows.put("rebalance", this::rebalance);
        rows.put("two-gateways", this::twoGateways);
        rows.put("quick-start", this::quickStart);
        rows.put("new-group", this::newGroup);
        rows.put("first-pull", this::firstPull);
        rows.put("retry", () -> retried("retry", true));
        rows.put("retry-new", () -> retried("fresh", false));
        rows.put("dlq", this::deadLetter);
        rows.put("delay-level", this::delayLevel);
        rows.put("timer", this::timer);
        rows.put("tx-commit", this::txCommit);
        rows.put("tx-rollback", this::txRollback);
        rows.put("tx-check", this::txCheck);
        rows.put("tx-late", () -> txLate(LocalTransactionState.COMMIT_MESSAGE, 1));
        rows.put("tx-conflict", () -> txLate(LocalTransactionState.ROLLBACK_MESSAGE, 0));
        rows.put("tx-other-connection", this::txOtherConnection);
        rows.put("tx-decide", this::txDecide);
        rows.put("fail-over", this::failOver);
        rows.put("kill", this::kill);
        rows.put("orderly-kill", this::orderlyKill);
        rows.put("takeover", this::takeover);
        rows.put("request-reply", this::requestReply);
        rows.put("trace", this::trace);
        rows.put("query", this::query);
        rows.put("offsets", this::offsets);
        return rows;
    }

    // --- producers ---

    private void sendSync() throws Exception {
        String topic = topic("sync");
        DefaultMQProducer producer = producer();
        Set<Integer> queues = new HashSet<>();
        Set<String> ids = new HashSet<>();
        for (int i = 0; i < 8; i++) {
            SendResult result = producer.send(new Message(topic, bytes("m" + i)));
            require(result.getSendStatus() == SendStatus.SEND_OK, result);
            require(result.getOffsetMsgId().length() == 32, result);
            require(result.getMsgId().length() == 32 || result.getMsgId().length() == 56, result);
            queues.add(result.getMessageQueue().getQueueId());
            ids.add(result.getMsgId());
        }
        require(queues.size() == 4, queues);
        Received received = consumer(topic, "g" + topic, "*");
        received.await(8, 20);
        require(received.ids().equals(ids), received.ids());
    }

    private void sendAsync() throws Exception {
        String topic = topic("async");
        DefaultMQProducer producer = producer();
        CountDownLatch answered = new CountDownLatch(100);
        AtomicInteger failed = new AtomicInteger();
        for (int i = 0; i < 100; i++) {
            producer.send(new Message(topic, bytes("m" + i)), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    answered.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    failed.incrementAndGet();
                    answered.countDown();
                }
            });
        }
        require(answered.await(20, TimeUnit.SECONDS), answered.getCount());
        require(failed.get() == 0, failed);
        Received received = consumer(topic, "g" + topic, "*");
        received.await(100, 20);
        require(received.bodies().equals(numbered(100)), received.bodies());
    }

    private void sendOneway() throws Exception {
        String topic = topic("oneway");
        DefaultMQProducer producer = producer();
        producer.send(new Message(topic, bytes("m0")));
        for (int i = 1; i < 20; i++) {
            producer.sendOneway(new Message(topic, bytes("m" + i)));
        }
        Received received = consumer(topic, "g" + topic, "*");
        received.await(20, 20);
        require(received.bodies().equals(numbered(20)), received.bodies());
    }

    private void sendBatch() throws Exception {
        String topic = topic("batch");
        DefaultMQProducer producer = producer();
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
            Message message = new Message(topic, "tag" + i % 2, "key" + i, bytes("m" + i));
            message.putUserProperty("number", String.valueOf(i));
            messages.add(message);
        }
        SendResult result = producer.send(messages);
        require(result.getOffsetMsgId().split(",").length == 20, result);
        Set<String> ids = new HashSet<>(Arrays.asList(result.getMsgId().split(",")));
        Received received = consumer(topic, "g" + topic, "*");
        received.await(20, 20);
        require(received.bodies().equals(numbered(20)), received.bodies());
        Set<Integer> queues = new HashSet<>();
        for (MessageExt one : received.all()) {
            String number = text(one.getBody()).substring(1);
            require(one.getKeys().equals("key" + number), one);
            require(one.getTags().equals("tag" + Integer.parseInt(number) % 2), one);
            require(one.getUserProperty("number").equals(number), one);
            queues.add(one.getQueueId());
        }
        require(queues.size() == 1, queues);
        require(ids.size() == 20 && received.ids().equals(ids), "ids " + ids + " and " + received.ids());
    }

    private void fields() throws Exception {
        String topic = topic("fields");
        DefaultMQProducer producer = producer();
        Message message = new Message(topic, "paid", "a b", 7, bytes("body \u00e4\u6c34"), true);
        message.putUserProperty("name", "\u6c34 = \u00e4");
        long before = System.currentTimeMillis();
        SendResult result = producer.send(message);
        Received received = consumer(topic, "g" + topic, "*");
        received.await(1, 20);
        MessageExt one = received.all().get(0);
        require(text(one.getBody()).equals("body \u00e4\u6c34"), one);
        require(one.getTags().equals("paid") && one.getKeys().equals("a b") && one.getFlag() == 7, one);
        require(one.getUserProperty("name").equals("\u6c34 = \u00e4"), one);
        require(one.getMsgId().equals(result.getMsgId()), one);
        require(one.getQueueOffset() == result.getQueueOffset(), one);
        require(one.getQueueId() == result.getMessageQueue().getQueueId(), one);
        require(Math.abs(one.getBornTimestamp() - before) < 60_000, one.getBornTimestamp());
        require(one.getBornHost().toString().contains("127.0.0.1"), one.getBornHost());
    }

    private void compressed() throws Exception {
        String topic = topic("large");
        DefaultMQProducer producer = producer();
        char[] many = new char[300 * 1024];
        Arrays.fill(many, 'x');
        byte[] random = new byte[(4 << 20) - (64 << 10)];
        new Random(1).nextBytes(random);
        producer.setMaxMessageSize(5 << 20);
        producer.send(new Message(topic, bytes(new String(many))), 15_000);
        producer.send(new Message(topic, random), 15_000);
        Received received = consumer(topic, "g" + topic, "*");
        received.await(2, 30);
        Set<Integer> lengths = new TreeSet<>();
        for (MessageExt one : received.all()) {
            lengths.add(one.getBody().length);
            require(one.getBody().length != random.length || Arrays.equals(one.getBody(), random), "another body");
        }
        require(lengths.equals(new TreeSet<>(Arrays.asList(many.length, random.length))), lengths);
    }

    private void tooBig() throws Exception {
        DefaultMQProducer producer = producer();
        producer.setMaxMessageSize(8 << 20);
        producer.setRetryTimesWhenSendFailed(0);
        byte[] random = new byte[(4 << 20) + 1];
        new Random(1).nextBytes(random);
        try {
            producer.send(new Message(topic("big"), random), 15_000);
        } catch (MQBrokerException error) {
            require(error.getResponseCode() == 13, error);
            return;
        }
        throw new AssertionError("it was taken");
    }

    private void illegalTopic() throws Exception {
        DefaultMQProducer producer = producer();
        try {
            producer.send(new Message("a/b", bytes("x")));
        } catch (MQClientException | MQBrokerException error) {
            return;
        }
        throw new AssertionError("it was taken");
    }

    /** It is made by its first message. */
    private void noTopic() throws Exception {
        String topic = topic("unknown");
        DefaultMQProducer producer = producer();
        long began = System.nanoTime();
        require(producer.send(new Message(topic, bytes("m"))).getSendStatus() == SendStatus.SEND_OK, "not taken");
        require(within(5_000, began), "longer than 5 s");
        consumer(topic, "g" + topic, "*").await(1, 20);
    }

    private void noTopicRefused() throws Exception {
        DefaultMQProducer producer = producer();
        long began = System.nanoTime();
        try {
            producer.send(new Message(topic("unknown"), bytes("m")));
        } catch (MQClientException | MQBrokerException error) {
            require(within(5_000, began), "longer than 5 s");
            return;
        }
        throw new AssertionError("it was taken");
    }

    /** A queue is named: with a newer route the producer refuses by itself, and it asks for one 10 ms after its start. */
    private void readOnlyTopic() throws Exception {
        String topic = topic("closed");
        DefaultMQProducer producer = producer();
        MessageQueue queue = producer.send(new Message(topic, bytes("m"))).getMessageQueue();
        create(producer, topic, 4, 4);
        for (int i = 0; i < 4; i++) {
            try {
                SendResult taken = producer.send(new Message(topic, bytes("m")), queue);
                throw new AssertionError("it was taken: " + taken);
            } catch (MQBrokerException error) {
                require(error.getResponseCode() == 16, error);
            }
        }
        create(producer, topic, 4, 6);
        producer.send(new Message(topic, bytes("m")), queue);
    }

    private void create(DefaultMQProducer producer, String topic, int queues, int permission) throws Exception {
        TopicConfig config = new TopicConfig(topic, queues, queues, permission);
        producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl().createTopic(address, "TBW102", config, 10_000);
    }

    // --- consumers ---

    private void push() throws Exception {
        String topic = topic("push");
        DefaultMQProducer producer = producer();
        for (int i = 0; i < 200; i++) {
            producer.send(new Message(topic, bytes("m" + i)));
        }
        String group = "g" + topic;
        Received received = new Received();
        DefaultMQPushConsumer first = started(topic, group, "*", received, received);
        received.await(200, 30);
        require(received.bodies().equals(numbered(200)), received.bodies().size());
        require(received.all().size() == 200, received.all().size());
        first.shutdown();
        Received again = consumer(topic, group, "*");
        again.quiet(4);
        require(again.all().isEmpty(), again.bodies());
    }

    /** For tools: the group `listeners` reads the topic `heard`, a line for each message, until its input ends. */
    private void listen() throws Exception {
        MessageListenerConcurrently printing = (given, context) -> {
            for (MessageExt one : given) {
                System.out.println(text(one.getBody()));
                System.out.flush();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
        started("heard", "listeners", "*", printing, new Received());
        while (System.in.read() >= 0) {
            continue;
        }
    }

    /** Sends, and prints a line once it does, until its input ends. All that was answered must be received. */
    private void failOver() throws Exception {
        String topic = topic("over");
        DefaultMQProducer producer = producer();
        producer.send(new Message(topic, bytes("m0")));
        Received received = consumer(topic, "g" + topic, "*");
        received.await(1, 60);
        System.out.println("going");
        System.out.flush();
        AtomicBoolean ended = new AtomicBoolean();
        Thread reading = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (IOException error) {
                error.printStackTrace();
            }
            ended.set(true);
        });
        reading.setDaemon(true);
        reading.start();
        int sent = 1;
        while (!ended.get()) {
            try {
                producer.send(new Message(topic, bytes("m" + sent)));
                sent++;
                Thread.sleep(5);
            } catch (MQClientException | RemotingException | MQBrokerException error) {
                Thread.sleep(100); // until it asks for the route again
            }
        }
        int all = sent;
        until(() -> received.bodies().containsAll(numbered(all)), 180, () -> received.bodies().size() + " of " + all);
    }

    /**
     * Sends and consumes while processes of the broker are killed. Its input has a line for each act: `kill` before a process is killed, `back`
     * once it is there again, which is answered with the milliseconds until a message sent since then is received. At the end all that was
     * answered is there, and what came twice was received less than 10 s before a kill: a client sends its offsets every 5 s.
     */
    private void kill() throws Exception {
        String topic = topic("kill");
        DefaultMQProducer producer = producer();
        producer.send(new Message(topic, bytes("m0")));
        Map<String, Long> first = new ConcurrentHashMap<>();
        List<Long> again = Collections.synchronizedList(new ArrayList<>());
        Received received = new Received();
        started(topic, "g" + topic, "*", (given, context) -> {
            for (MessageExt one : given) {
                Long before = first.putIfAbsent(text(one.getBody()), System.currentTimeMillis());
                if (before != null) {
                    again.add(before);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }, received);
        until(() -> first.size() == 1, 60, () -> "the first message");
        AtomicBoolean ended = new AtomicBoolean();
        Set<String> answered = ConcurrentHashMap.newKeySet();
        answered.add("m0");
        AtomicInteger number = new AtomicInteger(1);
        Thread sending = new Thread(() -> {
            while (!ended.get()) {
                String body = "m" + number.getAndIncrement();
                try {
                    producer.send(new Message(topic, bytes(body)));
                    answered.add(body);
                    Thread.sleep(5);
                } catch (MQClientException | RemotingException | MQBrokerException error) {
                    pause();
                } catch (InterruptedException error) {
                    return;
                }
            }
        });
        sending.start();
        List<Long> kills = new ArrayList<>();
        BufferedReader acts = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.out.println("going");
        System.out.flush();
        for (String act = acts.readLine(); act != null; act = acts.readLine()) {
            if (act.equals("kill")) {
                kills.add(System.currentTimeMillis());
                continue;
            }
            long began = System.nanoTime();
            int from = number.get();
            until(() -> {
                for (int i = from; i <= number.get(); i++) {
                    if (first.containsKey("m" + i)) {
                        return true;
                    }
                }
                return false;
            }, 60, () -> "nothing since m" + from);
            System.out.println((System.nanoTime() - began) / 1_000_000);
            System.out.flush();
        }
        ended.set(true);
        sending.join(60_000);
        until(() -> first.keySet().containsAll(answered), 120, () -> first.size() + " of " + answered.size());
        for (long before : again) {
            require(kills.stream().anyMatch(at -> before > at - 10_000), "given again, and received long before a kill: " + before + " " + kills);
        }
    }

    /**
     * One consumer in order works on all queues while the process that has its locks is killed, which its input says: it goes on, also once it
     * has asked for them again, 20 s later, and shares its queues with another one, without two threads in one queue.
     */
    private void orderlyKill() throws Exception {
        String topic = topic("orderlykill");
        DefaultMQProducer producer = producer();
        producer.send(new Message(topic, bytes("first")));
        AtomicInteger sent = new AtomicInteger();
        AtomicInteger received = new AtomicInteger();
        Map<String, String> holders = new ConcurrentHashMap<>();
        Set<Integer> busy = ConcurrentHashMap.newKeySet();
        AtomicBoolean together = new AtomicBoolean();
        for (String name : List.of("one", "two")) {
            DefaultMQPushConsumer consumer = blank("g" + topic);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                int queue = context.getMessageQueue().getQueueId();
                together.compareAndSet(false, !busy.add(queue));
                try {
                    holders.put(queue + name, name);
                    received.addAndGet(messages.size());
                    LockSupport.parkNanos(20_000_000);
                    return ConsumeOrderlyStatus.SUCCESS;
                } finally {
                    busy.remove(queue);
                }
            });
            if (name.equals("one")) {
                consumer.start();
                closing.add(consumer::shutdown);
                sendToAll(producer, topic, () -> holders.size() == 4, sent);
                System.out.println("going");
                System.out.flush();
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)).readLine();
                long began = System.currentTimeMillis();
                sendToAll(producer, topic, () -> System.currentTimeMillis() - began > 26_000, sent);
                require(received.get() >= sent.get() - 40, received + " of " + sent);
                continue;
            }
            consumer.start();
            closing.add(consumer::shutdown);
            sendToAll(producer, topic, () -> holders.values().stream().filter("two"::equals).count() >= 2, sent);
        }
        require(!together.get(), "two threads in one queue");
    }

    private void sendToAll(DefaultMQProducer producer, String topic, Question isOver, AtomicInteger sent) throws Exception {
        long end = System.currentTimeMillis() + 120_000;
        while (!isOver.holds() && System.currentTimeMillis() < end) {
            for (int q = 0; q < 4; q++) {
                int queue = q;
                try {
                    producer.send(new Message(topic, bytes("x")), (queues, message, argument) -> queues.get(queue), null);
                    sent.incrementAndGet();
                } catch (MQClientException | RemotingException | MQBrokerException error) {
                    pause();
                }
            }
            pause();
        }
        require(isOver.holds(), "not in time");
    }

    /**
     * Sends and consumes while another program takes the broker's directory and address. A line of its input says that it has: then what was pending
     * comes to its end, a message that failed, a delayed one and a half one, and nothing comes twice.
     */
    private void takeover() throws Exception {
        String topic = topic("taken");
        AtomicInteger moves = new AtomicInteger();
        AtomicInteger failures = new AtomicInteger();
        Received received = new Received();
        DefaultMQProducer producer = producer();
        TransactionMQProducer halves = transactions(topic, new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.UNKNOW;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return moves.get() > 0 ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.UNKNOW;
            }
        });
        started(topic, "g" + topic, "*", (given, context) -> {
            if (text(given.get(0).getBody()).equals("failing") && moves.get() == 0) {
                failures.incrementAndGet();
                context.setDelayLevelWhenNextConsume(4);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            return received.consumeMessage(given, context);
        }, received);
        Set<String> expected = new TreeSet<>(Collections.singleton("first"));
        send(producer, topic, expected, "a");
        until(() -> received.bodies().equals(expected), 60, received::bodies);
        halves.sendMessageInTransaction(new Message(topic, bytes("half")), null);
        producer.send(new Message(topic, bytes("failing")));
        until(() -> failures.get() > 0, 20, () -> "it does not fail");
        expected.addAll(Arrays.asList("half", "failing"));
        BufferedReader acts = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (int turn = 0; turn < 2; turn++) {
            Message later = new Message(topic, bytes("later" + turn));
            later.setDelayTimeLevel(4);
            producer.send(later);
            expected.add("later" + turn);
            Thread.sleep(7_000); // offsets are sent every 5 s
            System.out.println("ready");
            System.out.flush();
            require("moved".equals(acts.readLine()), "no line");
            moves.incrementAndGet();
            send(producer, topic, expected, "b" + turn);
            until(() -> received.bodies().equals(expected), 240, () -> {
                Set<String> left = new TreeSet<>(expected);
                left.removeAll(received.bodies());
                return "missing " + left;
            });
        }
        require(received.all().size() == expected.size(), "twice: " + received.all().size() + " of " + expected.size());
    }

    /** 20 messages, each tried until it is answered, and each sent once. */
    private static void send(DefaultMQProducer producer, String topic, Set<String> sent, String name) throws Exception {
        producer.setRetryTimesWhenSendFailed(0);
        for (int i = 0; i < 20; i++) {
            Message message = new Message(topic, bytes(name + i));
            until(() -> {
                try {
                    return producer.send(message).getSendStatus() == SendStatus.SEND_OK;
                } catch (MQClientException | RemotingException | MQBrokerException error) {
                    pause();
                    return false;
                }
            }, 90, () -> "not sent");
            sent.add(name + i);
        }
    }

    private static void pause() {
        try {
            Thread.sleep(100);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private void pushOrderly() throws Exception {
        String topic = topic("orderly");
        DefaultMQProducer producer = producer();
        producer.send(new Message(topic, bytes("first")));
        for (int i = 0; i < 10; i++) {
            for (int q = 0; q < 4; q++) {
                int queue = q;
                producer.send(new Message(topic, bytes(q + "-" + i)), (queues, message, argument) -> queues.get(queue), null);
            }
        }
        Map<Integer, List<String>> seen = new ConcurrentHashMap<>();
        Set<Integer> busy = ConcurrentHashMap.newKeySet();
        AtomicBoolean together = new AtomicBoolean();
        AtomicBoolean suspended = new AtomicBoolean();
        AtomicInteger count = new AtomicInteger();
        DefaultMQPushConsumer consumer = blank("g" + topic);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            int queue = context.getMessageQueue().getQueueId();
            if (!busy.add(queue)) {
                together.set(true);
            }
            try {
                for (MessageExt one : messages) {
                    String body = text(one.getBody());
                    if (body.equals("2-3") && suspended.compareAndSet(false, true)) {
                        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                    }
                    if (!body.equals("first")) {
                        seen.computeIfAbsent(queue, key -> Collections.synchronizedList(new ArrayList<>())).add(body);
                        count.incrementAndGet();
                    }
                }
                return ConsumeOrderlyStatus.SUCCESS;
            } finally {
                busy.remove(queue);
            }
        });
        consumer.start();
        closing.add(consumer::shutdown);
        until(() -> count.get() >= 40, 40, () -> seen);
        for (List<String> bodies : seen.values()) {
            for (int i = 0; i < 10; i++) {
                require(bodies.get(i).endsWith("-" + i), bodies);
            }
        }
        require(!together.get() && suspended.get(), "two threads in one queue");
    }

    private void broadcast() throws Exception {
        String topic = topic("broadcast");
        DefaultMQProducer producer = producer();
        producer.send(new Message(topic, bytes("before")));
        List<Received> both = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            Received received = new Received();
            DefaultMQPushConsumer consumer = blank("g" + topic);
            consumer.setInstanceName("i" + i + salt);
            broadcasting(consumer);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener(received);
            consumer.start();
            closing.add(consumer::shutdown);
            both.add(received);
        }
        for (Received each : both) {
            each.await(1, 20);
        }
        for (int i = 0; i < 20; i++) {
            producer.send(new Message(topic, bytes("m" + i)));
        }
        for (Received each : both) {
            each.await(21, 20);
            require(each.bodies().containsAll(numbered(20)), each.bodies());
        }
    }

    private void tagFilter() throws Exception {
        String topic = topic("tags");
        DefaultMQProducer producer = producer();
        for (String tag : "A B C D A BB Aa".split(" ")) {
            producer.send(new Message(topic, tag, bytes(tag)));
        }
        Received received = consumer(topic, "g" + topic, "A || B");
        received.await(3, 20);
        received.quiet(2);
        List<String> bodies = new ArrayList<>();
        for (MessageExt one : received.all()) {
            bodies.add(text(one.getBody()));
        }
        Collections.sort(bodies);
        require(bodies.equals(Arrays.asList("A", "A", "B")), bodies);
    }

    private void sqlFilter() throws Exception {
        String topic = topic("sql");
        DefaultMQProducer producer = producer();
        String[][] all = {{"6", "x"}, {"5", "x"}, {"7", "y"}, {null, "x"}, {"10", "x"}};
        for (String[] each : all) {
            Message message = new Message(topic, bytes(each[0] + each[1]));
            if (each[0] != null) {
                message.putUserProperty("a", each[0]);
            }
            message.putUserProperty("b", each[1]);
            producer.send(message);
        }
        Received received = new Received();
        DefaultMQPushConsumer consumer = blank("g" + topic);
        consumer.subscribe(topic, MessageSelector.bySql("a > 5 AND b = 'x'"));
        consumer.registerMessageListener(received);
        consumer.start();
        closing.add(consumer::shutdown);
        received.await(2, 30);
        received.quiet(2);
        require(received.all().size() == 2 && received.bodies().equals(new HashSet<>(Arrays.asList("6x", "10x"))), received.bodies());
        DefaultMQPushConsumer refused = blank("r" + topic);
        refused.subscribe(topic, MessageSelector.bySql("a >"));
        refused.registerMessageListener(received);
        closing.add(refused::shutdown);
        try {
            refused.start();
        } catch (MQClientException error) {
            require(error.getResponseCode() == 23, error);
            return;
        }
        throw new AssertionError("it started");
    }

    private void longPoll() throws Exception {
        String topic = topic("poll");
        DefaultMQProducer producer = producer();
        producer.send(new Message(topic, bytes("m0")));
        Received received = consumer(topic, "g" + topic, "*");
        received.await(1, 20);
        int fast = 0;
        for (int i = 1; i <= 10; i++) {
            long sent = System.nanoTime();
            producer.send(new Message(topic, bytes("m" + i)));
            received.await(i + 1, 20);
            if (within(500, sent)) {
                fast++;
            }
        }
        require(fast >= 9, fast);
    }

    private void pull() throws Exception {
        String topic = topic("pull");
        DefaultMQProducer producer = producer();
        producer.send(new Message(topic, bytes("first")), (queues, message, argument) -> queues.get(1), null);
        for (int i = 0; i < 40; i++) {
            producer.send(new Message(topic, i % 2 == 0 ? "even" : "odd", bytes("m" + i)), (queues, message, argument) -> queues.get(0), null);
        }
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("g" + topic, SIGNING);
        reach(consumer);
        consumer.setInstanceName(salt);
        consumer.start();
        closing.add(consumer::shutdown);
        MessageQueue queue = null;
        for (MessageQueue each : consumer.fetchSubscribeMessageQueues(topic)) {
            queue = each.getQueueId() == 0 ? each : queue;
        }
        MessageQueue whole = queue;
        until(() -> consumer.maxOffset(whole) == 40 && consumer.pull(whole, "*", 0, 1).getMaxOffset() == 40, 10, () -> "the end");
        PullResult result = consumer.pull(queue, "*", 0, 32);
        require(result.getPullStatus() == PullStatus.FOUND && result.getMsgFoundList().size() == 32, result);
        require(result.getNextBeginOffset() == 32 && result.getMaxOffset() == 40, result);
        require(consumer.pull(queue, "*", 40, 32).getPullStatus() == PullStatus.NO_NEW_MSG, "at the end");
        PullResult beyond = consumer.pull(queue, "*", 1000, 32);
        require(beyond.getPullStatus() == PullStatus.OFFSET_ILLEGAL && beyond.getNextBeginOffset() == 40, beyond);
        PullResult none = consumer.pull(queue, "other", 0, 32);
        require(none.getPullStatus() == PullStatus.NO_MATCHED_MSG && none.getNextBeginOffset() > 0, none);
        PullResult odd = consumer.pull(queue, "odd", 0, 40);
        require(odd.getMsgFoundList().size() == 20, odd);
        CountDownLatch woken = new CountDownLatch(1);
        Thread blocked = new Thread(() -> {
            try {
                if (consumer.pullBlockIfNotFound(whole, "*", 40, 32).getMsgFoundList().size() == 1) {
                    woken.countDown();
                }
            } catch (Exception error) {
                error.printStackTrace();
            }
        });
        blocked.start();
        Thread.sleep(500); // until it waits
        producer.send(new Message(topic, bytes("m40")), (queues, message, argument) -> queues.get(0), null);
        require(woken.await(10, TimeUnit.SECONDS), "a blocking pull does not wake"); // unless woken, it waits for 20 s
        consumer.updateConsumeOffset(queue, 17);
        consumer.getDefaultMQPullConsumerImpl().getOffsetStore().persist(queue);
        MessageQueue last = queue;
        until(() -> consumer.fetchConsumeOffset(last, true) == 17, 10, () -> "offset");
    }

    private void litePull() throws Exception {
        String topic = topic("lite");
        DefaultMQProducer producer = producer();
        for (int i = 0; i < 40; i++) {
            producer.send(new Message(topic, bytes("m" + i)));
        }
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("g" + topic, SIGNING);
        reach(consumer);
        consumer.setInstanceName(salt);
        consumer.setAutoCommit(false);
        consumer.start();
        closing.add(consumer::shutdown);
        Collection<MessageQueue> queues = consumer.fetchMessageQueues(topic);
        require(queues.size() == 4, queues);
        consumer.assign(queues);
        for (MessageQueue queue : queues) {
            consumer.seek(queue, 0);
        }
        for (int turn = 0; turn < 2; turn++) {
            Set<String> bodies = new HashSet<>();
            Set<Integer> seen = new HashSet<>();
            until(() -> {
                List<MessageExt> polled = consumer.poll(5_000);
                for (MessageExt one : polled) {
                    bodies.add(text(one.getBody()));
                    seen.add(one.getQueueId());
                }
                for (MessageQueue queue : queues) {
                    if (polled.isEmpty() && !seen.contains(queue.getQueueId())) {
                        consumer.seek(queue, 0); // the client forgets the place if its first pull from there fails
                    }
                }
                return bodies.size() >= 40;
            }, 20, () -> bodies);
            require(bodies.equals(numbered(40)), bodies);
            consumer.commitSync();
            until(() -> {
                long committed = 0;
                for (MessageQueue queue : queues) {
                    committed += Math.max(0, consumer.committed(queue));
                }
                return committed == 40;
            }, 10, () -> "the committed offsets");
            for (MessageQueue queue : queues) {
                consumer.seek(queue, 0);
            }
        }
    }

    private void rebalance() throws Exception {
        String topic = topic("rebalance");
        DefaultMQProducer producer = producer();
        create(producer, topic, 8, 6);
        AtomicInteger sent = new AtomicInteger();
        AtomicBoolean ended = new AtomicBoolean();
        Thread sending = new Thread(() -> {
            while (!ended.get()) {
                try {
                    producer.send(new Message(topic, bytes("m" + sent.get())));
                    sent.incrementAndGet();
                    Thread.sleep(5);
                } catch (Exception error) {
                    error.printStackTrace();
                    return;
                }
            }
        });
        Received received = new Received();
        DefaultMQPushConsumer first = started(topic, "g" + topic, "*", received, received);
        until(() -> queues(first, topic) == 8, 30, () -> queues(first, topic));
        sending.start();
        received.await(50, 20);
        DefaultMQPushConsumer second = started(topic, "g" + topic, "*", received, received);
        until(() -> queues(first, topic) == 4 && queues(second, topic) == 4, 30, () -> queues(first, topic) + " and " + queues(second, topic));
        int joined = received.all().size();
        received.await(joined + 50, 20);
        second.shutdown();
        until(() -> queues(first, topic) == 8, 30, () -> queues(first, topic));
        int left = received.all().size();
        received.await(left + 50, 20);
        ended.set(true);
        sending.join(20_000);
        until(() -> received.bodies().equals(numbered(sent.get())), 30, () -> received.bodies().size() + " of " + sent.get());
    }

    /** The second consumer is at the broker's other gateway, the property `second`. Both divide the queues, and each message comes once. */
    private void twoGateways() throws Exception {
        String topic = topic("two-gateways");
        DefaultMQProducer producer = producer();
        create(producer, topic, 8, 6);
        Rows elsewhere = new Rows(System.getProperty("second"));
        Received received = new Received();
        DefaultMQPushConsumer first = started(topic, "g" + topic, "*", received, received);
        DefaultMQPushConsumer second = elsewhere.started(topic, "g" + topic, "*", received, received);
        closing.addAll(elsewhere.closing);
        until(() -> queues(first, topic) == 4 && queues(second, topic) == 4, 60, () -> queues(first, topic) + " and " + queues(second, topic));
        for (int i = 0; i < 200; i++) {
            producer.send(new Message(topic, bytes("m" + i)));
        }
        received.await(200, 60);
        received.quiet(3);
        require(received.all().size() == 200, received.all().size());
        second.shutdown();
        until(() -> queues(first, topic) == 8, 60, () -> queues(first, topic));
    }

    private static long queues(DefaultMQPushConsumer consumer, String topic) {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet()
            .stream().filter(each -> each.getTopic().equals(topic)).count();
    }

    private void quickStart() throws Exception {
        DefaultMQProducer producer = producer();
        int fast = 0;
        for (int turn = 0; turn < 5; turn++) {
            String topic = topic("quick" + turn);
            producer.send(new Message(topic, bytes("m")));
            long began = System.nanoTime();
            consumer(topic, "g" + topic, "*").await(1, 40);
            if (within(5_000, began)) {
                fast++;
            }
        }
        require(fast >= 4, fast + " of 5 within 5 s");
    }

    /** A topic has 8 messages when each group begins: LAST has those alone that are sent later. */
    private void newGroup() throws Exception {
        DefaultMQProducer producer = producer();
        for (ConsumeFromWhere from : new ConsumeFromWhere[] {
            ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, ConsumeFromWhere.CONSUME_FROM_TIMESTAMP}) {
            String topic = topic("young" + from.ordinal());
            for (int i = 0; i < 8; i++) {
                producer.send(new Message(topic, bytes("m" + i)));
            }
            untilDispatched(producer, topic, 8);
            Received received = new Received();
            DefaultMQPushConsumer consumer = blank("g" + topic);
            consumer.setConsumeFromWhere(from);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener(received);
            consumer.start();
            closing.add(consumer::shutdown);
            boolean isLast = from == ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET;
            if (isLast) {
                until(() -> queues(consumer, topic) == 4, 30, () -> queues(consumer, topic));
                received.quiet(2);
            } else {
                received.await(8, 20);
            }
            for (int i = 8; i < 12; i++) {
                producer.send(new Message(topic, bytes("m" + i)));
            }
            int expected = isLast ? 4 : 12;
            received.await(expected, 20);
            received.quiet(1);
            require(received.all().size() == expected, from + ": " + received.bodies());
        }
    }

    /** Queues end behind what was sent a moment later: a group that begins at their ends must not begin before. */
    private static void untilDispatched(DefaultMQProducer producer, String topic, int count) throws Exception {
        until(() -> {
            long ends = 0;
            for (MessageQueue queue : producer.fetchPublishMessageQueues(topic)) {
                ends += producer.maxOffset(queue);
            }
            return ends == count;
        }, 20, () -> "the queues' ends");
    }

    /** As many starts as the property `starts` says. A client whose pull is refused waits here for longer than may be. */
    private void firstPull() throws Exception {
        DefaultMQProducer producer = producer();
        for (int turn = 0; turn < Integer.getInteger("starts", 10); turn++) {
            String topic = topic("start" + turn);
            producer.send(new Message(topic, bytes("m")));
            Received received = new Received();
            DefaultMQPushConsumer consumer = blank("g" + topic);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener(received);
            consumer.getDefaultMQPushConsumerImpl().setPullTimeDelayMillsWhenException(PATIENCE_MS);
            consumer.start();
            long began = System.nanoTime();
            received.await(1, 40);
            long ms = (System.nanoTime() - began) / 1_000_000;
            consumer.shutdown();
            require(ms < BUSY * 2_000, "start " + turn + ": " + ms + " ms");
        }
    }

    /** `known`: the group has consumed before. */
    private void retried(String name, boolean known) throws Exception {
        String topic = topic(name);
        DefaultMQProducer producer = producer();
        String group = "g" + topic;
        producer.send(new Message(topic, "first", bytes("first")));
        if (known) {
            Received before = new Received();
            DefaultMQPushConsumer earlier = started(topic, group, "*", before, before);
            before.await(1, 20);
            earlier.shutdown();
        }
        SendResult sent = producer.send(new Message(topic, "failing", bytes("m")));
        List<Integer> attempts = Collections.synchronizedList(new ArrayList<>());
        List<Long> times = Collections.synchronizedList(new ArrayList<>());
        Set<String> ids = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = blank(group);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt one = messages.get(0);
            if (text(one.getBody()).equals("first")) {
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
            attempts.add(one.getReconsumeTimes());
            times.add(System.currentTimeMillis());
            ids.add(one.getMsgId());
            context.setDelayLevelWhenNextConsume(1);
            return one.getReconsumeTimes() < 2 ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        closing.add(consumer::shutdown);
        until(() -> attempts.size() >= 3, 30, () -> attempts);
        require(attempts.equals(Arrays.asList(0, 1, 2)), attempts);
        require(ids.equals(Collections.singleton(sent.getMsgId())), ids);
        for (int i = 1; i < 3; i++) {
            long gap = times.get(i) - times.get(i - 1);
            require(gap >= 900 && gap < Math.min(BUSY * 4_000, 9_000), times); // the level for ten seconds is the next but one
        }
    }

    private void deadLetter() throws Exception {
        String topic = topic("dead");
        DefaultMQProducer producer = producer();
        SendResult sent = producer.send(new Message(topic, bytes("m")));
        String group = "g" + topic;
        AtomicInteger attempts = new AtomicInteger();
        DefaultMQPushConsumer consumer = blank(group);
        consumer.setMaxReconsumeTimes(1);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            attempts.incrementAndGet();
            context.setDelayLevelWhenNextConsume(1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        closing.add(consumer::shutdown);
        until(() -> attempts.get() >= 2, 30, () -> attempts);
        Received buried = new Received();
        until(() -> {
            try {
                DefaultMQPushConsumer reader = started("%DLQ%" + group, "r" + group, "*", buried, buried);
                return reader != null;
            } catch (Exception error) {
                return false;
            }
        }, 10, () -> "no consumer");
        buried.await(1, 60);
        require(buried.ids().equals(Collections.singleton(sent.getMsgId())), buried.ids());
        require(attempts.get() == 2, attempts);
    }

    // --- later, transactions, queries ---

    private void delayLevel() throws Exception {
        String topic = topic("delay");
        DefaultMQProducer producer = producer();
        producer.send(new Message(topic, bytes("first")));
        Received received = consumer(topic, "g" + topic, "*");
        received.await(1, 20);
        Message message = new Message(topic, bytes("later"));
        message.setDelayTimeLevel(2);
        long sent = System.currentTimeMillis();
        producer.send(message);
        received.await(2, 20);
        long ms = System.currentTimeMillis() - sent;
        require(ms >= 4_800 && ms < 12_000, ms);
    }

    private void timer() throws Exception {
        String topic = topic("timer");
        DefaultMQProducer producer = producer();
        producer.send(new Message(topic, bytes("first")));
        Received received = consumer(topic, "g" + topic, "*");
        received.await(1, 20);
        Message message = new Message(topic, bytes("later"));
        long due = System.currentTimeMillis() + 4_000;
        MessageAccessor.putProperty(message, "TIMER_DELIVER_MS", String.valueOf(due));
        producer.send(message);
        received.await(2, 20);
        long late = System.currentTimeMillis() - due;
        require(late >= 0 && late < BUSY * 1_000, late);
    }

    private void txCommit() throws Exception {
        String topic = topic("commit");
        Asked asked = new Asked(LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE);
        TransactionMQProducer producer = transactions(topic, asked);
        producer.sendMessageInTransaction(new Message(topic, "tx", bytes("m")), null);
        Received received = consumer(topic, "g" + topic, "tx");
        received.await(1, 20);
        received.quiet(2);
        require(received.all().size() == 1 && asked.checks.get() == 0, asked.checks);
    }

    private void txRollback() throws Exception {
        String topic = topic("rollback");
        Asked asked = new Asked(LocalTransactionState.ROLLBACK_MESSAGE, LocalTransactionState.COMMIT_MESSAGE);
        TransactionMQProducer producer = transactions(topic, asked);
        producer.sendMessageInTransaction(new Message(topic, "tx", bytes("m")), null);
        Received received = consumer(topic, "g" + topic, "tx");
        received.quiet(10);
        require(received.all().isEmpty() && asked.checks.get() == 0, asked.checks);
    }

    private void txCheck() throws Exception {
        String topic = topic("check");
        Asked asked = new Asked(LocalTransactionState.UNKNOW, LocalTransactionState.COMMIT_MESSAGE);
        TransactionMQProducer producer = transactions(topic, asked);
        producer.sendMessageInTransaction(new Message(topic, "tx", bytes("m")), null);
        Received received = consumer(topic, "g" + topic, "tx");
        received.await(1, 60);
        received.quiet(2);
        require(received.all().size() == 1 && asked.checks.get() == 2, asked.checks);
    }

    /** The producer decides to commit, after a check has decided. */
    private void txLate(LocalTransactionState checked, int delivered) throws Exception {
        String topic = topic("late" + delivered);
        CountDownLatch answered = new CountDownLatch(1);
        TransactionMQProducer producer = transactions(topic, new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                try {
                    require(answered.await(60, TimeUnit.SECONDS), "no check");
                    Thread.sleep(2_000); // the answer to the check is on its way
                } catch (InterruptedException error) {
                    throw new IllegalStateException(error);
                }
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                answered.countDown();
                return checked;
            }
        });
        Received received = consumer(topic, "g" + topic, "tx");
        producer.sendMessageInTransaction(new Message(topic, "tx", bytes("m")), null);
        received.await(delivered, 20);
        received.quiet(5);
        require(received.all().size() == delivered, received.all().size());
    }

    /** Another process decides, once the one that has sent the half message is gone: Flink's sink does so. */
    private void txOtherConnection() throws Exception {
        String topic = topic("other");
        Asked asked = new Asked(LocalTransactionState.UNKNOW, LocalTransactionState.UNKNOW);
        TransactionMQProducer producer = transactions(topic, asked);
        Message message = new Message(topic, "tx", bytes("m"));
        MessageAccessor.putProperty(message, "TRAN_MSG", "true");
        MessageAccessor.putProperty(message, "PGROUP", producer.getProducerGroup());
        SendResult half = producer.send(message);
        producer.shutdown();
        List<String> command = new ArrayList<>(Arrays.asList(
            System.getProperty("java.home") + "/bin/java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", System.getProperty("java.class.path"),
            "-Drocketmq.client.logUseSlf4j=true", "-Duser.home=" + System.getProperty("user.home"),
            "-Dtx.topic=" + topic, "-Dtx.id=" + half.getTransactionId(), "-Dtx.offset.id=" + half.getOffsetMsgId(),
            "-Dtx.msg.id=" + half.getMsgId(), "-Dtx.queue.offset=" + half.getQueueOffset(),
            "-Dtx.broker=" + half.getMessageQueue().getBrokerName(), "-Dtx.queue=" + half.getMessageQueue().getQueueId()));
        for (String name : new String[] {"key", "secret", "tls.enable", "rocketmq.serialize.type"}) {
            if (System.getProperty(name) != null) {
                command.add("-D" + name + "=" + System.getProperty(name));
            }
        }
        command.addAll(Arrays.asList(Rows.class.getName(), address, "tx-decide"));
        Process other = new ProcessBuilder(command).redirectErrorStream(true).start();
        closing.add(other::destroyForcibly);
        String said = new String(other.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        require(other.waitFor() == 0, said);
        Received received = consumer(topic, "g" + topic, "tx");
        received.await(1, 20);
        received.quiet(2);
        require(received.all().size() == 1, received.all().size());
    }

    private void txDecide() throws Exception {
        String topic = System.getProperty("tx.topic");
        TransactionMQProducer producer = new TransactionMQProducer("tx" + topic, SIGNING);
        reach(producer);
        producer.setInstanceName("decide" + salt);
        producer.setTransactionListener(new Asked(LocalTransactionState.UNKNOW, LocalTransactionState.UNKNOW));
        producer.start();
        closing.add(producer::shutdown);
        until(() -> {
            try {
                return !producer.fetchPublishMessageQueues(topic).isEmpty();
            } catch (MQClientException error) {
                return false; // a slow machine: the client waits 3 s for a route
            }
        }, 60, () -> "a route");
        SendResult half = new SendResult();
        half.setTransactionId(System.getProperty("tx.id"));
        half.setMsgId(System.getProperty("tx.msg.id"));
        half.setOffsetMsgId(System.getProperty("tx.offset.id"));
        half.setQueueOffset(Long.getLong("tx.queue.offset"));
        half.setMessageQueue(new MessageQueue(topic, System.getProperty("tx.broker"), Integer.getInteger("tx.queue")));
        producer.getDefaultMQProducerImpl().endTransaction(new Message(topic, bytes("m")), half, LocalTransactionState.COMMIT_MESSAGE, null);
        Thread.sleep(1_000); // it is sent without an answer
    }

    private void requestReply() throws Exception {
        String topic = topic("request");
        DefaultMQProducer producer = producer();
        DefaultMQProducer replier = producer("r");
        // Not by `producer`: a request says who its client is only if it has to look for the topic; else
        // the broker learns that 1 s after the start, and knows no one to pass the reply to before.
        replier.send(new Message(topic, bytes("first")));
        Received received = new Received();
        started(topic, "g" + topic, "*", (given, context) -> {
            for (MessageExt one : given) {
                if (!text(one.getBody()).equals("first")) {
                    try {
                        replier.send(MessageUtil.createReplyMessage(one, bytes("reply to " + text(one.getBody()))), 3_000);
                    } catch (Exception error) {
                        throw new IllegalStateException(error);
                    }
                }
            }
            return received.consumeMessage(given, context);
        }, received);
        received.await(1, 20);
        for (int i = 0; i < 10; i++) {
            Message reply = producer.request(new Message(topic, bytes("m" + i)), 8_000);
            require(text(reply.getBody()).equals("reply to m" + i), reply);
        }
    }

    private void trace() throws Exception {
        String topic = topic("traced");
        DefaultMQProducer producer = new DefaultMQProducer("traced" + salt, SIGNING, true, null);
        reach(producer);
        producer.setSendMsgTimeout(PATIENCE_MS);
        producer.start();
        closing.add(producer::shutdown);
        String id = producer.send(new Message(topic, bytes("m"))).getMsgId();
        long now = System.currentTimeMillis();
        until(() -> {
            try {
                MessageExt found = producer.queryMessage("RMQ_SYS_TRACE_TOPIC", id, 10, 0, now + 3_600_000).getMessageList().get(0);
                return text(found.getBody()).startsWith("Pub") && text(found.getBody()).contains(id);
            } catch (MQClientException none) {
                return false;
            }
        }, 60, () -> "a record of the message");
    }

    private void query() throws Exception {
        String topic = topic("query");
        DefaultMQProducer producer = producer();
        SendResult sent = producer.send(new Message(topic, "t", "key1 key2", bytes("m")));
        long now = System.currentTimeMillis();
        until(() -> {
            try {
                return producer.queryMessage(topic, "key2", 10, 0, now + 3_600_000).getMessageList().size() == 1;
            } catch (MQClientException none) {
                return false; // the index follows the log
            }
        }, 20, () -> "by key");
        require(producer.viewMessage(topic, sent.getMsgId()).getMsgId().equals(sent.getMsgId()), "by client id");
        require(text(producer.viewMessage(topic, sent.getOffsetMsgId()).getBody()).equals("m"), "by offset id");
        try {
            producer.queryMessage(topic, "none", 10, 0, now + 3_600_000);
        } catch (MQClientException error) {
            return;
        }
        throw new AssertionError("an unknown key was found");
    }

    private void offsets() throws Exception {
        String topic = topic("offsets");
        DefaultMQProducer producer = producer();
        SendResult last = null;
        for (int i = 0; i < 5; i++) {
            last = producer.send(new Message(topic, bytes("m" + i)), (queues, message, argument) -> queues.get(0), null);
        }
        MessageQueue queue = last.getMessageQueue();
        until(() -> producer.maxOffset(queue) == 5, 10, () -> "maximum");
        require(producer.minOffset(queue) == 0, "minimum");
        require(producer.searchOffset(queue, 0) == 0, "by time, before");
        require(producer.searchOffset(queue, System.currentTimeMillis() + 3_600_000) == 5, producer.searchOffset(queue, System.currentTimeMillis() + 3_600_000));
        require(producer.earliestMsgStoreTime(queue) > System.currentTimeMillis() - 3_600_000, "earliest");
    }

    // --- parts ---

    private static final class Asked implements TransactionListener {
        private final LocalTransactionState first;
        private final LocalTransactionState checked;
        final AtomicInteger checks = new AtomicInteger();

        Asked(LocalTransactionState first, LocalTransactionState checked) {
            this.first = first;
            this.checked = checked;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return first;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return checks.incrementAndGet() < 2 ? LocalTransactionState.UNKNOW : checked;
        }
    }

    private static final class Received implements MessageListenerConcurrently {
        private final List<MessageExt> messages = new ArrayList<>();

        @Override
        public synchronized ConsumeConcurrentlyStatus consumeMessage(
            List<MessageExt> given, org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext context) {
            messages.addAll(given);
            notifyAll();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }

        synchronized List<MessageExt> all() {
            return new ArrayList<>(messages);
        }

        Set<String> bodies() {
            Set<String> found = new HashSet<>();
            for (MessageExt one : all()) {
                found.add(text(one.getBody()));
            }
            return found;
        }

        Set<String> ids() {
            Set<String> found = new HashSet<>();
            for (MessageExt one : all()) {
                found.add(one.getMsgId());
            }
            return found;
        }

        void await(int count, int seconds) throws Exception {
            until(() -> all().size() >= count, seconds, this::bodies);
        }

        synchronized void quiet(int seconds) throws InterruptedException {
            long end = System.nanoTime() + seconds * 1_000_000_000L;
            for (long left = end - System.nanoTime(); left > 0; left = end - System.nanoTime()) {
                wait(1 + left / 1_000_000);
            }
        }
    }

    private String topic(String name) {
        return name + "-" + salt;
    }

    /** With more patience than by default, 3 s: the machine may have other work. */
    private void reach(ClientConfig client) {
        client.setNamesrvAddr(address);
        client.setMqClientApiTimeout(PATIENCE_MS);
    }

    private DefaultMQProducer producer() throws MQClientException {
        return producer("p");
    }

    private DefaultMQProducer producer(String name) throws MQClientException {
        DefaultMQProducer producer = new DefaultMQProducer(name + salt, SIGNING);
        reach(producer);
        producer.setInstanceName(name + salt);
        producer.setSendMsgTimeout(PATIENCE_MS);
        producer.start();
        closing.add(producer::shutdown);
        return producer;
    }

    private TransactionMQProducer transactions(String topic, TransactionListener listener) throws Exception {
        producer("w").send(new Message(topic, "warm", bytes("first")));
        TransactionMQProducer producer = new TransactionMQProducer("tx" + topic, SIGNING);
        reach(producer);
        producer.setInstanceName("tx" + salt);
        producer.setSendMsgTimeout(PATIENCE_MS);
        producer.setTransactionListener(listener);
        producer.start();
        closing.add(producer::shutdown);
        Received first = consumer(topic, "w" + topic, "warm");
        first.await(1, 20);
        return producer;
    }

    private DefaultMQPushConsumer blank(String group) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, SIGNING, new AllocateMessageQueueAveragely());
        // Else what a listener still works on is not committed, and comes again.
        consumer.setAwaitTerminationMillisWhenShutdown(20_000);
        reach(consumer);
        consumer.setInstanceName(salt + closing.size());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        return consumer;
    }

    private DefaultMQPushConsumer started(
        String topic, String group, String tags, MessageListenerConcurrently listener, Received received) throws MQClientException {
        DefaultMQPushConsumer consumer = blank(group);
        consumer.subscribe(topic, tags);
        consumer.registerMessageListener(listener);
        consumer.start();
        AtomicBoolean open = new AtomicBoolean(true);
        closing.add(() -> {
            if (open.getAndSet(false)) {
                consumer.shutdown();
            }
        });
        return consumer;
    }

    private Received consumer(String topic, String group, String tags) throws MQClientException {
        Received received = new Received();
        started(topic, group, tags, received, received);
        return received;
    }

    /** The enumeration moved between 4.x and 5.x. */
    private static void broadcasting(DefaultMQPushConsumer consumer) throws Exception {
        for (java.lang.reflect.Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                for (Object each : method.getParameterTypes()[0].getEnumConstants()) {
                    if (each.toString().equals("BROADCASTING")) {
                        method.invoke(consumer, each);
                    }
                }
            }
        }
    }

    private static Set<String> numbered(int count) {
        Set<String> found = new HashSet<>();
        for (int i = 0; i < count; i++) {
            found.add("m" + i);
        }
        return found;
    }

    interface Question {
        boolean holds() throws Exception;
    }

    interface Seen {
        Object seen();
    }

    /** `seconds`: on a machine with little else to do. */
    private static void until(Question question, int seconds, Seen seen) throws Exception {
        long end = System.nanoTime() + BUSY * seconds * 1_000_000_000L;
        while (!question.holds()) {
            if (System.nanoTime() > end) {
                throw new AssertionError("not within " + BUSY * seconds + " s: " + seen.seen());
            }
            Thread.sleep(20);
        }
    }

    private static boolean within(int ms, long began) {
        return System.nanoTime() - began < BUSY * ms * 1_000_000L;
    }

    private static void require(boolean holds, Object seen) {
        if (!holds) {
            throw new AssertionError(String.valueOf(seen));
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
