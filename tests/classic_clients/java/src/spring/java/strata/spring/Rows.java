package strata.spring;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.spring.annotation.ConsumeMode;
import org.apache.rocketmq.spring.annotation.RocketMQMessageListener;
import org.apache.rocketmq.spring.annotation.RocketMQTransactionListener;
import org.apache.rocketmq.spring.core.RocketMQListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionState;
import org.apache.rocketmq.spring.core.RocketMQTemplate;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.messaging.Message;
import org.springframework.messaging.support.MessageBuilder;
import org.springframework.stereotype.Component;

/**
 * What an application with RocketMQ's Spring starter does: its template, listeners and transaction
 * listeners. Prints a line for each row. usage: Rows ADDRESS ROW...
 */
public class Rows {
    @SpringBootApplication
    static class Application {}

    private static final long SOON_S = 60;
    private static final long QUIET_MS = 3_000;
    private static final BlockingQueue<String> PLAIN = new LinkedBlockingQueue<>();
    private static final BlockingQueue<String> ORDERED = new LinkedBlockingQueue<>();
    private static final BlockingQueue<String> FAILING = new LinkedBlockingQueue<>();
    private static final BlockingQueue<String> DECIDED = new LinkedBlockingQueue<>();

    @Component
    @RocketMQMessageListener(topic = "spring-plain", consumerGroup = "plain", selectorExpression = "a")
    static class Plain implements RocketMQListener<String> {
        @Override
        public void onMessage(String text) {
            PLAIN.add(text);
        }
    }

    @Component
    @RocketMQMessageListener(
            topic = "spring-ordered", consumerGroup = "ordered", consumeMode = ConsumeMode.ORDERLY)
    static class Ordered implements RocketMQListener<String> {
        @Override
        public void onMessage(String text) {
            ORDERED.add(text);
        }
    }

    /** Fails twice at each message. */
    @Component
    @RocketMQMessageListener(
            topic = "spring-failing", consumerGroup = "failing", delayLevelWhenNextConsume = 1)
    static class Failing implements RocketMQListener<MessageExt> {
        @Override
        public void onMessage(MessageExt message) {
            FAILING.add(message.getReconsumeTimes() + new String(message.getBody()));
            if (message.getReconsumeTimes() < 2) {
                throw new IllegalStateException("as it is to be");
            }
        }
    }

    @Component
    @RocketMQMessageListener(topic = "spring-decided", consumerGroup = "decided")
    static class Decided implements RocketMQListener<String> {
        @Override
        public void onMessage(String text) {
            DECIDED.add(text);
        }
    }

    /** The argument says what becomes of a transaction; the check commits. */
    @RocketMQTransactionListener
    static class Decides implements RocketMQLocalTransactionListener {
        @Override
        public RocketMQLocalTransactionState executeLocalTransaction(Message message, Object said) {
            return (RocketMQLocalTransactionState) said;
        }

        @Override
        public RocketMQLocalTransactionState checkLocalTransaction(Message message) {
            return RocketMQLocalTransactionState.COMMIT;
        }
    }

    private final RocketMQTemplate template;

    private Rows(RocketMQTemplate template) {
        this.template = template;
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length < 2) {
            return;
        }
        SpringApplicationBuilder builder =
                new SpringApplicationBuilder(Application.class).web(WebApplicationType.NONE);
        builder.properties(
                "spring.main.banner-mode=off",
                "logging.level.root=ERROR",
                "rocketmq.name-server=" + arguments[0],
                "rocketmq.producer.group=spring",
                "rocketmq.pull-consumer.group=pulled",
                "rocketmq.pull-consumer.topic=spring-pulled");
        boolean well = true;
        try (ConfigurableApplicationContext context = builder.run()) {
            Rows rows = new Rows(context.getBean(RocketMQTemplate.class));
            for (String row : Arrays.asList(arguments).subList(1, arguments.length)) {
                String found;
                try {
                    found = rows.play(row);
                } catch (Exception error) {
                    found = error.toString();
                }
                System.out.println(row + "\t" + found);
                well &= found.equals("ok");
            }
        }
        System.exit(well ? 0 : 1);
    }

    private String play(String row) throws Exception {
        switch (row) {
            case "template":
                return template();
            case "ordered":
                return ordered();
            case "delayed":
                return delayed();
            case "retried":
                return retried();
            case "transactions":
                return transactions();
            case "received":
                return received();
            default:
                return "no such row";
        }
    }

    private String template() throws Exception {
        template.convertAndSend("spring-plain:a", "converted");
        SendResult sent = template.syncSend("spring-plain:a", "waited for");
        if (sent.getSendStatus() != SendStatus.SEND_OK) {
            return sent.toString();
        }
        CompletableFuture<SendResult> later = new CompletableFuture<>();
        template.asyncSend(
                "spring-plain:a",
                "called back",
                new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        later.complete(result);
                    }

                    @Override
                    public void onException(Throwable error) {
                        later.completeExceptionally(error);
                    }
                });
        later.get(SOON_S, TimeUnit.SECONDS);
        template.sendOneWay("spring-plain:a", "not waited for");
        template.syncSend("spring-plain:b", "of another tag");
        List<Message<String>> batch = new ArrayList<>();
        for (String one : Arrays.asList("first of a batch", "second of a batch")) {
            batch.add(MessageBuilder.withPayload(one).build());
        }
        template.syncSend("spring-plain:a", batch);
        return compared(
                new TreeSet<>(taken(PLAIN, 6)),
                new TreeSet<>(Arrays.asList(
                        "converted", "waited for", "called back", "not waited for",
                        "first of a batch", "second of a batch")));
    }

    private String ordered() throws Exception {
        List<String> sent = new ArrayList<>();
        for (int number = 0; number < 20; number++) {
            sent.add("step " + number);
            template.syncSendOrderly("spring-ordered", "step " + number, "one key");
        }
        return compared(taken(ORDERED, 20), sent);
    }

    private String delayed() throws Exception {
        long begin = System.nanoTime();
        template.syncSendDelayTimeSeconds("spring-plain:a", "later", 2);
        List<String> found = taken(PLAIN, 1);
        long tookMs = (System.nanoTime() - begin) / 1_000_000;
        return tookMs < 1_900 ? "after " + tookMs + " ms" : compared(found, Arrays.asList("later"));
    }

    private String retried() throws Exception {
        template.syncSend("spring-failing", "x");
        return compared(taken(FAILING, 3), Arrays.asList("0x", "1x", "2x"));
    }

    private String transactions() throws Exception {
        for (RocketMQLocalTransactionState one : RocketMQLocalTransactionState.values()) {
            Message<String> message = MessageBuilder.withPayload(one.name()).build();
            template.sendMessageInTransaction("spring-decided", message, one);
        }
        return compared(
                new TreeSet<>(taken(DECIDED, 2)), new TreeSet<>(Arrays.asList("COMMIT", "UNKNOWN")));
    }

    private String received() throws Exception {
        for (int number = 0; number < 5; number++) {
            template.syncSend("spring-pulled", "pulled " + number);
        }
        TreeSet<String> found = new TreeSet<>();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(SOON_S);
        while (found.size() < 5 && System.nanoTime() < end) {
            found.addAll(template.receive(String.class, 1_000));
        }
        return compared(found.size(), 5);
    }

    /** So many, and what comes behind them within a while. */
    private static List<String> taken(BlockingQueue<String> from, int count) throws Exception {
        List<String> found = new ArrayList<>();
        while (found.size() < count) {
            String one = from.poll(SOON_S, TimeUnit.SECONDS);
            if (one == null) {
                return found;
            }
            found.add(one);
        }
        for (String one; (one = from.poll(QUIET_MS, TimeUnit.MILLISECONDS)) != null; ) {
            found.add(one);
        }
        return found;
    }

    private static String compared(Object found, Object expected) {
        return found.equals(expected) ? "ok" : "found " + found + ", not " + expected;
    }
}
