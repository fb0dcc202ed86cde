package strata.load;

import java.io.File;

import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** RocketMQ itself: name server and broker in one process, until the end of its input. It stops in order once a line comes before. */
public final class RealBroker {
    private RealBroker() {
    }

    /** DIRECTORY NAME_SERVER_PORT BROKER_PORT REPLICATION_PORT; the port two below the broker's is taken as well. */
    public static void main(String[] arguments) throws Exception {
        String root = arguments[0];
        int names = Integer.parseInt(arguments[1]);
        // As its own start does: to a name server a broker without a version is an old one.
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        NamesrvConfig namesrv = new NamesrvConfig();
        namesrv.setKvConfigPath(root + File.separator + "kvConfig.json");
        NamesrvController nameServer = new NamesrvController(namesrv, listening(names));
        require(nameServer.initialize(), "the name server");
        nameServer.start();

        BrokerConfig broker = new BrokerConfig();
        broker.setBrokerName("real");
        broker.setBrokerIP1("127.0.0.1");
        broker.setNamesrvAddr("127.0.0.1:" + names);
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir(root);
        store.setStorePathCommitLog(root + File.separator + "commitlog");
        store.setFlushDiskType(FlushDiskType.SYNC_FLUSH);
        store.setHaListenPort(Integer.parseInt(arguments[3]));
        store.setDiskMaxUsedSpaceRatio(99);
        store.setMaxTransferCountOnMessageInMemory(512);
        store.setMaxTransferBytesOnMessageInMemory(1 << 20);
        NettyServerConfig listening = listening(Integer.parseInt(arguments[2]));
        BrokerController controller = new BrokerController(broker, listening, new NettyClientConfig(), store);
        require(controller.initialize(), "the broker");
        controller.start();
        while (nameServer.getRouteInfoManager().pickupTopicRouteData("TBW102") == null) {
            Thread.sleep(20); // the broker has told the name server of its topics
        }
        System.out.println("{\"ready\": true}");
        if (System.in.read() >= 0) {
            controller.shutdown();
            nameServer.shutdown();
        }
        Runtime.getRuntime().halt(0);
    }

    private static NettyServerConfig listening(int port) {
        NettyServerConfig config = new NettyServerConfig();
        config.setListenPort(port);
        return config;
    }

    private static void require(boolean done, String what) {
        if (!done) {
            throw new IllegalStateException(what + " did not start");
        }
    }
}
