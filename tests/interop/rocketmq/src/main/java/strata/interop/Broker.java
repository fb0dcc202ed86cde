package strata.interop;

import java.io.File;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.transaction.AbstractTransactionalMessageCheckListener;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.ServiceThread;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * The services of a real broker that act by themselves, over a directory: delivery of delayed messages, and checks of
 * half messages. The broker does not listen: whom it asks about a half message is written to the output instead.
 */
final class Broker {
    private Broker() {
    }

    static void run(Options options, PrintStream out) throws Exception {
        File root = new File(options.directory);
        MessageStoreConfig config = Stores.config(root, Geometry.of(options, root), options, BrokerRole.ASYNC_MASTER);
        BrokerConfig broker = new BrokerConfig();
        Compat.set(broker, "brokerName", "interop");
        Compat.set(broker, "brokerClusterName", "DefaultCluster");
        Compat.set(broker, "brokerId", 0);
        Compat.set(broker, "transactionTimeOut", options.integer("transaction-timeout-ms", 1000));
        Compat.set(broker, "transactionCheckInterval", options.integer("check-interval-ms", 1000));
        BrokerController controller =
            new BrokerController(broker, new NettyServerConfig(), new NettyClientConfig(), config);
        if (!controller.initialize()) {
            throw new IllegalStateException("the broker refused to load the directory");
        }
        Settings.change(controller, options);
        Settings.report(controller, out);
        Checks checks = new Checks(out);
        checks.setBrokerController(controller);
        controller.setTransactionalMessageCheckListener(checks);
        DefaultMessageStore store = (DefaultMessageStore) controller.getMessageStore();
        // 4.x: the store starts its own delivery of delayed messages; 5.x: the broker does.
        store.start();
        Object schedule = Compat.getField(controller, "scheduleMessageService");
        if (schedule != null) {
            schedule.getClass().getMethod("start").invoke(schedule);
        } else {
            Compat.deliverDelayed(store);
        }
        ServiceThread service = (ServiceThread) Compat.getField(controller, "transactionalMessageCheckService");
        service.start();
        report(out, Json.of("running").put("version", Compat.version()));
        long deadline = System.currentTimeMillis() + options.number("for-ms", 120_000);
        while (!isDone(options, store, checks) && System.currentTimeMillis() < deadline) {
            Thread.sleep(20);
        }
        service.shutdown(true);
        if (options.has("crash")) {
            return;
        }
        if (schedule != null) {
            schedule.getClass().getMethod("shutdown").invoke(schedule);
        }
        controller.getConsumerOffsetManager().persist();
        store.shutdown();
        report(out, Json.of("stopped"));
    }

    /** So many messages are in the queues of a topic (0 to 15), and so many half messages were asked about. */
    private static boolean isDone(Options options, DefaultMessageStore store, Checks checks) throws Exception {
        long there = 0;
        for (int queue = 0; queue < 16; queue++) {
            there += store.getMaxOffsetInQueue(options.text("topic", ""), queue);
        }
        return there >= options.number("messages", 0) && checks.asked.get() >= options.number("checks", 0);
    }

    private static synchronized void report(PrintStream out, Json line) {
        out.println(line);
        out.flush();
    }

    /** Notes each half message that the broker would ask a producer about. */
    private static final class Checks extends AbstractTransactionalMessageCheckListener {
        final AtomicInteger asked = new AtomicInteger();
        private final PrintStream out;

        Checks(PrintStream out) {
            this.out = out;
        }

        @Override
        public void resolveHalfMsg(MessageExt half) {
            report(out, line("check", half));
            asked.incrementAndGet();
        }

        @Override
        public void resolveDiscardMsg(MessageExt half) {
            report(out, line("discard", half));
        }

        private static Json line(String kind, MessageExt half) {
            return Json.of(kind)
                .put("topic", half.getProperty("REAL_TOPIC"))
                .put("group", half.getProperty("PGROUP"))
                .put("key", half.getProperty("UNIQ_KEY"))
                .put("body", new String(half.getBody(), StandardCharsets.ISO_8859_1));
        }
    }
}
