import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own client at work on a Kafka broker, with the orders that BrokerBench takes.
 *
 * <p>A message is acknowledged when the leader has it (acks=1), as it is by a RocketMQ broker alone. Who waits
 * for each message sends it at once (linger.ms=0); with many under way the client gathers batches as it does by
 * default. A batch of so many is sent and then flushed.
 */
public final class KafkaBench {
    private static final long PATIENCE_S = 240;
    private static final Duration POLL = Duration.ofMillis(100);

    private final Map<String, String> order;

    private KafkaBench(Map<String, String> order) {
        this.order = order;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // what is logged is no answer
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.trim().split(" ");
            Map<String, String> order = new HashMap<>();
            for (String word : Arrays.copyOfRange(words, 1, words.length)) {
                String[] pair = word.split("=", 2);
                order.put(pair[0], pair[1]);
            }
            answers.println(new KafkaBench(order).done(words[0]));
            answers.flush();
        }
        System.exit(0);
    }

    private String done(String verb) {
        try {
            switch (verb) {
                case "topic": return topic();
                case "sync": return sync(Long.MAX_VALUE, seconds("seconds"));
                case "fill": return sync(number("count"), TimeUnit.SECONDS.toNanos(PATIENCE_S));
                case "async": return async(seconds("seconds"));
                case "consume": return consume();
                case "latency": return latency();
                default: throw new IllegalArgumentException("no verb " + verb);
            }
        } catch (Exception error) {
            String said = error.toString().replaceAll("[\"\\\\\\p{Cntrl}]", " ");
            return "{\"error\": \"" + said + "\"}";
        }
    }

    // --- what an order says ---------------------------------------------------------------------

    private long number(String name) {
        return Long.parseLong(order.get(name));
    }

    private long seconds(String name) {
        return (long) (Double.parseDouble(order.get(name)) * 1e9);
    }

    private ProducerRecord<byte[], byte[]> message(byte[] body) {
        return new ProducerRecord<>(order.get("topic"), body);
    }

    private byte[] body() {
        byte[] body = new byte[(int) number("size")];
        new Random(1).nextBytes(body);
        return body;
    }

    // --- clients --------------------------------------------------------------------------------

    private Properties address() {
        Properties found = new Properties();
        found.put("bootstrap.servers", order.get("at"));
        return found;
    }

    private KafkaProducer<byte[], byte[]> producer(boolean atOnce) {
        Properties settings = address();
        settings.put("acks", "1");
        settings.put("enable.idempotence", "false");
        if (atOnce) {
            settings.put("linger.ms", "0");
        }
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private KafkaConsumer<byte[], byte[]> consumer(String from) {
        Properties settings = address();
        settings.put("group.id", "bench_" + System.nanoTime());
        settings.put("auto.offset.reset", from);
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(order.get("topic")));
        return consumer;
    }

    private String topic() throws Exception {
        try (Admin admin = Admin.create(address())) {
            NewTopic fresh = new NewTopic(order.get("topic"), (int) number("queues"), (short) 1);
            admin.createTopics(List.of(fresh)).all().get();
        }
        try (KafkaProducer<byte[], byte[]> producer = producer(true)) {
            producer.send(message(body())).get(); // it is there when this is stored
        }
        return "{}";
    }

    // --- sending --------------------------------------------------------------------------------

    /** What one thread did. */
    private final class Sender extends Thread {
        private final KafkaProducer<byte[], byte[]> producer;
        private final byte[] body = body();
        private final int batch = (int) number("batch");
        private final Samples took = new Samples();
        private final AtomicLong left;
        private long until;
        private Exception failure;

        private Sender(KafkaProducer<byte[], byte[]> producer, AtomicLong left) {
            this.producer = producer;
            this.left = left;
        }

        @Override
        public void run() {
            try {
                for (long now = System.nanoTime(); now < until && left.getAndAdd(-batch) > 0;) {
                    if (batch == 1) {
                        producer.send(message(body)).get();
                    } else {
                        several();
                    }
                    long later = System.nanoTime();
                    took.add(later - now);
                    now = later;
                }
            } catch (Exception error) {
                failure = error;
            }
        }

        private void several() throws InterruptedException, ExecutionException {
            List<Future<?>> sent = new ArrayList<>(batch);
            for (int number = 0; number < batch; number++) {
                sent.add(producer.send(message(body)));
            }
            producer.flush();
            for (Future<?> one : sent) {
                one.get();
            }
        }
    }

    private String sync(long most, long nanoseconds) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(number("batch") == 1)) {
            producer.send(message(body())).get();
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
        }
    }

    private String async(long nanoseconds) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(false)) {
            int window = (int) number("window");
            byte[] body = body();
            producer.send(message(body)).get();
            Semaphore room = new Semaphore(window);
            AtomicReference<Throwable> failure = new AtomicReference<>();
            long sent = 0;
            long start = System.nanoTime();
            while (System.nanoTime() - start < nanoseconds && failure.get() == null) {
                room.acquire();
                producer.send(message(body), (stored, error) -> {
                    if (error != null) {
                        failure.set(error);
                    }
                    room.release();
                });
                sent++;
            }
            if (!room.tryAcquire(window, PATIENCE_S, TimeUnit.SECONDS) || failure.get() != null) {
                throw new IllegalStateException("not all were stored", failure.get());
            }
            return rate(sent, System.nanoTime() - start, null);
        }
    }

    // --- reading --------------------------------------------------------------------------------

    private String consume() {
        long count = number("count");
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("earliest")) {
            long patience = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
            long got = 0;
            long first = 0;
            long last = 0;
            while (got < count) {
                int more = consumer.poll(POLL).count();
                last = System.nanoTime();
                first = got == 0 ? last : first;
                got += more;
                if (last > patience) {
                    throw new IllegalStateException(got + " of " + count + " messages came");
                }
            }
            return rate(got, last - first, null);
        }
    }

    private String latency() throws Exception {
        long pause = 1_000_000_000L / number("rate");
        long count = seconds("seconds") / pause;
        long began = System.nanoTime();
        Samples took = new Samples();
        try (KafkaProducer<byte[], byte[]> producer = producer(true);
                KafkaConsumer<byte[], byte[]> consumer = consumer("latest")) {
            boolean probed = false;
            while (!probed) {
                producer.send(message(stamped(body(), began))).get();
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    probed |= ByteBuffer.wrap(record.value()).getLong() == began;
                }
            }
            AtomicReference<Throwable> failure = new AtomicReference<>();
            Thread sender = new Thread(() -> paced(producer, count, pause, failure));
            sender.start();
            long patience = System.nanoTime() + seconds("seconds") + TimeUnit.SECONDS.toNanos(20);
            while (took.count < count && failure.get() == null && System.nanoTime() < patience) {
                Iterable<ConsumerRecord<byte[], byte[]>> records = consumer.poll(POLL);
                long now = System.nanoTime();
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    long stamp = ByteBuffer.wrap(record.value()).getLong();
                    if (stamp > began) { // others were in the topic before
                        took.add(now - stamp);
                    }
                }
            }
            sender.join();
            if (took.count < count || failure.get() != null) {
                throw new IllegalStateException(took.count + " of " + count + " messages came", failure.get());
            }
            return "{" + took.percentiles() + "}";
        }
    }

    /** Send at a fixed rate; each message tells the moment at which it was due, as in BrokerBench. */
    private void paced(
        KafkaProducer<byte[], byte[]> producer, long count, long pause, AtomicReference<Throwable> failure) {
        byte[] pattern = body();
        long due = System.nanoTime();
        long woken = due;
        for (long sent = 0; sent < count; sent++, due += pause) {
            while (System.nanoTime() < due) {
                LockSupport.parkNanos(due - System.nanoTime());
                woken = System.nanoTime();
            }
            producer.send(message(stamped(pattern, Math.max(due, woken))), (stored, error) -> {
                if (error != null) {
                    failure.set(error);
                }
            });
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

    private static String rate(long messages, long nanoseconds, Samples took) {
        String more = took == null ? "" : ", " + took.percentiles();
        return String.format(Locale.ROOT, "{\"messages\": %d, \"rate\": %.1f%s}",
            messages, messages * 1e9 / nanoseconds, more);
    }
}
