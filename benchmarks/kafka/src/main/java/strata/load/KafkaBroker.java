package strata.load;

import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.Uuid;

/** Kafka itself: one node that is broker and controller, until the end of its input. It flushes each batch before it answers. */
public final class KafkaBroker {
    private KafkaBroker() {
    }

    /** DIRECTORY PORT CONTROLLER_PORT */
    public static void main(String[] arguments) throws Exception {
        Path root = Path.of(arguments[0]);
        String address = "127.0.0.1:" + arguments[1];
        String controller = "127.0.0.1:" + arguments[2];
        Path settings = root.resolve("server.properties");
        Files.writeString(settings, String.join("\n",
            "process.roles=broker,controller",
            "node.id=1",
            "controller.quorum.voters=1@" + controller,
            "controller.listener.names=CONTROLLER",
            "listeners=PLAINTEXT://" + address + ",CONTROLLER://" + controller,
            "log.dirs=" + root.resolve("logs"),
            "log.flush.interval.messages=1",
            "message.max.bytes=16777216",
            "log.segment.delete.delay.ms=0",
            "offsets.topic.replication.factor=1"));
        PrintStream answers = System.out;
        System.setOut(System.err); // Kafka's own lines
        String[] format = {"format", "-t", Uuid.randomUuid().toString(), "-c", settings.toString()};
        if (kafka.tools.StorageTool.execute(format, System.err) != 0) {
            throw new IllegalStateException("the directory was not formatted");
        }
        new Thread(() -> kafka.Kafka.main(new String[] {settings.toString()})).start();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
            admin.describeCluster().nodes().get(); // waits for the broker
        }
        answers.println("{\"ready\": true}");
        while (System.in.read() >= 0) {
            continue;
        }
        Runtime.getRuntime().halt(0);
    }
}
