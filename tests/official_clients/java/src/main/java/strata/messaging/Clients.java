package strata.messaging;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.SessionCredentialsProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.TransactionChecker;
import org.apache.rocketmq.shaded.io.grpc.StatusRuntimeException;

/** What the rows are written with, over RocketMQ's Java client of version 5. */
final class Clients {
    static final Duration HIDDEN = Duration.ofSeconds(60);
    /** RocketMQ's own limit. */
    static final Duration LEAST_HIDDEN = Duration.ofSeconds(10);
    static final int DEADLINE_S = Integer.getInteger("deadline.seconds", 120);
    static String endpoint;
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));

    interface Row {
        void play() throws Exception;
    }

    private static ClientConfiguration configuration() {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder()
            .setEndpoints(endpoint)
            .enableSsl(Boolean.getBoolean("tls.enable"))
            .setRequestTimeout(Duration.ofSeconds(10));
        if (System.getProperty("key") != null) {
            SessionCredentialsProvider known = new StaticSessionCredentialsProvider(
                System.getProperty("key"), System.getProperty("secret"));
            builder.setCredentialProvider(known);
        }
        return builder.build();
    }

    static Producer producer(String... topics) throws Exception {
        return PROVIDER.newProducerBuilder().setClientConfiguration(configuration()).setTopics(topics).build();
    }

    static Producer producer(String topic, TransactionChecker checker) throws Exception {
        return PROVIDER.newProducerBuilder()
            .setClientConfiguration(configuration()).setTopics(topic).setTransactionChecker(checker).build();
    }

    static SimpleConsumer consumer(String group, String topic) throws Exception {
        return consumer(group, topic, FilterExpression.SUB_ALL, 5);
    }

    static SimpleConsumer consumer(String group, String topic, int waitS) throws Exception {
        return consumer(group, topic, FilterExpression.SUB_ALL, waitS);
    }

    static SimpleConsumer consumer(String group, String topic, FilterExpression filter, int waitS) throws Exception {
        return PROVIDER.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration())
            .setConsumerGroup(group)
            .setAwaitDuration(Duration.ofSeconds(waitS))
            .setSubscriptionExpressions(Collections.singletonMap(topic, filter))
            .build();
    }

    /** The topic of dead letters is there once the first message was buried. */
    static SimpleConsumer whenThere(String group, String topic) throws Exception {
        long began = System.nanoTime();
        while (true) {
            try {
                return consumer(group, topic);
            } catch (ClientException | IllegalStateException notYet) {
                if (secondsSince(began) > DEADLINE_S) {
                    throw notYet;
                }
                TimeUnit.SECONDS.sleep(1);
            }
        }
    }

    static PushConsumer push(String group, String topic, MessageListener listener) throws Exception {
        return PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(configuration())
            .setConsumerGroup(group)
            .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL))
            .setMessageListener(listener)
            .build();
    }

    static MessageBuilder message(String topic, String body) {
        return message(topic, body.getBytes(StandardCharsets.UTF_8));
    }

    static MessageBuilder message(String topic, byte[] body) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(body);
    }

    static byte[] body(MessageView message) {
        ByteBuffer body = message.getBody();
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        return bytes;
    }

    static String text(MessageView message) {
        return new String(body(message), StandardCharsets.UTF_8);
    }

    static List<String> sortedTexts(List<MessageView> messages) {
        List<String> texts = new ArrayList<>();
        messages.forEach(one -> texts.add(text(one)));
        Collections.sort(texts);
        return texts;
    }

    static MessageView one(SimpleConsumer consumer) throws Exception {
        return some(consumer, 1, HIDDEN).get(0);
    }

    static MessageView one(SimpleConsumer consumer, Duration hidden) throws Exception {
        return some(consumer, 1, hidden).get(0);
    }

    static List<MessageView> some(SimpleConsumer consumer, int count) throws Exception {
        return some(consumer, count, HIDDEN);
    }

    static List<MessageView> some(SimpleConsumer consumer, int count, Duration hidden) throws Exception {
        List<MessageView> found = new ArrayList<>();
        long began = System.nanoTime();
        while (found.size() < count && secondsSince(began) < DEADLINE_S) {
            found.addAll(consumer.receive(32, hidden));
        }
        require(found.size() == count, found.size() + " messages came, and not " + count);
        return found;
    }

    static void ackAll(SimpleConsumer consumer, List<MessageView> messages) throws Exception {
        for (MessageView message : messages) {
            consumer.ack(message);
        }
    }

    /** Nothing comes for so long. */
    static void nothing(SimpleConsumer consumer, int seconds) throws Exception {
        long began = System.nanoTime();
        while (secondsSince(began) < seconds) {
            List<MessageView> found = consumer.receive(32, HIDDEN);
            require(found.isEmpty(), "it comes: " + found);
        }
    }

    /** Any of the words is in the error or its causes. */
    static void refused(Row call, String... words) {
        StringBuilder said = new StringBuilder();
        try {
            call.play();
        } catch (Exception error) {
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                said.append(cause).append('\n');
            }
        }
        require(said.length() > 0, "it is not refused");
        require(Arrays.stream(words).anyMatch(word -> said.indexOf(word) >= 0), "refused by " + said);
    }

    static void inTime(Callable<Boolean> condition, String what) throws Exception {
        long began = System.nanoTime();
        while (!condition.call()) {
            require(secondsSince(began) < DEADLINE_S, what);
            TimeUnit.MILLISECONDS.sleep(50);
        }
    }

    /** The call's answer, or null as long as the client has not found the broker again. */
    static <T> T onceBack(Callable<T> call) throws Exception {
        try {
            return call.call();
        } catch (ClientException | StatusRuntimeException notYet) {
            TimeUnit.MILLISECONDS.sleep(200);
            return null;
        }
    }

    /** Every process of the broker is killed and started again by who reads this line. */
    static void killed() throws Exception {
        System.out.println("kill");
        require("back".equals(INPUT.readLine()), "the broker is not back");
    }

    static double secondsSince(long nanos) {
        return (System.nanoTime() - nanos) / 1e9;
    }

    static void requireBetween(double least, double seconds, double most) {
        require(least < seconds && seconds < most, "after " + seconds + " s");
    }

    static void require(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    static void await(CountDownLatch latch, String what) throws Exception {
        require(latch.await(DEADLINE_S, TimeUnit.SECONDS), what + ": " + latch.getCount() + " are missing");
    }

    private Clients() {
    }
}
