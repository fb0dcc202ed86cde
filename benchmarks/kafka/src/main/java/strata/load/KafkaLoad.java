package strata.load;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;
import java.util.stream.LongStream;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own client as a load. Each line of its input is a command, NAME=VALUE words behind its name; each is
 * answered by a line of JSON, or of what failed. Words with a dot are settings of the client.
 */
public final class KafkaLoad {
    private final Map<String, String> words;
    private final String topic;
    private final int partitions;

    private KafkaLoad(Map<String, String> words) {
        this.words = words;
        this.topic = words.get("topic");
        this.partitions = number("partitions");
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // what loggers write
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split(" ");
            Map<String, String> words = new HashMap<>();
            for (String part : List.of(parts).subList(1, parts.length)) {
                words.put(part.substring(0, part.indexOf('=')), part.substring(part.indexOf('=') + 1));
            }
            try {
                answers.println(new KafkaLoad(words).run(parts[0]));
            } catch (Throwable error) {
                error.printStackTrace();
                answers.println("failed: " + error.toString().replace('\n', ' '));
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private String run(String command) throws Exception {
        switch (command) {
            case "make":
                try (Admin admin = Admin.create(settings())) {
                    admin.createTopics(Set.of(new NewTopic(topic, partitions, (short) 1))).all().get();
                }
                return report(0, 0);
            case "remove":
                try (Admin admin = Admin.create(settings())) {
                    admin.deleteTopics(Set.of(topic)).all().get();
                }
                return report(0, 0);
            case "send":
                return send();
            case "read":
                return read();
            default:
                throw new IllegalArgumentException(command);
        }
    }

    private int number(String name) {
        return Integer.parseInt(words.get(name));
    }

    private Map<String, Object> settings() {
        Map<String, Object> found = new HashMap<>(Map.of("bootstrap.servers", words.get("address")));
        words.forEach((name, value) -> {
            if (name.contains(".")) {
                found.put(name, value);
            }
        });
        return found;
    }

    /**
     * Runs of messages to the partitions in turn, for so many milliseconds, or until there are so many. Each partition is
     * one producer's. Checks that the offsets of each are dense.
     */
    private String send() throws Exception {
        byte[] body = new byte[number("body")];
        new Random(7).nextBytes(body); // does not compress
        int run = number("run");
        long most = words.containsKey("messages") ? number("messages") : Long.MAX_VALUE;
        Map<String, Object> settings = settings();
        settings.put("acks", "all");
        List<KafkaProducer<byte[], byte[]>> producers = new ArrayList<>();
        try {
            for (int i = 0; i < number("producers"); i++) {
                producers.add(new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer()));
            }
            long[] next = new long[partitions];
            for (int i = 0; i < partitions; i++) { // the topic's leaders are known to all
                var first = new ProducerRecord<byte[], byte[]>(topic, i, null, body);
                next[i] = producers.get(i % producers.size()).send(first).get().offset() + 1;
            }
            AtomicReference<Throwable> failure = new AtomicReference<>();
            Callback answered = (stored, error) -> {
                if (error != null) {
                    failure.compareAndSet(null, error);
                } else if (stored.offset() != next[stored.partition()]++) { // one thread's each
                    failure.compareAndSet(null, new IllegalStateException(stored + ": another offset was due"));
                }
            };
            long before = LongStream.of(next).sum();
            long sent = 0;
            long began = System.nanoTime();
            long end = began + number("ms") * 1_000_000L;
            for (int partition = 0; sent < most && System.nanoTime() < end; partition = (partition + 1) % partitions) {
                var producer = producers.get(partition % producers.size());
                for (int i = 0; i < run; i++) {
                    sent++;
                    producer.send(new ProducerRecord<>(topic, partition, null, body), answered);
                }
            }
            producers.forEach(KafkaProducer::flush);
            long elapsed = System.nanoTime() - began;
            if (failure.get() != null) {
                throw new IllegalStateException(failure.get());
            }
            require(LongStream.of(next).sum() - before == sent, sent + " were sent, others answered");
            return report(sent, elapsed);
        } finally {
            producers.forEach(KafkaProducer::close);
        }
    }

    /** All partitions from begin to end, over and over for so many milliseconds; the first time is not counted. */
    private String read() {
        List<TopicPartition> all =
            IntStream.range(0, partitions).mapToObj(one -> new TopicPartition(topic, one)).toList();
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(settings(), bytes, bytes)) {
            consumer.assign(all);
            long stored = consumer.endOffsets(all).values().stream().mapToLong(Long::longValue).sum();
            readAll(consumer, all, stored);
            long messages = 0;
            long began = System.nanoTime();
            long end = began + number("ms") * 1_000_000L;
            while (System.nanoTime() < end) {
                readAll(consumer, all, stored);
                messages += stored;
            }
            return report(messages, System.nanoTime() - began);
        }
    }

    private void readAll(KafkaConsumer<byte[], byte[]> consumer, List<TopicPartition> all, long stored) {
        long[] next = new long[partitions];
        consumer.seekToBeginning(all);
        for (long seen = 0, bytes = 0; seen < stored; ) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(30))) {
                require(record.offset() == next[record.partition()]++, record);
                bytes += record.value().length;
                seen++;
            }
            require(bytes >= seen, bytes);
        }
    }

    private static String report(long messages, long elapsed) {
        return "{\"messages\": " + messages + ", \"seconds\": " + elapsed / 1e9 + "}";
    }

    private static void require(boolean holds, Object seen) {
        if (!holds) {
            throw new IllegalStateException(String.valueOf(seen));
        }
    }
}
