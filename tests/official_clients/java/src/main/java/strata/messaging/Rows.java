package strata.messaging;

import static java.util.Map.entry;
import static strata.messaging.Clients.*;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageId;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * Rows of the acceptance page, by RocketMQ's Java client of version 5. Usage: ENDPOINT ROW... A row that wants the
 * broker's processes killed prints `kill`, and reads `back` when they run again.
 */
public final class Rows {
    private static final Map<String, Row> ROWS = new HashMap<>(Map.ofEntries(
        entry("normal-fields", Rows::normalFields),
        entry("push-once", Rows::pushOnce),
        entry("max-attempts-dlq", Rows::deadLetters),
        entry("fifo-order", Rows::order),
        entry("fifo-retry-order", Rows::orderOfRetries),
        entry("delay", Rows::delay),
        entry("tx-commit", Rows::transactions),
        entry("tx-check", Rows::check),
        entry("tag-filter", Rows::tags),
        entry("wrong-topic", Rows::wrongTopic),
        entry("nack", Rows::nack),
        entry("fifo-dlq", Rows::deadLettersInOrder),
        entry("recall", Rows::recall)));

    static {
        ROWS.putAll(SendingRows.ROWS);
        ROWS.putAll(SettlingRows.ROWS);
        ROWS.putAll(OrderedRows.ROWS);
        ROWS.putAll(LosslessRow.ROWS);
    }

    public static void main(String[] arguments) {
        endpoint = arguments[0];
        boolean good = true;
        for (String name : Arrays.asList(arguments).subList(1, arguments.length)) {
            try {
                require(ROWS.containsKey(name), "there is no such row");
                ROWS.get(name).play();
                System.out.println(name + "\tok");
            } catch (Throwable failure) {
                good = false;
                System.out.println(name + "\t" + failure);
                failure.printStackTrace();
            }
        }
        System.exit(good ? 0 : 1);
    }

    private static void normalFields() throws Exception {
        try (Producer producer = producer("normal");
             SimpleConsumer consumer = consumer("fields", "normal")) {
            SendReceipt sent = producer.send(message("normal", "whole")
                .setTag("paid").setKeys("k1", "k2").addProperty("colour", "blau ü").build());
            MessageView found = one(consumer);
            require(found.getMessageId().equals(sent.getMessageId()), "the id is " + found.getMessageId());
            require(text(found).equals("whole"), "the body is " + text(found));
            require(found.getTag().get().equals("paid"), "the tag is " + found.getTag());
            require(found.getKeys().containsAll(Arrays.asList("k1", "k2")), "the keys are " + found.getKeys());
            require(found.getProperties().equals(Collections.singletonMap("colour", "blau ü")),
                "the properties are " + found.getProperties());
            require(found.getDeliveryAttempt() == 1, "the attempt is " + found.getDeliveryAttempt());
            consumer.ack(found);
            require(consumer.receive(32, HIDDEN).isEmpty(), "it comes again");
        }
    }

    private static void pushOnce() throws Exception {
        Map<MessageId, Integer> seen = new ConcurrentHashMap<>();
        CountDownLatch all = new CountDownLatch(40);
        try (Producer producer = producer("pushed");
             PushConsumer consumer = push("push-once", "pushed", message -> {
                 seen.merge(message.getMessageId(), 1, Integer::sum);
                 all.countDown();
                 return ConsumeResult.SUCCESS;
             })) {
            for (int number = 0; number < 40; number++) {
                producer.send(message("pushed", "m" + number).build());
            }
            await(all, "pushed messages");
        }
        require(seen.size() == 40 && seen.values().stream().allMatch(count -> count == 1), "seen " + seen);
    }

    private static void deadLetters() throws Exception {
        List<Integer> attempts = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch both = new CountDownLatch(2);
        SendReceipt sent;
        try (Producer producer = producer("failing");
             PushConsumer consumer = push("one-retry", "failing", message -> {
                 attempts.add(message.getDeliveryAttempt());
                 both.countDown();
                 return ConsumeResult.FAILURE;
             })) {
            sent = producer.send(message("failing", "poison").build());
            await(both, "attempts");
        }
        try (SimpleConsumer letters = whenThere("letters", "%DLQ%one-retry")) {
            MessageView found = one(letters);
            require(found.getMessageId().equals(sent.getMessageId()), "another message");
            letters.ack(found);
        }
        require(attempts.equals(Arrays.asList(1, 2)), "attempts " + attempts);
    }

    private static void order() throws Exception {
        Map<String, List<String>> seen = new ConcurrentHashMap<>();
        try (Producer producer = producer("steps");
             SimpleConsumer consumer = consumer("in-order", "steps")) {
            for (int number = 0; number < 12; number++) {
                producer.send(message("steps", "" + number).setMessageGroup("g" + number % 3).build());
            }
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(DEADLINE_S);
            int left = 12;
            while (left > 0 && System.nanoTime() < deadline) {
                for (MessageView found : consumer.receive(32, HIDDEN)) {
                    String group = found.getMessageGroup().get();
                    seen.computeIfAbsent(group, name -> new ArrayList<>()).add(text(found));
                    consumer.ack(found);
                    left--;
                }
            }
        }
        require(seen.equals(Map.of(
            "g0", List.of("0", "3", "6", "9"), "g1", List.of("1", "4", "7", "10"), "g2", List.of("2", "5", "8", "11"))),
            "seen " + seen);
    }

    private static void orderOfRetries() throws Exception {
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        AtomicInteger failures = new AtomicInteger(1);
        CountDownLatch all = new CountDownLatch(4);
        try (Producer producer = producer("retried-steps");
             PushConsumer consumer = push("retried-in-order", "retried-steps", message -> {
                 seen.add(text(message));
                 if (failures.getAndDecrement() > 0) {
                     return ConsumeResult.FAILURE;
                 }
                 all.countDown();
                 return ConsumeResult.SUCCESS;
             })) {
            for (int number = 0; number < 4; number++) {
                producer.send(message("retried-steps", "" + number).setMessageGroup("one").build());
            }
            await(all, "messages in order");
        }
        require(seen.equals(List.of("0", "0", "1", "2", "3")), "seen " + seen);
    }

    private static void deadLettersInOrder() throws Exception {
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch all = new CountDownLatch(3);
        SendReceipt sent;
        try (Producer producer = producer("poisoned-steps");
             PushConsumer consumer = push("poisoned", "poisoned-steps", message -> {
                 seen.add(text(message));
                 all.countDown();
                 return text(message).equals("poison") ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
             })) {
            sent = producer.send(message("poisoned-steps", "poison").setMessageGroup("one").build());
            producer.send(message("poisoned-steps", "next").setMessageGroup("one").build());
            await(all, "messages");
        }
        require(seen.equals(List.of("poison", "poison", "next")), "seen " + seen);
        try (SimpleConsumer letters = whenThere("poisoned-letters", "%DLQ%poisoned")) {
            MessageView found = one(letters);
            require(found.getMessageId().equals(sent.getMessageId()), "another message");
            letters.ack(found);
        }
    }

    private static void recall() throws Exception {
        try (Producer producer = producer("taken-back");
             SimpleConsumer consumer = consumer("takes-back", "taken-back")) {
            long due = System.currentTimeMillis() + 20_000;
            SendReceipt sent = producer.send(message("taken-back", "never").setDeliveryTimestamp(due).build());
            String handle = sent.getRecallHandle();
            require(producer.recallMessage("taken-back", handle).getMessageId().equals(sent.getMessageId()),
                "another message");
            try {
                producer.recallMessage("taken-back", handle);
                throw new AssertionError("it is taken back twice");
            } catch (ClientException refused) {
                require(refused.getMessage().contains("cancelled"), "refused by " + refused);
            }
            while (System.currentTimeMillis() < due + 2_000) {
                require(consumer.receive(32, HIDDEN).isEmpty(), "it comes");
            }
        }
    }

    private static void delay() throws Exception {
        try (Producer producer = producer("later");
             SimpleConsumer consumer = consumer("delayed", "later")) {
            long due = System.currentTimeMillis() + 3_000;
            producer.send(message("later", "in time").setDeliveryTimestamp(due).build());
            MessageView found = one(consumer);
            long early = due - System.currentTimeMillis();
            require(early <= 0, "it came " + early + " ms early");
            require(found.getDeliveryTimestamp().get() == due, "the time is " + found.getDeliveryTimestamp());
            consumer.ack(found);
        }
    }

    private static void transactions() throws Exception {
        try (Producer producer = producer("paid", message -> TransactionResolution.UNKNOWN);
             SimpleConsumer consumer = consumer("paid", "paid")) {
            Transaction committed = producer.beginTransaction();
            producer.send(message("paid", "committed").build(), committed);
            Transaction rolledBack = producer.beginTransaction();
            producer.send(message("paid", "rolled back").build(), rolledBack);
            require(consumer.receive(32, HIDDEN).isEmpty(), "it is seen before its commit");
            committed.commit();
            rolledBack.rollback();
            MessageView found = one(consumer);
            require(text(found).equals("committed"), "seen " + text(found));
            consumer.ack(found);
            require(consumer.receive(32, HIDDEN).isEmpty(), "something else is seen");
        }
    }

    private static void check() throws Exception {
        try (Producer producer = producer("checked", message -> TransactionResolution.COMMIT);
             SimpleConsumer consumer = consumer("checked", "checked")) {
            producer.send(message("checked", "asked").build(), producer.beginTransaction());
            consumer.ack(one(consumer));
        }
    }

    private static void tags() throws Exception {
        try (Producer producer = producer("tagged");
             SimpleConsumer consumer = consumer("tags", "tagged", new FilterExpression("Aa || C"), 5)) {
            for (String tag : List.of("Aa", "BB", "C")) {
                producer.send(message("tagged", tag).setTag(tag).build());
            }
            List<String> seen = new ArrayList<>();
            for (MessageView found : some(consumer, 2)) {
                seen.add(text(found));
                consumer.ack(found);
            }
            Collections.sort(seen);
            require(seen.equals(List.of("Aa", "C")), "seen " + seen);
        }
    }

    private static void wrongTopic() throws Exception {
        try (Producer producer = producer()) {
            producer.send(message("not-there", "x").build());
            throw new AssertionError("a topic that is not there takes a message");
        } catch (ClientException refused) {
            require(refused.getMessage().contains("40402"), "refused by " + refused);
        }
    }

    private static void nack() throws Exception {
        try (Producer producer = producer("given-back");
             SimpleConsumer consumer = consumer("gives-back", "given-back")) {
            producer.send(message("given-back", "again").build());
            MessageView first = one(consumer);
            consumer.changeInvisibleDuration(first, Duration.ofSeconds(2));
            MessageView second = one(consumer);
            require(second.getDeliveryAttempt() == 2, "the attempt is " + second.getDeliveryAttempt());
            consumer.ack(second);
            require(consumer.receive(32, HIDDEN).isEmpty(), "it comes again");
        }
    }

    private Rows() {
    }
}
