package strata.messaging;

import static java.util.Map.entry;
import static strata.messaging.Clients.*;

import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/** Rows about what is sent and found: bodies, polls, refusals, filters. */
final class SendingRows {
    static final Map<String, Row> ROWS = Map.ofEntries(
        entry("long-poll-wakes", SendingRows::longPollWakes),
        entry("long-poll-short", SendingRows::longPollShort),
        entry("receive-before-settings", SendingRows::receiveBeforeSettings),
        entry("bodies", SendingRows::bodies),
        entry("too-big", SendingRows::tooBig),
        entry("no-write-no-read", SendingRows::noWriteNoRead),
        entry("wrong-type", SendingRows::wrongType),
        entry("mixed-topic", SendingRows::mixedTopic),
        entry("sql-filter", SendingRows::sqlFilter),
        entry("delay-past", SendingRows::delayPast),
        entry("bad-fields", SendingRows::badFields));

    /** A receive that waits in one queue is woken by a message of another. */
    private static void longPollWakes() throws Exception {
        try (Producer producer = producer("waits"); SimpleConsumer consumer = consumer("waits", "waits", 20)) {
            for (int number = 0; number < 8; number++) {
                String body = "" + number;
                CompletableFuture<Long> sentAt = CompletableFuture.supplyAsync(() -> {
                    long now = System.nanoTime();
                    producer.sendAsync(message("waits", body).build()).join();
                    return now;
                }, CompletableFuture.delayedExecutor(500, TimeUnit.MILLISECONDS));
                MessageView found = one(consumer);
                long foundAt = System.nanoTime();
                double tookS = (foundAt - sentAt.get()) / 1e9;
                require(tookS < 2.5, "it came after " + tookS + " s");
                consumer.ack(found);
            }
        }
    }

    private static void longPollShort() throws Exception {
        for (int waitS : List.of(1, 3)) {
            try (SimpleConsumer consumer = consumer("short", "short", waitS)) {
                consumer.receive(1, HIDDEN);
                long began = System.nanoTime();
                require(consumer.receive(1, HIDDEN).isEmpty(), "something comes");
                requireBetween(waitS - 0.5, secondsSince(began), waitS + 2);
            }
        }
    }

    /** Unlike Python's, the client waits for its settings. */
    private static void receiveBeforeSettings() throws Exception {
        for (int start = 0; start < 20; start++) {
            try (SimpleConsumer consumer = consumer("at-once", "at-once", 1)) {
                consumer.receive(1, HIDDEN);
            }
        }
    }

    /** compressible-body and big-body. */
    private static void bodies() throws Exception {
        byte[] text = Arrays.copyOf("all the same ".repeat(1 << 15).getBytes(), 256 << 10);
        byte[] random = new byte[(4 << 20) - (64 << 10)];
        new Random().nextBytes(random);
        try (Producer producer = producer("bodies"); SimpleConsumer consumer = consumer("bodies", "bodies")) {
            for (byte[] body : List.of(text, random)) {
                producer.send(message("bodies", body).build());
                MessageView found = one(consumer);
                require(Arrays.equals(body(found), body), "another body");
                consumer.ack(found);
            }
        }
    }

    /** The client refuses both by itself: the first by the settings that it was told. */
    private static void tooBig() throws Exception {
        try (Producer producer = producer("too-big"); SimpleConsumer consumer = consumer("too-big", "too-big")) {
            refused(() -> producer.send(message("too-big", new byte[(4 << 20) + 1]).build()), "max size=4194304");
            refused(() -> producer.send(message("too-big", "").build()), "body should not be empty");
            nothing(consumer, 1);
        }
    }

    /** bad-tag, bad-key, bad-group, bad-property, too-many-properties. */
    private static void badFields() throws Exception {
        MessageBuilder many = message("odd", "x");
        for (int number = 0; number < 129; number++) {
            many.addProperty("p" + number, "x");
        }
        Map<String, MessageBuilder> odd = Map.of(
            "40004", message("odd", "x").setTag("two\nlines"),
            "40005", message("odd", "x").setKeys("two words"),
            "40006", message("odd", "x").setMessageGroup("g".repeat(64)),
            "40007", message("odd", "x").addProperty("KEYS", "of the store's own"),
            "43101", many);
        try (Producer producer = producer("odd"); SimpleConsumer consumer = consumer("odd", "odd")) {
            odd.forEach((code, message) -> refused(() -> producer.send(message.build()), code));
            nothing(consumer, 1);
        }
    }

    /** The client refuses by the route's permissions, as it starts. */
    private static void noWriteNoRead() {
        refused(() -> {
            try (Producer producer = producer("no-write")) {
                producer.send(message("no-write", "x").build());
            }
        }, "No writable message queue");
        refused(() -> {
            try (SimpleConsumer consumer = consumer("no-read", "no-read", 1)) {
                consumer.receive(1, HIDDEN);
            }
        }, "No readable message queue");
    }

    /** The client refuses by the types in the route. */
    private static void wrongType() throws Exception {
        try (Producer producer = producer("wrong-type");
             SimpleConsumer consumer = consumer("wrong-type", "wrong-type")) {
            long soon = System.currentTimeMillis() + 5_000;
            refused(() -> producer.send(message("wrong-type", "x").setMessageGroup("one").build()), "type not match");
            refused(() -> producer.send(message("wrong-type", "x").setDeliveryTimestamp(soon).build()),
                "type not match");
            nothing(consumer, 6);
        }
    }

    private static void mixedTopic() throws Exception {
        try (Producer producer = producer("mixed"); SimpleConsumer consumer = consumer("mixed", "mixed")) {
            long soon = System.currentTimeMillis() + 2_000;
            producer.send(message("mixed", "normal").build());
            producer.send(message("mixed", "ordered").setMessageGroup("one").build());
            producer.send(message("mixed", "delayed").setDeliveryTimestamp(soon).build());
            List<MessageView> found = some(consumer, 3);
            require(sortedTexts(found).equals(List.of("delayed", "normal", "ordered")), "seen " + found);
            ackAll(consumer, found);
        }
    }

    private static void sqlFilter() throws Exception {
        FilterExpression wanted = new FilterExpression("a > 5 AND b = 'x'", FilterExpressionType.SQL92);
        try (Producer producer = producer("selected");
             SimpleConsumer consumer = consumer("selects", "selected", wanted, 5)) {
            for (int number = 0; number < 10; number++) {
                producer.send(message("selected", "" + number)
                    .addProperty("a", "" + number).addProperty("b", number % 2 == 0 ? "x" : "y").build());
            }
            List<MessageView> found = some(consumer, 2);
            require(sortedTexts(found).equals(List.of("6", "8")), "seen " + found);
            ackAll(consumer, found);
            nothing(consumer, 1);
        }
    }

    private static void delayPast() throws Exception {
        long past = System.currentTimeMillis() - 60_000;
        long far = System.currentTimeMillis() + Duration.ofDays(800).toMillis();
        try (Producer producer = producer("past"); SimpleConsumer consumer = consumer("past", "past")) {
            producer.send(message("past", "at once").setDeliveryTimestamp(past).build());
            long began = System.nanoTime();
            consumer.ack(one(consumer));
            requireBetween(0, secondsSince(began), DEADLINE_S / 4.0);
            refused(() -> producer.send(message("past", "never").setDeliveryTimestamp(far).build()), "40012");
        }
    }

    private SendingRows() {
    }
}
