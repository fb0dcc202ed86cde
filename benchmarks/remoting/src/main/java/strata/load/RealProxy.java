package strata.load;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;

import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.proxy.ProxyStartup;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;

/** RocketMQ's proxy with its broker and a name server in one process, until the end of its input. */
public final class RealProxy {
    private RealProxy() {
    }

    /** DIRECTORY NAME_SERVER_PORT BROKER_PORT REPLICATION_PORT GRPC_PORT REMOTING_PORT. */
    public static void main(String[] arguments) throws Exception {
        Path root = Paths.get(arguments[0]);
        System.setProperty("rocketmq.home.dir", root.toString());
        String names = "127.0.0.1:" + arguments[1];
        NamesrvConfig namesrv = new NamesrvConfig();
        namesrv.setKvConfigPath(root.resolve("kvConfig.json").toString());
        NettyServerConfig listening = new NettyServerConfig();
        listening.setListenPort(Integer.parseInt(arguments[1]));
        NamesrvController nameServer = new NamesrvController(namesrv, listening);
        if (!nameServer.initialize()) {
            throw new IllegalStateException("the name server did not start");
        }
        nameServer.start();
        Path broker = written(root.resolve("broker.conf"), String.join("\n",
            "brokerName=real", "brokerIP1=127.0.0.1", "namesrvAddr=" + names, "listenPort=" + arguments[2],
            "haListenPort=" + arguments[3], "storePathRootDir=" + root, "storePathCommitLog=" + root.resolve("commitlog"),
            "flushDiskType=SYNC_FLUSH", "diskMaxUsedSpaceRatio=99"));
        Path proxy = written(root.resolve("rmq-proxy.json"), String.format(
            "{\"rocketMQClusterName\": \"DefaultCluster\", \"grpcServerPort\": %s, \"remotingListenPort\": %s, \"namesrvAddr\": \"%s\"}",
            arguments[4], arguments[5], names));
        ProxyStartup.main(new String[] {"-pm", "local", "-bc", broker.toString(), "-n", names, "-pc", proxy.toString()});
        while (nameServer.getRouteInfoManager().pickupTopicRouteData("TBW102") == null) {
            Thread.sleep(20); // the broker has told the name server of its topics
        }
        System.out.println("{\"ready\": true}");
        System.in.read();
        Runtime.getRuntime().halt(0);
    }

    private static Path written(Path file, String text) throws Exception {
        return Files.write(file, text.getBytes(StandardCharsets.UTF_8));
    }
}
