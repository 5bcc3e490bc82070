import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** RocketMQ's own producers and consumers at work, in all the ways that they send and receive. */
final class Traffic {
    private static final long TIMEOUT_MS = 10_000;
    private static final Map<String, DefaultMQProducer> PRODUCERS = new HashMap<>();
    private static final Map<String, Receiver> RECEIVERS = new HashMap<>();

    private Traffic() {
    }

    /** What a consumer got, and how it is stopped. */
    private static final class Receiver {
        private final LinkedBlockingQueue<Object> got = new LinkedBlockingQueue<>();
        private DefaultMQPushConsumer push;
        private DefaultLitePullConsumer lite;
        private OutputStream log;

        private void poll() {
            if (lite != null) {
                note(lite.poll(100));
            }
        }

        /** Notes messages as they are now; the client changes those that fail. */
        private void note(List<MessageExt> messages) {
            for (MessageExt message : messages) {
                if (log == null) {
                    got.add(Messages.describe(message));
                } else {
                    write(message.getBody());
                }
            }
        }

        /** One line in the file, before the message counts as handled: it is there even if the JVM is killed. */
        private synchronized void write(byte[] body) {
            try {
                log.write(body);
                log.write('\n');
            } catch (IOException failed) {
                throw new UncheckedIOException(failed);
            }
        }

        private void stop() {
            if (push != null) {
                push.shutdown();
            }
            if (lite != null) {
                lite.shutdown();
            }
        }
    }

    private static DefaultMQProducer producer(Map<String, Object> item) throws Exception {
        String nameServer = (String) item.get("name_server");
        boolean vip = Boolean.TRUE.equals(item.get("vip"));
        DefaultMQProducer producer = PRODUCERS.get(nameServer + vip);
        if (producer == null) {
            producer = new DefaultMQProducer("java_traffic");
            producer.setNamesrvAddr(nameServer);
            producer.setInstanceName("traffic@" + nameServer + vip);
            producer.setVipChannelEnabled(vip);
            producer.setSendMsgTimeout((int) TIMEOUT_MS);
            producer.start();
            PRODUCERS.put(nameServer + vip, producer);
        }
        return producer;
    }

    /** Sends messages in the way that the item says; where each was stored, as far as that is told. */
    static List<Object> send(Map<String, Object> item) throws Exception {
        DefaultMQProducer producer = producer(item);
        List<Message> messages = new ArrayList<>();
        for (Object each : CodecPeer.list(item.get("messages"))) {
            messages.add(message((String) item.get("topic"), CodecPeer.map(each)));
        }
        List<Object> results = new ArrayList<>();
        String how = (String) item.get("how");
        switch (how) {
            case "sync":
                for (Message message : messages) {
                    results.add(result(producer.send(message)));
                }
                break;
            case "async":
                results.addAll(together(producer, messages));
                break;
            case "oneway":
                for (Message message : messages) {
                    producer.sendOneway(message);
                }
                break;
            case "batch":
                results.add(result(producer.send(messages)));
                break;
            case "ordered":
                for (Message message : messages) {
                    results.add(result(producer.send(message, Traffic::byKey, message.getKeys())));
                }
                break;
            default:
                throw new IllegalArgumentException(how);
        }
        return results;
    }

    private static MessageQueue byKey(List<MessageQueue> queues, Message message, Object key) {
        return queues.get(Math.floorMod(key.hashCode(), queues.size()));
    }

    private static List<Object> together(DefaultMQProducer producer, List<Message> messages) throws Exception {
        Object[] results = new Object[messages.size()];
        CountDownLatch left = new CountDownLatch(results.length);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        for (int i = 0; i < results.length; i++) {
            int number = i;
            producer.send(messages.get(i), new SendCallback() {
                @Override
                public void onSuccess(SendResult sent) {
                    results[number] = result(sent);
                    left.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    failure.set(error);
                    left.countDown();
                }
            });
        }
        if (!left.await(3 * TIMEOUT_MS, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException(left.getCount() + " of " + results.length + " sends were not answered");
        }
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
        return List.of(results);
    }

    private static Message message(String topic, Map<String, Object> value) {
        Message message = new Message(topic, (byte[]) value.get("body"));
        message.setTags((String) value.get("tag"));
        if (value.get("keys") != null) {
            message.setKeys((String) value.get("keys"));
        }
        if (value.get("level") != null) {
            message.setDelayTimeLevel(CodecPeer.integer(value, "level"));
        }
        return message;
    }

    private static Map<String, Object> result(SendResult sent) {
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("status", sent.getSendStatus().name());
        result.put("unique_id", sent.getMsgId());
        result.put("offset_id", sent.getOffsetMsgId());
        result.put("broker", sent.getMessageQueue().getBrokerName());
        result.put("queue_id", sent.getMessageQueue().getQueueId());
        result.put("queue_offset", sent.getQueueOffset());
        result.put("region", sent.getRegionId());
        result.put("traced", sent.isTraceOn());
        return result;
    }

    /** Starts a consumer: push (concurrent or orderly) or lite pull (subscribed or assigned). */
    static Object start(Map<String, Object> item) throws Exception {
        Receiver receiver = new Receiver();
        String topic = (String) item.get("topic");
        String expression = (String) item.get("expression");
        String instance = "consumer-" + item.get("name");
        switch ((String) item.get("kind")) {
            case "push":
            case "orderly":
                receiver.push = new DefaultMQPushConsumer((String) item.get("group"), null,
                    new AllocateMessageQueueAveragely(), Boolean.TRUE.equals(item.get("trace")), null);
                receiver.push.setNamesrvAddr((String) item.get("name_server"));
                receiver.push.setInstanceName(instance);
                receiver.push.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
                if (Boolean.TRUE.equals(item.get("sql"))) {
                    receiver.push.subscribe(topic, MessageSelector.bySql(expression));
                } else {
                    receiver.push.subscribe(topic, expression);
                }
                if (item.get("log") != null) {
                    receiver.log = new FileOutputStream((String) item.get("log"), true);
                }
                if (item.get("strategy") != null) {
                    receiver.push.setAllocateMessageQueueStrategy(Sharing.strategy(item));
                    receiver.push.setClientIP("127.0.0.1");
                    receiver.push.setInstanceName((String) item.get("name"));
                }
                if (item.get("max") != null) {
                    receiver.push.setMaxReconsumeTimes(CodecPeer.integer(item, "max"));
                }
                if (Boolean.TRUE.equals(item.get("broadcast"))) {
                    broadcast(receiver.push);
                }
                if (Boolean.TRUE.equals(item.get("pop"))) {
                    letTheBrokerChoose(receiver.push);
                }
                listen(receiver, item);
                receiver.push.start();
                break;
            case "lite":
            case "assigned":
                receiver.lite = new DefaultLitePullConsumer((String) item.get("group"));
                receiver.lite.setNamesrvAddr((String) item.get("name_server"));
                receiver.lite.setInstanceName(instance);
                receiver.lite.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
                if ("lite".equals(item.get("kind"))) {
                    receiver.lite.subscribe(topic, expression);
                    receiver.lite.start();
                } else {
                    receiver.lite.start();
                    assign(receiver.lite, topic);
                }
                break;
            default:
                throw new IllegalArgumentException((String) item.get("kind"));
        }
        RECEIVERS.put((String) item.get("name"), receiver);
        return null;
    }

    private static void assign(DefaultLitePullConsumer lite, String topic) throws Exception {
        Collection<MessageQueue> queues = lite.fetchMessageQueues(topic);
        lite.assign(queues);
        for (MessageQueue queue : queues) {
            lite.seekToBegin(queue);
        }
    }

    /** What 4.x has no notion of: the broker says which queues are a consumer's, and whether it pops. */
    private static void letTheBrokerChoose(DefaultMQPushConsumer push) throws Exception {
        DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(push, false);
    }

    /** The model is in one package in 4.x and in another in 5.x. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void broadcast(DefaultMQPushConsumer push) throws Exception {
        for (Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                method.invoke(push, Enum.valueOf((Class) method.getParameterTypes()[0], "BROADCASTING"));
            }
        }
    }

    /** A listener that fails at each message as often as the item says, and notes every attempt. */
    private static void listen(Receiver receiver, Map<String, Object> item) {
        int fails = item.get("fails") == null ? 0 : CodecPeer.integer(item, "fails");
        int level = item.get("level") == null ? 0 : CodecPeer.integer(item, "level");
        if ("orderly".equals(item.get("kind"))) {
            receiver.push.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                receiver.note(messages);
                boolean failed = messages.get(0).getReconsumeTimes() < fails;
                return failed ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            receiver.push.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                receiver.note(messages);
                context.setDelayLevelWhenNextConsume(level);
                boolean failed = messages.get(0).getReconsumeTimes() < fails;
                return failed ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
    }

    /** Waits until a consumer got as many messages as the item says, or for as long; what it got. */
    static List<Object> take(Map<String, Object> item) throws Exception {
        Receiver receiver = RECEIVERS.get((String) item.get("name"));
        long end = System.nanoTime() + CodecPeer.number(item, "wait_ms") * 1_000_000;
        List<Object> taken = new ArrayList<>();
        while (taken.size() < CodecPeer.integer(item, "count") && System.nanoTime() < end) {
            receiver.poll();
            Object message = receiver.got.poll(20, TimeUnit.MILLISECONDS);
            if (message != null) {
                taken.add(message);
            }
        }
        return taken;
    }

    /** The queues of a topic that a push consumer has now, by their numbers. */
    static List<Object> queues(Map<String, Object> item) {
        DefaultMQPushConsumer push = RECEIVERS.get((String) item.get("name")).push;
        List<Object> numbers = new ArrayList<>();
        for (MessageQueue queue : push.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet()) {
            if (queue.getTopic().equals(item.get("topic"))) {
                numbers.add(queue.getQueueId());
            }
        }
        return numbers;
    }

    /** Stops a consumer. */
    static Object stop(Map<String, Object> item) {
        RECEIVERS.remove((String) item.get("name")).stop();
        return null;
    }
}
