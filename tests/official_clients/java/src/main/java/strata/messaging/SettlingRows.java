package strata.messaging;

import static java.util.Map.entry;
import static strata.messaging.Clients.*;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageId;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.java.message.MessageViewImpl;

/** Rows about messages that are handed out: hidden, given again, acknowledged, shared. */
final class SettlingRows {
    static final Map<String, Row> ROWS = Map.ofEntries(
        entry("redeliver", SettlingRows::redeliver),
        entry("extend", SettlingRows::extend),
        entry("old-handles", SettlingRows::oldHandles),
        entry("foreign-handle", SettlingRows::foreignHandle),
        entry("durable", SettlingRows::durable),
        entry("spread", SettlingRows::spread),
        entry("new-group", SettlingRows::newGroup),
        entry("slow-consumer-renew", SettlingRows::slowConsumerRenew),
        entry("reconnect", SettlingRows::reconnect),
        entry("vanishes", SettlingRows::vanishes),
        entry("client-gone", SettlingRows::clientGone),
        entry("many-clients", SettlingRows::manyClients));

    private static void redeliver() throws Exception {
        try (Producer producer = producer("comes-again"); SimpleConsumer consumer = consumer("again", "comes-again")) {
            SendReceipt sent = producer.send(message("comes-again", "twice").build());
            long asked = System.nanoTime();
            MessageView first = one(consumer, LEAST_HIDDEN);
            long given = System.nanoTime();
            MessageView second = one(consumer);
            requireHidden(10, asked, given);
            require(second.getMessageId().equals(sent.getMessageId()), "another message");
            require(text(second).equals("twice"), "the body is " + text(second));
            requireAttempts(List.of(first, second), 1, 2);
            consumer.ack(second);
            nothing(consumer, 2);
        }
    }

    private static void extend() throws Exception {
        try (Producer producer = producer("hidden-on"); SimpleConsumer consumer = consumer("hides-on", "hidden-on")) {
            producer.send(message("hidden-on", "x").build());
            MessageView first = one(consumer, LEAST_HIDDEN);
            long asked = System.nanoTime();
            consumer.changeInvisibleDuration(first, Duration.ofSeconds(20));
            long answered = System.nanoTime();
            MessageView second = one(consumer);
            requireHidden(20, asked, answered);
            consumer.ack(second);
        }
    }

    /** ack-expired and ack-old-handle: an old handle is refused, and settles no newer delivery. */
    private static void oldHandles() throws Exception {
        try (Producer producer = producer("expired"); SimpleConsumer consumer = consumer("expires", "expired")) {
            producer.send(message("expired", "x").build());
            MessageViewImpl first = (MessageViewImpl) one(consumer, LEAST_HIDDEN);
            String handle = first.getReceiptHandle();
            consumer.changeInvisibleDuration(first, LEAST_HIDDEN);
            String changed = first.getReceiptHandle();
            first.setReceiptHandle(handle);
            refused(() -> consumer.ack(first), "40013");
            first.setReceiptHandle(changed);
            MessageView second = one(consumer, LEAST_HIDDEN);
            refused(() -> consumer.ack(first), "40013");
            MessageView third = one(consumer);
            requireAttempts(List.of(second, third), 2, 3);
            consumer.ack(third);
        }
    }

    private static void foreignHandle() throws Exception {
        Duration hidden = Duration.ofSeconds(12);
        try (Producer producer = producer("foreign");
             SimpleConsumer owner = consumer("owner", "foreign");
             SimpleConsumer stranger = consumer("stranger", "foreign")) {
            producer.send(message("foreign", "x").build());
            MessageView ofOwner = one(owner, hidden);
            MessageView ofStranger = one(stranger, hidden);
            refused(() -> stranger.ack(ofOwner), "40013");
            stranger.ack(ofStranger);
            MessageView again = one(owner);
            requireAttempts(List.of(again), 2);
            owner.ack(again);
        }
    }

    /**
     * ack-durable and hidden-durable: what was acknowledged never comes again, and what was handed out comes when its
     * time is over and not before, with the next attempt.
     */
    private static void durable() throws Exception {
        try (Producer producer = producer("durable"); SimpleConsumer consumer = consumer("durable", "durable")) {
            for (int number = 0; number < 50; number++) {
                producer.send(message("durable", "" + number).build());
            }
            long asked = System.nanoTime();
            List<MessageView> found = some(consumer, 50, Duration.ofSeconds(30));
            Set<MessageId> held = ids(found.subList(0, 10));
            ackAll(consumer, found.subList(10, 50));
            killed();
            List<MessageView> again = new ArrayList<>();
            inTime(() -> {
                List<MessageView> come = onceBack(() -> consumer.receive(32, HIDDEN));
                again.addAll(come == null ? List.of() : come);
                return again.size() >= held.size();
            }, "not all come again");
            require(secondsSince(asked) > 30, "they come before their time");
            require(again.size() == held.size() && ids(again).equals(held), "others come: " + again);
            for (MessageView one : again) {
                requireAttempts(List.of(one), 2);
            }
            ackAll(consumer, again);
            nothing(consumer, 2);
        }
    }

    private static void spread() throws Exception {
        try (Producer producer = producer("spread");
             SimpleConsumer one = consumer("spread", "spread", 1);
             SimpleConsumer two = consumer("spread", "spread", 1);
             SimpleConsumer three = consumer("spread", "spread", 1)) {
            Set<MessageId> sent = new HashSet<>();
            for (int number = 0; number < 60; number++) {
                sent.add(producer.send(message("spread", "" + number).build()).getMessageId());
            }
            Map<SimpleConsumer, List<MessageView>> found = new LinkedHashMap<>();
            for (SimpleConsumer consumer : List.of(one, two, three)) {
                found.put(consumer, new ArrayList<>());
            }
            List<MessageView> all = new ArrayList<>();
            for (long began = System.nanoTime(); all.size() < 60 && secondsSince(began) < 60; ) {
                for (SimpleConsumer consumer : found.keySet()) {
                    List<MessageView> come = consumer.receive(4, HIDDEN);
                    found.get(consumer).addAll(come);
                    all.addAll(come);
                }
            }
            require(all.size() == 60 && ids(all).equals(sent), "each comes to one of them, but " + all.size() + " came");
            for (SimpleConsumer consumer : found.keySet()) {
                require(!found.get(consumer).isEmpty(), "one of them has none");
                ackAll(consumer, found.get(consumer));
            }
        }
    }

    private static void newGroup() throws Exception {
        try (Producer producer = producer("older")) {
            for (int number = 0; number < 5; number++) {
                producer.send(message("older", "" + number).build());
            }
            try (SimpleConsumer consumer = consumer("comes-late", "older")) {
                List<MessageView> found = some(consumer, 5);
                require(sortedTexts(found).equals(List.of("0", "1", "2", "3", "4")), "seen " + found);
                ackAll(consumer, found);
            }
        }
    }

    /** A listener takes longer than a message is hidden. */
    private static void slowConsumerRenew() throws Exception {
        List<Integer> seen = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch ended = new CountDownLatch(1);
        CountDownLatch never = new CountDownLatch(1);
        try (Producer producer = producer("slow");
             PushConsumer consumer = push("slow", "slow", message -> {
                 seen.add(message.getDeliveryAttempt());
                 try {
                     never.await(75, TimeUnit.SECONDS);
                 } catch (InterruptedException closed) {
                     return ConsumeResult.FAILURE;
                 }
                 ended.countDown();
                 return ConsumeResult.SUCCESS;
             })) {
            producer.send(message("slow", "x").build());
            await(ended, "messages");
        }
        try (SimpleConsumer consumer = consumer("slow", "slow")) {
            nothing(consumer, 2);
        }
        require(seen.equals(List.of(1)), "attempts " + seen);
    }

    /** The test that reads the line kills this client, which holds a message. */
    private static void vanishes() throws Exception {
        try (Producer producer = producer("vanished");
             PushConsumer consumer = push("vanished", "vanished", message -> {
                 System.out.println("vanish");
                 return never();
             })) {
            producer.send(message("vanished", "held").build());
            never();
        }
    }

    private static ConsumeResult never() {
        new CompletableFuture<Void>().join();
        return ConsumeResult.SUCCESS;
    }

    /** What the client held that vanished comes again. */
    private static void clientGone() throws Exception {
        try (SimpleConsumer consumer = consumer("vanished", "vanished")) {
            MessageView found = one(consumer);
            require(text(found).equals("held"), "the body is " + text(found));
            requireAttempts(List.of(found), 2);
            consumer.ack(found);
        }
    }

    /** Producer, simple and push consumer go on when the broker is back. */
    private static void reconnect() throws Exception {
        List<String> pushed = Collections.synchronizedList(new ArrayList<>());
        try (Producer producer = producer("reached");
             SimpleConsumer consumer = consumer("reaches", "reached");
             PushConsumer further = push("reaches-too", "reached", message -> {
                 pushed.add(text(message));
                 return ConsumeResult.SUCCESS;
             })) {
            producer.send(message("reached", "before").build());
            consumer.ack(one(consumer));
            inTime(() -> pushed.equals(List.of("before")), "the push consumer has nothing");
            long lastSeen = System.nanoTime();
            killed();
            double awayS = secondsSince(lastSeen);
            long began = System.nanoTime();
            inTime(() -> onceBack(() -> producer.send(message("reached", "after").build())) != null, "nothing is sent");
            List<MessageView> found = new ArrayList<>();
            inTime(() -> {
                List<MessageView> come = onceBack(() -> consumer.receive(1, HIDDEN));
                return come != null && found.addAll(come);
            }, "the simple consumer has nothing");
            inTime(() -> pushed.contains("after"), "the push consumer has nothing");
            // gRPC's own wait between two connections grows with the time for which the broker is away.
            requireBetween(0, secondsSince(began), Math.max(30, awayS));
            ackAll(consumer, found);
        }
    }

    /** ROW_CLIENTS of them wait for messages until the test has seen enough. */
    private static void manyClients() throws Exception {
        AtomicBoolean over = new AtomicBoolean();
        List<FutureTask<Void>> all = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(System.getenv("ROW_CLIENTS")); i++) {
            SimpleConsumer worker = consumer("many", "many", 20);
            all.add(new FutureTask<>(() -> {
                try (worker) {
                    while (!over.get()) {
                        ackAll(worker, worker.receive(32, HIDDEN));
                    }
                }
                return null;
            }));
        }
        all.forEach(one -> new Thread(one).start());
        killed();
        over.set(true);
        for (FutureTask<Void> one : all) {
            one.get();
        }
    }

    private static Set<MessageId> ids(List<MessageView> messages) {
        Set<MessageId> ids = new HashSet<>();
        messages.forEach(one -> ids.add(one.getMessageId()));
        return ids;
    }

    /** It was hidden for so long, from a moment between these two. */
    private static void requireHidden(int seconds, long asked, long answered) {
        require(secondsSince(asked) > seconds, "after " + secondsSince(asked) + " s");
        require(secondsSince(answered) < seconds + 2, "after " + secondsSince(answered) + " s");
    }

    private static void requireAttempts(List<MessageView> deliveries, Integer... attempts) {
        List<Integer> seen = new ArrayList<>();
        deliveries.forEach(one -> seen.add(one.getDeliveryAttempt()));
        require(seen.equals(List.of(attempts)), "attempts " + seen);
    }

    private SettlingRows() {
    }
}
