package strata.messaging;

import static strata.messaging.Clients.*;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionChecker;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;
import org.apache.rocketmq.client.java.impl.producer.SendReceiptImpl;

/** Rows about message groups, and about transactions that something happens to. */
final class OrderedRows {
    static final Map<String, Row> ROWS = Map.of(
        "fifo-block", OrderedRows::fifoBlock,
        "fifo-stable-queue", OrderedRows::fifoStableQueue,
        "tx-rollback", OrderedRows::txRollback,
        "tx-late", OrderedRows::txLate,
        "tx-crash", OrderedRows::txCrash);

    private static final TransactionChecker UNKNOWN = message -> TransactionResolution.UNKNOWN;

    /**
     * fifo-block and fifo-independent: the second message of a group waits for the first, those of another group do
     * not.
     */
    private static void fifoBlock() throws Exception {
        try (Producer producer = producer("blocked"); SimpleConsumer consumer = consumer("blocks", "blocked")) {
            for (String group : List.of("one", "two")) {
                for (int number = 1; number < 3; number++) {
                    producer.send(message("blocked", group + " " + number).setMessageGroup(group).build());
                }
            }
            List<MessageView> first = some(consumer, 2);
            require(sortedTexts(first).equals(List.of("one 1", "two 1")), "seen " + first);
            nothing(consumer, 2);
            boolean oneIsFirst = text(first.get(0)).equals("one 1");
            consumer.ack(first.get(oneIsFirst ? 1 : 0));
            long began = System.nanoTime();
            MessageView ofTwo = one(consumer);
            requireBetween(0, secondsSince(began), 3);
            require(text(ofTwo).equals("two 2"), "seen " + ofTwo);
            consumer.ack(ofTwo);
            consumer.ack(first.get(oneIsFirst ? 0 : 1));
            MessageView ofOne = one(consumer);
            require(text(ofOne).equals("one 2"), "seen " + ofOne);
            consumer.ack(ofOne);
        }
    }

    /**
     * A group's messages are in one queue, before and after the broker was killed: their places follow one another.
     */
    private static void fifoStableQueue() throws Exception {
        List<Long> numbers = new ArrayList<>();
        List<Long> offsets = new ArrayList<>();
        try (Producer producer = producer("one-queue")) {
            for (long number = 0; number < 20; number++) {
                if (number == 10) {
                    killed();
                }
                Message message = message("one-queue", "" + number).setMessageGroup("g").build();
                numbers.add(number);
                inTime(() -> {
                    SendReceipt sent = onceBack(() -> producer.send(message));
                    return sent != null && offsets.add(((SendReceiptImpl) sent).getOffset());
                }, "it is not sent");
            }
        }
        List<Long> bodies = new ArrayList<>();
        try (SimpleConsumer consumer = consumer("reads-one-queue", "one-queue")) {
            while (bodies.size() < 20) {
                MessageView found = one(consumer);
                bodies.add(Long.valueOf(text(found)));
                consumer.ack(found);
            }
        }
        require(bodies.equals(numbers) && offsets.equals(numbers), "bodies " + bodies + ", offsets " + offsets);
    }

    /** Never visible, and nobody is asked about it. */
    private static void txRollback() throws Exception {
        AtomicInteger asked = new AtomicInteger();
        try (Producer producer = producer("rolled-back", message -> {
                 asked.incrementAndGet();
                 return TransactionResolution.COMMIT;
             });
             SimpleConsumer consumer = consumer("sees-none", "rolled-back")) {
            Transaction transaction = producer.beginTransaction();
            producer.send(message("rolled-back", "never").build(), transaction);
            transaction.rollback();
            nothing(consumer, 6);
        }
        require(asked.get() == 0, "asked " + asked + " times");
    }

    /**
     * tx-late-commit and tx-other-gateway: a commit is good after the proxy of RocketMQ would have forgotten the
     * transaction, and after the gateway was killed.
     */
    private static void txLate() throws Exception {
        try (Producer producer = producer("late", UNKNOWN); SimpleConsumer consumer = consumer("late", "late")) {
            Transaction transaction = producer.beginTransaction();
            producer.send(message("late", "at last").build(), transaction);
            killed();
            long began = System.nanoTime();
            while (secondsSince(began) < 32) {
                List<MessageView> found = onceBack(() -> consumer.receive(1, LEAST_HIDDEN));
                require(found == null || found.isEmpty(), "it is seen before its commit");
            }
            transaction.commit();
            MessageView found = one(consumer);
            require(text(found).equals("at last"), "seen " + found);
            consumer.ack(found);
        }
    }

    /** The producer is gone: another one of the topic is asked, and decides. */
    private static void txCrash() throws Exception {
        try (Producer producer = producer("crashed", UNKNOWN)) {
            producer.send(message("crashed", "kept").build(), producer.beginTransaction());
        }
        AtomicInteger asked = new AtomicInteger();
        try (Producer producer = producer("crashed", message -> {
                 asked.incrementAndGet();
                 return TransactionResolution.COMMIT;
             });
             SimpleConsumer consumer = consumer("kept", "crashed")) {
            MessageView found = one(consumer);
            require(text(found).equals("kept") && asked.get() > 0, "asked " + asked + " times, seen " + found);
            consumer.ack(found);
        }
    }

    private OrderedRows() {
    }
}
