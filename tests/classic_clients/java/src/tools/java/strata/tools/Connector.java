package strata.tools;

import static strata.tools.Tools.*;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.header.EndTransactionRequestHeader;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What the source and the sink of RocketMQ's Flink connector ask for. */
final class Connector {
    private static final String SINKS = "sinks";
    private static final int SOUGHT_MS = 5_000;

    /** Half messages that their committer ends by a call that waits for its answer, not one way as producers do. */
    static void sink(DefaultMQAdminExt tool) throws Exception {
        tool.createAndUpdateTopicConfig(address, new TopicConfig("sunk", 1, 1, 6));
        TransactionMQProducer producer = new TransactionMQProducer(SINKS);
        producer.setTransactionListener(new Undecided());
        started(producer);
        producer.send(new Message("sunk", bytes("plain")));
        same(end(producer, half(producer, "committed"), MessageSysFlag.TRANSACTION_COMMIT_TYPE), 0);
        same(end(producer, half(producer, "rolled back"), MessageSysFlag.TRANSACTION_ROLLBACK_TYPE), 0);
        producer.send(new Message("sunk", bytes("last")));
        until(() -> between("sunk", 0, Long.MAX_VALUE).contains("last"), "it is not there");
        HashSet<String> wanted = new HashSet<>(Arrays.asList("plain", "committed", "last"));
        until(() -> between("sunk", 0, Long.MAX_VALUE).equals(wanted), "something else is there");
    }

    private static SendResult half(TransactionMQProducer producer, String text) throws Exception {
        Message message = new Message("sunk", bytes(text));
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS, "900000");
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_TRANSACTION_PREPARED, "true");
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_PRODUCER_GROUP, SINKS);
        return producer.send(message);
    }

    /** The answer's code. */
    private static int end(TransactionMQProducer producer, SendResult half, int decision) throws Exception {
        MQClientInstance client = producer.getDefaultMQProducerImpl().getMqClientFactory();
        String broker = client.getBrokerNameFromMessageQueue(half.getMessageQueue());
        EndTransactionRequestHeader header = new EndTransactionRequestHeader();
        header.setTransactionId(half.getTransactionId());
        header.setCommitLogOffset(MessageDecoder.decodeMessageId(half.getOffsetMsgId()).getOffset());
        header.setBrokerName(broker);
        header.setProducerGroup(SINKS);
        header.setTranStateTableOffset(half.getQueueOffset());
        header.setFromTransactionCheck(true);
        header.setMsgId(half.getMsgId());
        header.setCommitOrRollback(decision);
        RemotingCommand request = RemotingCommand.createRequestCommand(RequestCode.END_TRANSACTION, header);
        request.setRemark("");
        return client.getMQClientAPIImpl().getRemotingClient()
            .invokeSync(client.findBrokerAddressInPublish(broker), request, PATIENCE_MS).getCode();
    }

    private static final class Undecided implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return LocalTransactionState.UNKNOW;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.UNKNOW;
        }
    }

    /** Queues are assigned and sought by the job, and offsets are committed with its checkpoints. */
    static void source(DefaultMQAdminExt tool) throws Exception {
        tool.createAndUpdateTopicConfig(address, new TopicConfig("streamed", 1, 1, 6));
        DefaultMQProducer producer = producer("streams", false);
        SendResult sent = null;
        for (int number = 0; number < 10; number++) {
            sent = producer.send(new Message("streamed", bytes("m" + number)));
        }
        MessageQueue queue = sent.getMessageQueue();
        until(() -> tool.maxOffset(queue) == 10, "they are not in the queue");
        same(tool.minOffset(queue), 0L);
        same(tool.searchOffset(queue, 0), 0L);
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("job");
        consumer.setAutoCommit(false);
        started(consumer);
        Collection<MessageQueue> queues = consumer.fetchMessageQueues("streamed");
        same(new HashSet<>(queues), Collections.singleton(queue));
        same(consumer.getOffsetStore().readOffset(queue, ReadOffsetType.READ_FROM_STORE), -1L);
        consumer.assign(queues);
        same(consumer.assignment(), new HashSet<>(queues));
        same(polledFrom(consumer, queue, 4, 6), Arrays.asList("m4", "m5", "m6", "m7", "m8", "m9"));
        consumer.getOffsetStore().updateOffset(queue, 10, true);
        until(() -> consumer.getOffsetStore().readOffset(queue, ReadOffsetType.READ_FROM_STORE) == 10, "no commit");
        consumer.pause(queues);
        consumer.resume(queues);
        same(polledFrom(consumer, queue, 9, 1), Collections.singletonList("m9"));
    }

    /** While nothing comes, the place is sought again: the client forgets it if its first pull from there fails. */
    private static List<String> polledFrom(
        DefaultLitePullConsumer consumer, MessageQueue queue, long offset, int count) throws Exception {
        List<String> texts = new ArrayList<>();
        until(() -> {
            if (texts.isEmpty()) {
                consumer.seek(queue, offset);
            }
            consumer.poll(SOUGHT_MS).forEach(one -> texts.add(text(one)));
            return texts.size() >= count;
        }, "not all come");
        return texts;
    }

    private Connector() {
    }
}
