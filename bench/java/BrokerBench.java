import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * RocketMQ's own client at work on whatever broker it is pointed to, for bench/broker.py,
 * bench/client.py and bench/features.py.
 *
 * <p>One order a line on stdin, `verb name=value …`, and one JSON object a line on stdout. One JVM does a
 * whole run, so that what it learns about its own hot code serves all brokers alike; producers and
 * consumers are made anew for each order. The verbs:
 *
 * <pre>
 * topic    make a topic
 * sync     threads that each send a message, or a batch, and wait for its answer
 * async    one thread that sends on as long as fewer than so many messages are under way
 * auto     the same, and the client gathers messages into batches by itself
 * fill     as sync, until there are so many messages
 * consume  a new group reads so many messages from the first on
 * lite     the same with a consumer that is polled
 * latency  messages at a fixed rate, each read back by a push consumer
 * </pre>
 *
 * <p>What else there is, FeatureBench does.
 */
public final class BrokerBench {
    private static final int TIMEOUT_MS = 10_000;
    private static final long PATIENCE_S = 240;
    private static final String TEMPLATE = "TBW102";

    private final Map<String, String> order;

    private BrokerBench(Map<String, String> order) {
        this.order = order;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.trim().split(" ");
            Map<String, String> order = new HashMap<>();
            for (String word : Arrays.copyOfRange(words, 1, words.length)) {
                String[] pair = word.split("=", 2);
                order.put(pair[0], pair[1]);
            }
            System.out.println(new BrokerBench(order).done(words[0]));
            System.out.flush();
        }
        System.exit(0);
    }

    private String done(String verb) {
        try {
            switch (verb) {
                case "topic": return topic();
                case "sync": return sync(Long.MAX_VALUE, seconds("seconds"));
                case "fill": return sync(number("count"), TimeUnit.SECONDS.toNanos(PATIENCE_S));
                case "async": return async(seconds("seconds"), false);
                case "auto": return async(seconds("seconds"), true);
                case "consume": return consume();
                case "lite": return lite();
                case "latency": return latency();
                default: return new FeatureBench(this).done(verb);
            }
        } catch (Exception error) {
            String said = error.toString().replaceAll("[\"\\\\\\p{Cntrl}]", " ");
            return "{\"error\": \"" + said + "\"}";
        }
    }

    // --- what an order says ---------------------------------------------------------------------

    long number(String name) {
        return Long.parseLong(order.get(name));
    }

    long seconds(String name) {
        return (long) (Double.parseDouble(order.get(name)) * 1e9);
    }

    String topicName() {
        return order.get("topic");
    }

    byte[] body() {
        byte[] body = new byte[(int) number("size")];
        new Random(1).nextBytes(body);
        return body;
    }

    // --- clients --------------------------------------------------------------------------------

    DefaultMQProducer producer() throws MQClientException {
        DefaultMQProducer producer = new DefaultMQProducer("bench_producer");
        started(producer);
        return producer;
    }

    void started(DefaultMQProducer producer) throws MQClientException {
        producer.setNamesrvAddr(order.get("at"));
        producer.setInstanceName("p" + System.nanoTime());
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE); // brokers are measured, not zip
        producer.start();
    }

    private DefaultMQPushConsumer consumer(MessageListenerConcurrently listener) throws MQClientException {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("bench_" + System.nanoTime());
        consumer.setNamesrvAddr(order.get("at"));
        consumer.setInstanceName("c" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topicName(), selector());
        consumer.registerMessageListener(listener);
        return consumer;
    }

    /** Everything, or one in so many of what FeatureBench has filled a topic with. */
    private MessageSelector selector() {
        switch (order.getOrDefault("filter", "")) {
            case "tag": return MessageSelector.byTag("wanted");
            case "sql": return MessageSelector.bySql("amount >= 100 AND region = 'east'");
            default: return MessageSelector.byTag("*");
        }
    }

    private String topic() throws Exception {
        DefaultMQProducer producer = producer();
        try {
            producer.createTopic(TEMPLATE, topicName(), (int) number("queues"), null);
            Exception last = null;
            for (int attempt = 0; attempt < 100; attempt++) { // until its route is known
                try {
                    expectStored(producer.send(new Message(topicName(), body())));
                    return "{}";
                } catch (Exception error) {
                    last = error;
                    Thread.sleep(100);
                }
            }
            throw last;
        } finally {
            producer.shutdown();
        }
    }

    private static void expectStored(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException("stored only as " + result.getSendStatus());
        }
    }

    // --- sending --------------------------------------------------------------------------------

    /** What one thread did. */
    private final class Sender extends Thread {
        private final DefaultMQProducer producer;
        private final byte[] body = body();
        private final int batch = (int) number("batch");
        private final Samples took = new Samples();
        private final AtomicLong left;
        private long until;
        private Exception failure;

        private Sender(DefaultMQProducer producer, AtomicLong left) {
            this.producer = producer;
            this.left = left;
        }

        @Override
        public void run() {
            try {
                for (long now = System.nanoTime(); now < until && left.getAndAdd(-batch) > 0;) {
                    expectStored(batch == 1 ? producer.send(one()) : producer.send(several()));
                    long later = System.nanoTime();
                    took.add(later - now);
                    now = later;
                }
            } catch (Exception error) {
                failure = error;
            }
        }

        private Message one() {
            return new Message(topicName(), body);
        }

        private List<Message> several() {
            List<Message> messages = new ArrayList<>(batch);
            for (int number = 0; number < batch; number++) {
                messages.add(one());
            }
            return messages;
        }
    }

    private String sync(long most, long nanoseconds) throws Exception {
        DefaultMQProducer producer = producer();
        try {
            expectStored(producer.send(new Message(topicName(), body())));
            List<Sender> senders = new ArrayList<>();
            AtomicLong left = new AtomicLong(most);
            for (long number = number("threads"); number > 0; number--) {
                senders.add(new Sender(producer, left));
            }
            long start = System.nanoTime();
            for (Sender sender : senders) {
                sender.until = start + nanoseconds;
                sender.start();
            }
            Samples took = new Samples();
            for (Sender sender : senders) {
                sender.join();
                if (sender.failure != null) {
                    throw sender.failure;
                }
                took.addAll(sender.took);
            }
            return rate(took.count * number("batch"), System.nanoTime() - start, took);
        } finally {
            producer.shutdown();
        }
    }

    private String async(long nanoseconds, boolean batches) throws Exception {
        DefaultMQProducer producer = producer();
        try {
            producer.setAutoBatch(batches);
            int window = (int) number("window");
            byte[] body = body();
            expectStored(producer.send(new Message(topicName(), body)));
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
            long start = System.nanoTime();
            while (System.nanoTime() - start < nanoseconds && failure.get() == null) {
                room.acquire();
                producer.send(new Message(topicName(), body), told);
                sent++;
            }
            if (!room.tryAcquire(window, PATIENCE_S, TimeUnit.SECONDS) || failure.get() != null) {
                throw new IllegalStateException("not all were stored", failure.get());
            }
            return rate(sent, System.nanoTime() - start, null);
        } finally {
            producer.shutdown();
        }
    }

    // --- reading --------------------------------------------------------------------------------

    private String consume() throws Exception {
        long count = number("count");
        AtomicLong got = new AtomicLong();
        AtomicLong first = new AtomicLong();
        AtomicLong last = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = consumer((messages, context) -> {
            if (first.get() == 0) {
                first.compareAndSet(0, System.nanoTime());
            }
            if (got.addAndGet(messages.size()) >= count) {
                last.compareAndSet(0, System.nanoTime());
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        try {
            consumer.start();
            if (!done.await(PATIENCE_S, TimeUnit.SECONDS)) {
                throw new IllegalStateException(got.get() + " of " + count + " messages came");
            }
            return rate(count, last.get() - first.get(), null);
        } finally {
            consumer.shutdown();
        }
    }

    private String lite() throws Exception {
        long count = number("count");
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("bench_" + System.nanoTime());
        consumer.setNamesrvAddr(order.get("at"));
        consumer.setInstanceName("l" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullBatchSize((int) number("batch")); // of a pull, and of a poll
        consumer.subscribe(topicName(), "*");
        try {
            consumer.start();
            long patience = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
            long got = 0;
            long first = 0;
            long last = 0;
            while (got < count) {
                int more = consumer.poll(1000).size();
                last = System.nanoTime();
                first = got == 0 ? last : first;
                got += more;
                if (last > patience) {
                    throw new IllegalStateException(got + " of " + count + " messages came");
                }
            }
            return rate(got, last - first, null);
        } finally {
            consumer.shutdown();
        }
    }

    private String latency() throws Exception {
        long pause = 1_000_000_000L / number("rate");
        long count = seconds("seconds") / pause;
        long began = System.nanoTime();
        Samples took = new Samples();
        AtomicLong expected = new AtomicLong(Long.MAX_VALUE);
        CountDownLatch probed = new CountDownLatch(1);
        CountDownLatch done = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = consumer((messages, context) -> {
            long now = System.nanoTime();
            for (MessageExt message : messages) {
                long stamp = ByteBuffer.wrap(message.getBody()).getLong();
                if (stamp == began) {
                    probed.countDown();
                } else if (stamp > began && stamp <= now) { // others were in the topic before
                    synchronized (took) {
                        took.add(now - stamp);
                        if (took.count >= expected.get()) {
                            done.countDown();
                        }
                    }
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        DefaultMQProducer producer = producer();
        try {
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
            consumer.start();
            do {
                producer.send(new Message(topicName(), stamped(body(), began)));
            } while (!probed.await(100, TimeUnit.MILLISECONDS));
            expected.set(count);
            AtomicReference<Throwable> failure = new AtomicReference<>();
            paced(producer, count, pause, failure);
            if (!done.await(20, TimeUnit.SECONDS) || failure.get() != null) {
                throw new IllegalStateException(took.count + " of " + count + " messages came", failure.get());
            }
            synchronized (took) {
                return "{" + took.percentiles() + "}";
            }
        } finally {
            producer.shutdown();
            consumer.shutdown();
        }
    }

    /**
     * Send at a fixed rate; each message tells the moment at which it was due.
     *
     * <p>So a broker that stands still is not let off with the one message that waits for it. What does not
     * count is that the system wakes us late: then what is due is due at that moment.
     */
    private void paced(DefaultMQProducer producer, long count, long pause, AtomicReference<Throwable> failure)
        throws Exception {
        SendCallback told = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
            }

            @Override
            public void onException(Throwable error) {
                failure.set(error);
            }
        };
        byte[] pattern = body();
        long due = System.nanoTime();
        long woken = due;
        for (long sent = 0; sent < count; sent++, due += pause) {
            while (System.nanoTime() < due) {
                LockSupport.parkNanos(due - System.nanoTime());
                woken = System.nanoTime();
            }
            producer.send(new Message(topicName(), stamped(pattern, Math.max(due, woken))), told);
        }
    }

    private static byte[] stamped(byte[] pattern, long stamp) {
        byte[] body = pattern.clone();
        ByteBuffer.wrap(body).putLong(stamp);
        return body;
    }

    // --- numbers --------------------------------------------------------------------------------

    /** Nanoseconds, many of them. */
    private static final class Samples {
        private long[] all = new long[1 << 16];
        private int count;

        private void add(long one) {
            if (count == all.length) {
                all = Arrays.copyOf(all, 2 * count);
            }
            all[count++] = one;
        }

        private void addAll(Samples other) {
            for (int at = 0; at < other.count; at++) {
                add(other.all[at]);
            }
        }

        private String percentiles() {
            Arrays.sort(all, 0, count);
            return String.format(Locale.ROOT, "\"p50\": %.1f, \"p99\": %.1f, \"p999\": %.1f",
                at(0.5), at(0.99), at(0.999));
        }

        /** Microseconds below which that share lies. */
        private double at(double share) {
            return count == 0 ? 0 : all[(int) Math.min(count - 1L, Math.round(share * count))] / 1e3;
        }
    }

    static String rate(long messages, long nanoseconds, Samples took) {
        String more = took == null ? "" : ", " + took.percentiles();
        return String.format(Locale.ROOT, "{\"messages\": %d, \"rate\": %.1f%s}",
            messages, messages * 1e9 / nanoseconds, more);
    }
}
