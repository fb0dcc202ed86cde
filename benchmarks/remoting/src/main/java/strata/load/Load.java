package strata.load;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * RocketMQ's own client as a load. Each line of its input is a command, NAME=VALUE words behind its name; each is
 * answered by a line of JSON, or of what failed.
 */
public final class Load {
    private interface Sends {
        /** One call; how many messages it stored. */
        int send(DefaultMQProducer producer) throws Exception;
    }

    private final Map<String, String> words;
    private final String topic;
    private final String salt = Long.toHexString(new Random().nextLong());

    private Load(Map<String, String> words) {
        this.words = words;
        this.topic = words.get("topic");
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split(" ");
            Map<String, String> words = new HashMap<>();
            for (String part : Arrays.asList(parts).subList(1, parts.length)) {
                words.put(part.substring(0, part.indexOf('=')), part.substring(part.indexOf('=') + 1));
            }
            try {
                System.out.println(new Load(words).run(parts[0]));
            } catch (Throwable error) {
                error.printStackTrace();
                System.out.println("failed: " + error.toString().replace('\n', ' '));
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private String run(String command) throws Exception {
        switch (command) {
            case "singles":
                return singles();
            case "batches":
                return batches();
            case "pulls":
                return pulls();
            case "push":
                return push();
            default:
                throw new IllegalArgumentException(command);
        }
    }

    private int number(String name) {
        return Integer.parseInt(words.get(name));
    }

    private String singles() throws Exception {
        byte[] body = body();
        return sending(producer -> {
            SendResult sent = producer.send(new Message(topic, "TagA", body));
            require(sent.getSendStatus() == SendStatus.SEND_OK, sent);
            return 1;
        });
    }

    private String batches() throws Exception {
        byte[] body = body();
        int count = number("batch");
        return sending(producer -> {
            List<Message> batch = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                batch.add(new Message(topic, "TagA", body));
            }
            SendResult sent = producer.send(batch);
            require(sent.getSendStatus() == SendStatus.SEND_OK, sent);
            return count;
        });
    }

    /** Messages that do not compress, and are too small to be compressed. */
    private byte[] body() {
        byte[] body = new byte[number("body")];
        new Random(7).nextBytes(body);
        return body;
    }

    /** So many threads, for so many milliseconds, or until there are so many messages. */
    private String sending(Sends sends) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("producers-" + salt);
        producer.setNamesrvAddr(words.get("address"));
        producer.setInstanceName(salt);
        producer.setSendMsgTimeout(30_000);
        producer.start();
        try {
            sends.send(producer); // makes the topic, and finds the route
            int threads = number("threads");
            long most = words.containsKey("messages") ? number("messages") : Long.MAX_VALUE;
            AtomicReference<Throwable> failure = new AtomicReference<>();
            AtomicLong stored = new AtomicLong();
            List<Thread> running = new ArrayList<>();
            List<List<Long>> took = new ArrayList<>();
            long began = System.nanoTime();
            long end = began + number("ms") * 1_000_000L;
            for (int i = 0; i < threads; i++) {
                List<Long> own = new ArrayList<>();
                took.add(own);
                running.add(new Thread(() -> {
                    try {
                        for (long now = began; now < end && stored.get() < most; ) {
                            int count = sends.send(producer);
                            long done = System.nanoTime();
                            own.add(done - now);
                            now = done;
                            stored.addAndGet(count);
                        }
                    } catch (Throwable error) {
                        failure.compareAndSet(null, error);
                    }
                }));
            }
            for (Thread thread : running) {
                thread.start();
            }
            for (Thread thread : running) {
                thread.join();
            }
            long elapsed = System.nanoTime() - began;
            if (failure.get() != null) {
                throw new IllegalStateException(failure.get());
            }
            return report(stored.get(), elapsed, took);
        } finally {
            producer.shutdown();
        }
    }

    /** The queues of a topic from begin to end, over and over. */
    private String pulls() throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("pulls-" + salt);
        consumer.setNamesrvAddr(words.get("address"));
        consumer.setInstanceName(salt);
        consumer.start();
        try {
            List<MessageQueue> queues = new ArrayList<>(consumer.fetchSubscribeMessageQueues(topic));
            List<Long> took = new ArrayList<>();
            long messages = 0;
            long began = System.nanoTime();
            long end = began + number("ms") * 1_000_000L;
            while (System.nanoTime() < end) {
                for (MessageQueue queue : queues) {
                    long offset = 0;
                    while (System.nanoTime() < end) {
                        long before = System.nanoTime();
                        PullResult found = consumer.pull(queue, "*", offset, number("most"));
                        took.add(System.nanoTime() - before);
                        if (found.getPullStatus() != PullStatus.FOUND) {
                            require(found.getPullStatus() == PullStatus.NO_NEW_MSG, found);
                            break;
                        }
                        for (MessageExt message : found.getMsgFoundList()) {
                            require(message.getQueueOffset() == offset++, message);
                        }
                        messages += found.getMsgFoundList().size();
                    }
                }
            }
            return report(messages, System.nanoTime() - began, Collections.singletonList(took));
        } finally {
            consumer.shutdown();
        }
    }

    /** A new group that reads so many messages: from the first that its listener sees to the last. */
    private String push() throws Exception {
        long wanted = number("messages");
        AtomicLong first = new AtomicLong();
        AtomicLong seen = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("push-" + salt);
        consumer.setNamesrvAddr(words.get("address"));
        consumer.setInstanceName(salt);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            first.compareAndSet(0, System.nanoTime());
            if (seen.addAndGet(messages.size()) >= wanted) {
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            require(done.await(10, TimeUnit.MINUTES), seen);
            return report(seen.get(), System.nanoTime() - first.get(), Collections.emptyList());
        } finally {
            consumer.shutdown();
        }
    }

    private static String report(long messages, long elapsed, List<List<Long>> took) {
        List<Long> all = new ArrayList<>();
        for (List<Long> some : took) {
            all.addAll(some);
        }
        Collections.sort(all);
        StringBuilder line = new StringBuilder();
        line.append("{\"messages\": ").append(messages).append(", \"seconds\": ").append(elapsed / 1e9);
        for (String part : new String[] {"50", "99", "999"}) {
            if (!all.isEmpty()) {
                double place = Double.parseDouble("0." + part) * (all.size() - 1);
                line.append(", \"p").append(part).append("_ms\": ").append(all.get((int) place) / 1e6);
            }
        }
        return line.append('}').toString();
    }

    private static void require(boolean holds, Object seen) {
        if (!holds) {
            throw new IllegalStateException(String.valueOf(seen));
        }
    }
}
