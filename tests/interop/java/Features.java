import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** What RocketMQ's clients do beyond sending and receiving: transactions, recalls, requests, traces. */
final class Features {
    private static final int END_TRANSACTION = 37;
    private static final int TIMEOUT_MS = 10_000;
    private static final Map<String, Deciding> PRODUCERS = new HashMap<>();
    private static final Map<String, Answering> ANSWERERS = new HashMap<>();
    private static final Set<String> LOST = ConcurrentHashMap.newKeySet();

    private Features() {
    }

    /** A producer of transactions; each message says how it ends, and what is said when the broker asks. */
    private static final class Deciding implements TransactionListener {
        private final ConcurrentLinkedQueue<Object> asked = new ConcurrentLinkedQueue<>();
        private TransactionMQProducer producer;
        private boolean losing;

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object state) {
            if (losing) {
                LOST.add(MessageClientIDSetter.getUniqID(message));
            }
            return LocalTransactionState.valueOf((String) state);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            asked.add(Messages.describe(message));
            return LocalTransactionState.valueOf(message.getUserProperty("answer"));
        }
    }

    /** The first decisions on messages that are to lose them never leave this machine. */
    private static final class Losing implements RPCHook {
        @Override
        public void doBeforeRequest(String address, RemotingCommand request) {
            if (request.getCode() == END_TRANSACTION && LOST.remove(messageId(request.readCustomHeader()))) {
                throw new IllegalStateException("this decision is lost");
            }
        }

        /** The header is in one package in 4.x and in another in 5.x. */
        private static String messageId(Object header) {
            try {
                return (String) header.getClass().getMethod("getMsgId").invoke(header);
            } catch (ReflectiveOperationException unknown) {
                throw new IllegalStateException(unknown);
            }
        }

        @Override
        public void doAfterResponse(String address, RemotingCommand request, RemotingCommand response) {
        }
    }

    /** A consumer that answers requests, with a producer to answer by. */
    private static final class Answering {
        private DefaultMQPushConsumer consumer;
        private TransactionMQProducer producer;
    }

    private static TransactionMQProducer producer(Map<String, Object> item) {
        boolean traced = Boolean.TRUE.equals(item.get("trace"));
        TransactionMQProducer producer = new TransactionMQProducer(
            null, (String) item.get("group"), new Losing(), traced, null);
        producer.setNamesrvAddr((String) item.get("name_server"));
        producer.setInstanceName("features-" + item.get("name"));
        producer.setSendMsgTimeout(TIMEOUT_MS);
        return producer;
    }

    /** Starts a producer. */
    static Object start(Map<String, Object> item) throws Exception {
        Deciding deciding = new Deciding();
        deciding.producer = producer(item);
        deciding.producer.setTransactionListener(deciding);
        deciding.producer.start();
        PRODUCERS.put((String) item.get("name"), deciding);
        return null;
    }

    private static Deciding named(Map<String, Object> item) {
        return PRODUCERS.get((String) item.get("name"));
    }

    private static Message message(Map<String, Object> item, Map<String, Object> value) {
        Message message = new Message((String) item.get("topic"), (byte[]) value.get("body"));
        message.setTags((String) value.get("tag"));
        if (value.get("keys") != null) {
            message.setKeys((String) value.get("keys"));
        }
        CodecPeer.map(value.get("properties")).forEach(
            (name, text) -> MessageAccessor.putProperty(message, name, (String) text));
        return message;
    }

    /** Sends messages in transactions; `local` is how each of them ends. */
    static List<Object> transact(Map<String, Object> item) throws Exception {
        List<Object> results = new ArrayList<>();
        named(item).losing = Boolean.TRUE.equals(item.get("lose"));
        for (Object each : CodecPeer.list(item.get("messages"))) {
            Map<String, Object> value = CodecPeer.map(each);
            TransactionSendResult sent = named(item).producer.sendMessageInTransaction(
                message(item, value), value.get("local"));
            Map<String, Object> result = result(sent);
            result.put("transaction_id", sent.getTransactionId());
            result.put("state", sent.getLocalTransactionState().name());
            results.add(result);
        }
        return results;
    }

    /** Sends messages one by one. */
    static List<Object> send(Map<String, Object> item) throws Exception {
        List<Object> results = new ArrayList<>();
        for (Object each : CodecPeer.list(item.get("messages"))) {
            results.add(result(named(item).producer.send(message(item, CodecPeer.map(each)))));
        }
        return results;
    }

    private static Map<String, Object> result(SendResult sent) throws Exception {
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("status", sent.getSendStatus().name());
        result.put("unique_id", sent.getMsgId());
        result.put("offset_id", sent.getOffsetMsgId());
        result.put("recall_handle", recallHandle(sent));
        return result;
    }

    /** 4.x knows of no recall. */
    private static Object recallHandle(SendResult sent) throws Exception {
        try {
            return SendResult.class.getMethod("getRecallHandle").invoke(sent);
        } catch (NoSuchMethodException old) {
            return null;
        }
    }

    /** Takes a message back by its handle; its unique id. */
    static Object recall(Map<String, Object> item) throws Exception {
        return TransactionMQProducer.class.getMethod("recallMessage", String.class, String.class)
            .invoke(named(item).producer, item.get("topic"), item.get("handle"));
    }

    /** The messages that the broker asked after since this was called last. */
    static List<Object> asked(Map<String, Object> item) {
        List<Object> found = new ArrayList<>();
        for (Object one = named(item).asked.poll(); one != null; one = named(item).asked.poll()) {
            found.add(one);
        }
        return found;
    }

    /** Asks a question; the answer. */
    static Object request(Map<String, Object> item) throws Exception {
        Message asked = new Message((String) item.get("topic"), (byte[]) item.get("body"));
        return named(item).producer.request(asked, CodecPeer.number(item, "wait_ms")).getBody();
    }

    /** Stops a producer, which writes the traces that it still has. */
    static Object stop(Map<String, Object> item) {
        PRODUCERS.remove((String) item.get("name")).producer.shutdown();
        return null;
    }

    /** Starts a consumer that answers every question with `answer to` and the question. */
    static Object answer(Map<String, Object> item) throws Exception {
        Answering answering = new Answering();
        answering.producer = producer(item);
        answering.producer.setProducerGroup("p_" + item.get("group"));
        answering.producer.start();
        boolean traced = Boolean.TRUE.equals(item.get("trace"));
        answering.consumer = new DefaultMQPushConsumer(
            (String) item.get("group"), null, new AllocateMessageQueueAveragely(), traced, null);
        answering.consumer.setNamesrvAddr((String) item.get("name_server"));
        answering.consumer.setInstanceName("features-c-" + item.get("name"));
        answering.consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        answering.consumer.subscribe((String) item.get("topic"), "*");
        answering.consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                reply(answering.producer, message);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        answering.consumer.start();
        ANSWERERS.put((String) item.get("name"), answering);
        return null;
    }

    private static void reply(TransactionMQProducer producer, MessageExt question) {
        byte[] answer = ("answer to " + new String(question.getBody(), StandardCharsets.UTF_8)).getBytes(StandardCharsets.UTF_8);
        try {
            producer.send(MessageUtil.createReplyMessage(question, answer), TIMEOUT_MS);
        } catch (Exception failed) {
            throw new IllegalStateException(failed);
        }
    }

    /** Stops a consumer that answers. */
    static Object unanswer(Map<String, Object> item) {
        Answering answering = ANSWERERS.remove((String) item.get("name"));
        answering.consumer.shutdown();
        answering.producer.shutdown();
        return null;
    }

    /** What the broker's own filter says of each message, or null where the expression is refused. */
    static List<Object> verdicts(Map<String, Object> item) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile((String) item.get("expression"));
        } catch (Exception | Error refused) {
            return null;
        }
        List<Object> verdicts = new ArrayList<>();
        for (Object each : CodecPeer.list(item.get("messages"))) {
            Map<String, String> properties = new HashMap<>();
            CodecPeer.map(each).forEach((name, text) -> properties.put(name, (String) text));
            verdicts.add(matches(expression, properties));
        }
        return verdicts;
    }

    /** As the broker asks: whatever goes wrong, the message does not match. */
    private static boolean matches(Expression expression, Map<String, String> properties) {
        try {
            return Boolean.TRUE.equals(expression.evaluate(new MessageEvaluationContext(properties)));
        } catch (Throwable failed) {
            return false;
        }
    }

    /** The records of a trace, as RocketMQ's tools read them. */
    static List<Object> readTrace(String body) {
        List<Object> records = new ArrayList<>();
        for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(body)) {
            Map<String, Object> record = new LinkedHashMap<>();
            record.put("kind", context.getTraceType().name());
            record.put("group", context.getGroupName());
            record.put("success", context.isSuccess());
            record.put("request_id", context.getRequestId());
            record.put("time_ms", context.getTimeStamp());
            record.put("cost_ms", (long) context.getCostTime());
            record.put("context_code", (long) context.getContextCode());
            TraceBean bean = context.getTraceBeans().get(0);
            record.put("topic", bean.getTopic());
            record.put("message_id", bean.getMsgId());
            record.put("offset_id", bean.getOffsetMsgId());
            record.put("tags", bean.getTags());
            record.put("keys", bean.getKeys());
            record.put("store_host", bean.getStoreHost());
            record.put("retries", (long) bean.getRetryTimes());
            record.put("body_length", (long) bean.getBodyLength());
            record.put("type", bean.getMsgType() == null ? null : bean.getMsgType().name());
            record.put("state", bean.getTransactionState() == null ? null : bean.getTransactionState().name());
            record.put("transaction_id", bean.getTransactionId());
            record.put("from_check", bean.isFromTransactionCheck());
            records.add(record);
        }
        return records;
    }
}
