package strata.messaging;

import static strata.messaging.Clients.*;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageId;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;

/** at-least-once: processes are killed while messages are sent, received and acknowledged. */
final class LosslessRow {
    static final Map<String, Row> ROWS = Map.of("at-least-once", LosslessRow::atLeastOnce);
    private static final int COUNT = Integer.parseInt(System.getenv().getOrDefault("ROW_MESSAGES", "1000"));
    private static final int KILLS = 5;
    private static final int WORKERS = 4;
    private static final Duration SHORTLY_HIDDEN = Duration.ofSeconds(30);
    /** Until what comes again has come: a busy machine is late. */
    private static final long AGAIN_S = 2 * SHORTLY_HIDDEN.getSeconds();

    /** What workers do until they are stopped. Calls that fail are of a broker that is away. */
    private static final class Work implements AutoCloseable {
        final Set<MessageId> received = ConcurrentHashMap.newKeySet();
        final Set<MessageId> acknowledged = ConcurrentHashMap.newKeySet();
        final Set<MessageId> cameBack = ConcurrentHashMap.newKeySet();
        private final List<Thread> threads = new ArrayList<>();
        private final SimpleConsumer consumer;
        private volatile boolean stopped;

        Work(SimpleConsumer consumer) {
            this.consumer = consumer;
            for (int number = 0; number < WORKERS; number++) {
                threads.add(new Thread(this::goOn));
            }
            threads.forEach(Thread::start);
        }

        private void goOn() {
            while (!stopped) {
                try {
                    onceBack(this::settleSome);
                } catch (Exception unexpected) {
                    throw new AssertionError(unexpected);
                }
            }
        }

        private boolean settleSome() throws Exception {
            for (MessageView found : consumer.receive(32, SHORTLY_HIDDEN)) {
                received.add(found.getMessageId());
                if (acknowledged.contains(found.getMessageId())) {
                    cameBack.add(found.getMessageId());
                }
                consumer.ack(found);
                acknowledged.add(found.getMessageId());
            }
            return true;
        }

        @Override
        public void close() throws InterruptedException {
            stopped = true;
            for (Thread one : threads) {
                one.join();
            }
        }
    }

    /**
     * Every message whose send was answered is received, and none whose acknowledgement was answered comes again. One
     * whose acknowledgement was stored and not answered need not.
     */
    private static void atLeastOnce() throws Exception {
        Set<MessageId> cameBack;
        try (Producer producer = producer("lossless");
             SimpleConsumer consumer = consumer("lossless", "lossless", 1);
             Work work = new Work(consumer)) {
            Set<MessageId> sent = new HashSet<>();
            for (int number = 0; number < COUNT; number++) {
                if (number % (COUNT / KILLS) == COUNT / KILLS / 2) {
                    killed();
                }
                Message made = message("lossless", "" + number).build();
                inTime(() -> {
                    SendReceipt receipt = onceBack(() -> producer.send(made));
                    return receipt != null && sent.add(receipt.getMessageId());
                }, number + " is not sent");
            }
            inTime(() -> work.received.containsAll(sent), "not all are received");
            TimeUnit.SECONDS.sleep(AGAIN_S);
            cameBack = work.cameBack;
        }
        try (SimpleConsumer consumer = consumer("lossless", "lossless", 1)) {
            nothing(consumer, 1);
        }
        require(cameBack.isEmpty(), cameBack.size() + " come again, and were acknowledged");
    }

    private LosslessRow() {
    }
}
