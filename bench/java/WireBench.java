import io.netty.buffer.ByteBuf;
import io.netty.buffer.PooledByteBufAllocator;
import io.netty.buffer.Unpooled;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Random;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.SerializeType;
import org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeaderV2;

/**
 * What RocketMQ's own codecs take, in the cases that bench/wire.py measures for ours.
 *
 * <p>All cases are warmed up before the first is measured, so that each meets the machine code and the
 * profiles that a busy client has; then they take turns. Arguments: seconds to warm each case up, and to measure it. One
 * JSON object a line: ns is the median of the rounds, best_ns the quickest.
 */
public final class WireBench {
    private static final int[] SIZES = {200, 1024, 16384};
    private static final int ROUNDS = 7;
    private static final int PULL_BYTES = 1 << 20;
    private static final String PROPERTIES =
        "UNIQ_KEY\u00010A01020312347B2A9C0E0001E2400007\u0002WAIT\u0001true\u0002TAGS\u0001TagA\u0002";

    /** One repetition; what it gives is kept, so that nothing can be optimised away. */
    interface Work {
        Object run() throws Exception;
    }

    private static volatile Object kept;

    /** A case: its name, and what is done again and again. */
    record Case(String what, String form, int size, int messages, int bytes, Work work) {
    }

    private final List<Case> cases = new ArrayList<>();

    private WireBench() {
    }

    public static void main(String[] arguments) throws Exception {
        WireBench bench = new WireBench();
        for (SerializeType type : new SerializeType[] {SerializeType.JSON, SerializeType.ROCKETMQ}) {
            for (int size : SIZES) {
                bench.frames(type, size);
            }
        }
        for (int size : SIZES) {
            bench.messages(size);
        }
        for (int size : new int[] {200, 1024}) {
            bench.pull(size);
        }
        for (Case each : bench.cases) {
            warm(each.work, Double.parseDouble(arguments[0]));
        }
        bench.measure(Double.parseDouble(arguments[1]) / ROUNDS);
    }

    private void frames(SerializeType type, int size) throws Exception {
        SendMessageRequestHeaderV2 header = header();
        byte[] body = body(size);
        RemotingCommand ready = request(header, body, type);
        ready.makeCustomHeaderToNet();
        ready.writeCustomHeader(null); // only the map is left, as after decoding
        ByteBuf out = PooledByteBufAllocator.DEFAULT.directBuffer(size + 4096);
        String name = type == SerializeType.JSON ? "json" : "binary";

        add("command.encode", name, size, () -> write(ready, out));
        add("request.encode", name, size, () -> write(request(header, body, type), out));

        write(ready, out);
        byte[] frame = new byte[out.readableBytes() - 4]; // netty's frame decoder cuts the length off
        out.getBytes(out.readerIndex() + 4, frame);
        ByteBuf in = Unpooled.directBuffer(frame.length).writeBytes(frame);
        add("command.decode", name, size, () -> RemotingCommand.decode(in.readerIndex(0)));
        add("request.decode", name, size, () -> RemotingCommand.decode(in.readerIndex(0))
            .decodeCommandCustomHeader(SendMessageRequestHeaderV2.class));
        if (size == SIZES[0]) {
            RemotingCommand decoded = RemotingCommand.decode(in.readerIndex(0));
            add("header.decode", name, size,
                () -> decoded.decodeCommandCustomHeader(SendMessageRequestHeaderV2.class));
        }
    }

    private static RemotingCommand request(SendMessageRequestHeaderV2 header, byte[] body, SerializeType type) {
        RemotingCommand command = RemotingCommand.createRequestCommand(310, header);
        command.setSerializeTypeCurrentRPC(type);
        command.setBody(body);
        return command;
    }

    /** What NettyEncoder does. */
    private static Object write(RemotingCommand command, ByteBuf out) {
        out.clear();
        command.fastEncodeHeader(out);
        return out.writeBytes(command.getBody());
    }

    private void messages(int size) throws Exception {
        MessageExt message = message(size);
        add("message.encode", "v1", size, () -> MessageDecoder.encode(message, false));
        ByteBuffer stored = ByteBuffer.wrap(MessageDecoder.encode(message, false));
        add("message.decode", "v1", size, () -> MessageDecoder.clientDecode(stored.rewind(), true));
    }

    private void pull(int size) throws Exception {
        byte[] one = MessageDecoder.encode(message(size), false);
        int count = PULL_BYTES / one.length;
        ByteBuffer many = ByteBuffer.allocate(count * one.length);
        for (int i = 0; i < count; i++) {
            many.put(one);
        }
        cases.add(new Case("pull.decode", "v1", size, count, many.capacity(),
            () -> MessageDecoder.decodes(many.rewind())));
    }

    private static SendMessageRequestHeaderV2 header() {
        SendMessageRequestHeaderV2 header = new SendMessageRequestHeaderV2();
        header.setA("PG");
        header.setB("TopicTest");
        header.setC("TBW102");
        header.setD(4);
        header.setE(1);
        header.setF(0);
        header.setG(1_700_000_000_000L);
        header.setH(0);
        header.setI(PROPERTIES);
        header.setJ(0);
        header.setK(false);
        header.setM(false);
        header.setBrokerName("broker-a");
        return header;
    }

    private static byte[] body(int size) {
        byte[] body = new byte[size];
        new Random(size).nextBytes(body);
        return body;
    }

    private static MessageExt message(int size) {
        MessageExt message = new MessageExt();
        message.setTopic("TopicTest");
        message.setBody(body(size));
        message.setQueueId(1);
        message.setQueueOffset(100);
        message.setCommitLogOffset(4096);
        message.setBornTimestamp(1_700_000_000_000L);
        message.setBornHost(new InetSocketAddress("10.1.2.3", 51234));
        message.setStoreTimestamp(1_700_000_000_123L);
        message.setStoreHost(new InetSocketAddress("10.9.8.7", 10911));
        message.setTags("TagA");
        message.setKeys("k1 k2");
        message.setWaitStoreMsgOK(true);
        message.getProperties().put("UNIQ_KEY", "0A01020312347B2A9C0E0001E2400007");
        return message;
    }

    private void add(String what, String form, int size, Work work) {
        cases.add(new Case(what, form, size, 0, 0, work));
    }

    private static void print(Case which, double[] rounds) {
        double median = rounds[ROUNDS / 2];
        StringBuilder line = new StringBuilder();
        line.append(String.format(Locale.ROOT, "{\"case\":\"%s\",\"form\":\"%s\",\"size\":%d",
            which.what, which.form, which.size));
        line.append(String.format(Locale.ROOT, ",\"ns\":%.1f,\"best_ns\":%.1f", median, rounds[0]));
        if (which.messages > 0) {
            line.append(String.format(Locale.ROOT, ",\"messages\":%d,\"bytes\":%d", which.messages, which.bytes));
            line.append(String.format(Locale.ROOT, ",\"messages_per_s\":%.0f,\"gb_per_s\":%.3f",
                which.messages * 1e9 / median, which.bytes / median));
        }
        String version = MQVersion.getVersionDesc(MQVersion.CURRENT_VERSION).substring(1).replace('_', '.');
        System.out.println(line.append(",\"version\":\"").append(version).append("\"}"));
        System.out.flush();
    }

    private static void warm(Work work, double seconds) throws Exception {
        long end = System.nanoTime() + (long) (seconds * 1e9);
        while (System.nanoTime() < end) {
            round(work, 100);
        }
    }

    /** Rounds of all cases in turn, so that what disturbs the machine disturbs none of them alone. */
    private void measure(double secondsOfRound) throws Exception {
        double[][] nanos = new double[cases.size()][ROUNDS];
        for (int i = 0; i < ROUNDS; i++) {
            for (int j = 0; j < nanos.length; j++) {
                Work work = cases.get(j).work;
                long count = Math.max(1, (long) (secondsOfRound * 1e9 / round(work, 20)));
                nanos[j][i] = round(work, count);
            }
        }
        for (int j = 0; j < nanos.length; j++) {
            Arrays.sort(nanos[j]);
            print(cases.get(j), nanos[j]);
        }
    }

    private static double round(Work work, long count) throws Exception {
        long start = System.nanoTime();
        for (long i = 0; i < count; i++) {
            kept = work.run();
        }
        return Math.max(1, System.nanoTime() - start) / (double) count;
    }
}
