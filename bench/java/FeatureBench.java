import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The verbs of bench/features.py, which BrokerBench hands on.
 *
 * <pre>
 * transact  threads that each send a half message and commit it, or roll it back
 * enqueue   timed messages that are due in hours
 * release   timed messages that are all due at one moment
 * mixed     fill a topic for filters
 * </pre>
 *
 * <p>Clients tell a broker of the end of a transaction without waiting for an answer, and a broker takes timed
 * messages into its wheel after it has answered. So the clock runs until that is done, too.
 */
final class FeatureBench {
    private static final long PATIENCE_NS = TimeUnit.SECONDS.toNanos(20);
    private static final long HOUR_MS = 3_600_000;
    private static final int AT_ONCE = 32;

    private final BrokerBench order;
    private final byte[] body;

    FeatureBench(BrokerBench order) {
        this.order = order;
        this.body = order.body();
    }

    String done(String verb) throws Exception {
        switch (verb) {
            case "transact": return transact();
            case "enqueue": return enqueue();
            case "release": return release();
            case "mixed": return mixed();
            default: throw new IllegalArgumentException("no verb " + verb);
        }
    }

    // --- transactions ---------------------------------------------------------------------------

    /** It is decided beforehand. */
    private static final class Decided implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object commits) {
            return (Boolean) commits ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.UNKNOW;
        }
    }

    private String transact() throws Exception {
        boolean commits = order.number("commits") == 1;
        TransactionMQProducer producer = new TransactionMQProducer("bench_transactions");
        producer.setTransactionListener(new Decided());
        order.started(producer);
        try {
            List<MessageQueue> queues = producer.fetchPublishMessageQueues(order.topicName());
            long before = stored(producer, queues);
            long start = System.nanoTime();
            long count = transactions(producer, commits, start + order.seconds("seconds"));
            if (!commits) { // each connection's ends are seen to in their order, or nearly
                one(producer, true);
            }
            awaitStored(producer, queues, before + (commits ? count : 1));
            return BrokerBench.rate(count, System.nanoTime() - start, null);
        } finally {
            producer.shutdown();
        }
    }

    private long transactions(TransactionMQProducer producer, boolean commits, long until) throws Exception {
        AtomicLong count = new AtomicLong();
        AtomicReference<Exception> failure = new AtomicReference<>();
        List<Thread> threads = new ArrayList<>();
        for (long number = order.number("threads"); number > 0; number--) {
            Thread thread = new Thread(() -> {
                try {
                    while (System.nanoTime() < until && failure.get() == null) {
                        one(producer, commits);
                        count.incrementAndGet();
                    }
                } catch (Exception error) {
                    failure.set(error);
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        if (failure.get() != null) {
            throw failure.get();
        }
        return count.get();
    }

    private void one(TransactionMQProducer producer, boolean commits) throws Exception {
        SendResult result = producer.sendMessageInTransaction(new Message(order.topicName(), body), commits);
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException("stored only as " + result.getSendStatus());
        }
    }

    // --- timers ---------------------------------------------------------------------------------

    /** Messages that wait for hours, until all are in the wheel. */
    private String enqueue() throws Exception {
        DefaultMQProducer producer = order.producer();
        try {
            Random random = new Random(2);
            long start = System.nanoTime();
            long until = start + order.seconds("seconds");
            long now = System.currentTimeMillis();
            long count = sendAll(producer, Long.MAX_VALUE, until,
                () -> now + HOUR_MS + (long) (random.nextDouble() * HOUR_MS));
            MQClientInstance client = producer.getDefaultMQProducerImpl().getMqClientFactory();
            String broker = client.findBrokerAddressInPublish(
                producer.fetchPublishMessageQueues(order.topicName()).get(0).getBrokerName());
            for (long patience = System.nanoTime() + PATIENCE_NS;;) {
                String behind = client.getMQClientAPIImpl().getBrokerRuntimeInfo(broker, 10_000).getTable()
                    .get("timerOffsetBehind");
                if (Long.parseLong(behind) == 0) {
                    return BrokerBench.rate(count, System.nanoTime() - start, null);
                }
                if (System.nanoTime() > patience) {
                    throw new IllegalStateException(behind + " messages are not in the wheel");
                }
                Thread.sleep(5);
            }
        } finally {
            producer.shutdown();
        }
    }

    /** So many messages that are due at once: from the first in its topic to the last. */
    private String release() throws Exception {
        long count = order.number("count");
        DefaultMQProducer producer = order.producer();
        try {
            List<MessageQueue> queues = producer.fetchPublishMessageQueues(order.topicName());
            long before = stored(producer, queues);
            long due = (System.currentTimeMillis() + order.seconds("lead") / 1_000_000) / 1000 * 1000;
            sendAll(producer, count, Long.MAX_VALUE, () -> due);
            long left = due - System.currentTimeMillis();
            if (left < 500) {
                throw new IllegalStateException(left + " ms before they are due all are stored; give it more lead");
            }
            Thread.sleep(left - 100);
            if (stored(producer, queues) != before) {
                throw new IllegalStateException("messages came before their time");
            }
            awaitStored(producer, queues, before + 1);
            long first = System.nanoTime();
            long waited = System.currentTimeMillis() - due;
            awaitStored(producer, queues, before + count);
            String said = BrokerBench.rate(count, System.nanoTime() - first, null);
            return said.replace("}", ", \"waited_ms\": " + waited + "}");
        } finally {
            producer.shutdown();
        }
    }

    private interface Due {
        long next();
    }

    private long sendAll(DefaultMQProducer producer, long most, long until, Due due) throws Exception {
        int window = (int) order.number("window");
        Semaphore room = new Semaphore(window);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        SendCallback told = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                room.release();
            }

            @Override
            public void onException(Throwable error) {
                failure.set(error);
                room.release();
            }
        };
        long sent = 0;
        for (; sent < most && System.nanoTime() < until && failure.get() == null; sent++) {
            room.acquire();
            Message message = new Message(order.topicName(), body);
            message.setDeliverTimeMs(due.next());
            producer.send(message, told);
        }
        if (!room.tryAcquire(window, 60, TimeUnit.SECONDS) || failure.get() != null) {
            throw new IllegalStateException("not all were stored", failure.get());
        }
        return sent;
    }

    // --- filters --------------------------------------------------------------------------------

    /** Fill a topic of whose messages one in so many is wanted, by its tag as by its properties. */
    private String mixed() throws Exception {
        DefaultMQProducer producer = order.producer();
        try {
            long count = order.number("count");
            long share = order.number("share");
            for (long sent = 0; sent < count; sent += AT_ONCE) {
                List<Message> messages = new ArrayList<>(AT_ONCE);
                for (long number = sent; number < sent + AT_ONCE; number++) {
                    boolean wanted = number % share == 0;
                    Message message = new Message(order.topicName(), wanted ? "wanted" : "other", body);
                    message.putUserProperty("region", wanted ? "east" : "west");
                    message.putUserProperty("amount", Long.toString(100 + number % 1000));
                    messages.add(message);
                }
                producer.send(messages);
            }
            return "{}";
        } finally {
            producer.shutdown();
        }
    }

    // --- what is there --------------------------------------------------------------------------

    private static void awaitStored(DefaultMQProducer producer, List<MessageQueue> queues, long expected)
        throws Exception {
        long patience = System.nanoTime() + PATIENCE_NS;
        for (long there = -1; there < expected; Thread.sleep(2)) {
            there = stored(producer, queues);
            if (there < expected && System.nanoTime() > patience) {
                throw new IllegalStateException(there + " messages are there, not " + expected);
            }
        }
    }

    private static long stored(DefaultMQProducer producer, List<MessageQueue> queues) throws Exception {
        long sum = 0;
        for (MessageQueue queue : queues) {
            sum += producer.maxOffset(queue);
        }
        return sum;
    }
}
