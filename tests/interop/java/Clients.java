import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** RocketMQ's own producer and consumer, one of each for a name server. */
final class Clients {
    private static final Map<String, DefaultMQProducer> PRODUCERS = new HashMap<>();
    private static final Map<String, DefaultMQPullConsumer> CONSUMERS = new HashMap<>();
    private static final long TIMEOUT_MS = 10_000;

    private Clients() {
    }

    private static DefaultMQProducer producer(String nameServer) throws MQClientException {
        DefaultMQProducer producer = PRODUCERS.get(nameServer);
        if (producer == null) {
            producer = new DefaultMQProducer("java_producers");
            producer.setNamesrvAddr(nameServer);
            producer.setInstanceName("producer@" + nameServer);
            producer.start();
            PRODUCERS.put(nameServer, producer);
        }
        return producer;
    }

    private static DefaultMQPullConsumer consumer(String nameServer) throws MQClientException {
        DefaultMQPullConsumer consumer = CONSUMERS.get(nameServer);
        if (consumer == null) {
            consumer = new DefaultMQPullConsumer("java_consumers");
            consumer.setNamesrvAddr(nameServer);
            consumer.setInstanceName("consumer@" + nameServer);
            consumer.start();
            CONSUMERS.put(nameServer, consumer);
        }
        return consumer;
    }

    /** Sends the messages of an item, as one batch where it says so; where each was stored. */
    static List<Object> send(Map<String, Object> item) throws Exception {
        DefaultMQProducer producer = producer((String) item.get("name_server"));
        List<Message> messages = new ArrayList<>();
        for (Object each : CodecPeer.list(item.get("messages"))) {
            messages.add(message((String) item.get("topic"), CodecPeer.map(each)));
        }
        List<Object> results = new ArrayList<>();
        if (Boolean.TRUE.equals(item.get("batch"))) {
            results.add(result(producer.send(messages, TIMEOUT_MS)));
            return results;
        }
        for (Message message : messages) {
            results.add(result(producer.send(message, TIMEOUT_MS)));
        }
        return results;
    }

    private static Message message(String topic, Map<String, Object> value) {
        Message message = new Message(topic, (byte[]) value.get("body"));
        message.setFlag(CodecPeer.integer(value, "flag"));
        message.setTags((String) value.get("tag"));
        message.setKeys((String) value.get("keys"));
        CodecPeer.map(value.get("properties")).forEach((name, text) -> message.putUserProperty(name, (String) text));
        return message;
    }

    private static Map<String, Object> result(SendResult sent) {
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("status", sent.getSendStatus().name());
        result.put("unique_id", sent.getMsgId());
        result.put("offset_id", sent.getOffsetMsgId());
        result.put("queue_id", sent.getMessageQueue().getQueueId());
        result.put("queue_offset", sent.getQueueOffset());
        return result;
    }

    /** All messages of a queue from its beginning, as many as the item says there are. */
    static List<Object> pull(Map<String, Object> item) throws Exception {
        DefaultMQPullConsumer consumer = consumer((String) item.get("name_server"));
        MessageQueue queue = new MessageQueue(
            (String) item.get("topic"), (String) item.get("broker"), CodecPeer.integer(item, "queue_id"));
        List<Object> found = new ArrayList<>();
        long offset = 0;
        while (found.size() < CodecPeer.integer(item, "count")) {
            PullResult result = consumer.pullBlockIfNotFound(queue, "*", offset, 32);
            for (MessageExt message : result.getMsgFoundList() == null ? List.<MessageExt>of() : result.getMsgFoundList()) {
                found.add(Messages.describe(message));
            }
            offset = result.getNextBeginOffset();
        }
        return found;
    }
}
