import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.compression.Compressor;
import org.apache.rocketmq.common.compression.CompressorFactory;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageId;

/** Stored messages, batches, properties and identifiers through MessageDecoder and its kin. */
final class Messages {
    private static final int COMPRESSED = 0x1;
    private static final int INNER_BATCH = 0x40 | 0x80;
    private static final int QUEUE_OFFSET_AT = 20;
    private static final int LOG_OFFSET_AT = 28;

    private static Object brokerEncoder;

    private Messages() {
    }

    /** A pull answer's body to messages, inner batches unwrapped as a consumer unwraps them. */
    static List<Object> decode(byte[] body) throws Exception {
        List<MessageExt> messages = new ArrayList<>();
        for (MessageExt message : MessageDecoder.decodes(ByteBuffer.wrap(body))) {
            if ((message.getSysFlag() & INNER_BATCH) == INNER_BATCH) {
                Method unwrap = MessageDecoder.class.getMethod("decodeMessage", MessageExt.class, List.class);
                unwrap.invoke(null, message, messages);
            } else {
                messages.add(message);
            }
        }
        List<Object> values = new ArrayList<>();
        for (MessageExt message : messages) {
            values.add(describe(message));
        }
        return values;
    }

    static Map<String, Object> describe(MessageExt message) {
        Map<String, Object> value = described(message);
        value.put("store_size", message.getStoreSize());
        value.put("crc", message.getBodyCRC());
        value.put("queue_id", message.getQueueId());
        value.put("queue_offset", message.getQueueOffset());
        value.put("log_offset", message.getCommitLogOffset());
        value.put("sys_flag", message.getSysFlag());
        value.put("born_time", message.getBornTimestamp());
        value.put("born_host", host(message.getBornHost()));
        value.put("store_time", message.getStoreTimestamp());
        value.put("store_host", host(message.getStoreHost()));
        value.put("reconsume_times", message.getReconsumeTimes());
        value.put("prepared_offset", message.getPreparedTransactionOffset());
        value.put("id", message.getMsgId());
        return value;
    }

    private static Map<String, Object> described(Message message) {
        Map<String, Object> value = new LinkedHashMap<>();
        value.put("topic", message.getTopic());
        value.put("flag", message.getFlag());
        value.put("body", message.getBody());
        value.put("properties", message.getProperties());
        return value;
    }

    private static List<Object> host(SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        return Arrays.asList(host.getAddress().getAddress(), host.getPort());
    }

    private static SocketAddress host(Object value) throws UnknownHostException {
        List<Object> host = CodecPeer.list(value);
        return new InetSocketAddress(InetAddress.getByAddress((byte[]) host.get(0)), ((Long) host.get(1)).intValue());
    }

    static byte[] encode(Map<String, Object> item) throws Exception {
        boolean second = CodecPeer.integer(item, "version") == 2;
        MessageExt message = second ? brokerMessage() : new MessageExt();
        int flags = CodecPeer.integer(item, "sys_flag");
        byte[] body = (byte[]) item.get("body");
        if ((flags & COMPRESSED) != 0) {
            body = compressor(flags).compress(body, 5);
        }
        message.setTopic((String) item.get("topic"));
        message.setFlag(CodecPeer.integer(item, "flag"));
        message.setBody(body);
        message.setBodyCRC(body.length == 0 ? 0 : UtilAll.crc32(body));
        message.setQueueId(CodecPeer.integer(item, "queue_id"));
        message.setQueueOffset(CodecPeer.number(item, "queue_offset"));
        message.setCommitLogOffset(CodecPeer.number(item, "log_offset"));
        message.setSysFlag(flags);
        message.setBornTimestamp(CodecPeer.number(item, "born_time"));
        message.setBornHost(host(item.get("born_host")));
        message.setStoreTimestamp(CodecPeer.number(item, "store_time"));
        message.setStoreHost(host(item.get("store_host")));
        message.setReconsumeTimes(CodecPeer.integer(item, "reconsume_times"));
        message.setPreparedTransactionOffset(CodecPeer.number(item, "prepared_offset"));
        Map<String, String> properties = strings(item.get("properties"));
        if (second) {
            return encodeAsBroker(message, MessageDecoder.messageProperties2String(properties));
        }
        properties.forEach((name, value) -> {
            // putProperty is not public; the accessor of one property that is opens the map
            message.setWaitStoreMsgOK(true);
            message.getProperties().put(name, value);
        });
        if (message.getProperties() != null && !properties.containsKey("WAIT")) {
            message.getProperties().remove("WAIT");
        }
        return MessageDecoder.encode(message, false);
    }

    private static MessageExt brokerMessage() throws ReflectiveOperationException {
        Class<?> type = Class.forName("org.apache.rocketmq.common.message.MessageExtBrokerInner");
        return (MessageExt) type.getDeclaredConstructor().newInstance();
    }

    /** Version 2 is written by the broker alone, which fills in both offsets afterwards. */
    private static byte[] encodeAsBroker(MessageExt message, String properties) throws ReflectiveOperationException {
        Class<?> version = Class.forName("org.apache.rocketmq.common.message.MessageVersion");
        Object second = version.getField("MESSAGE_VERSION_V2").get(null);
        message.getClass().getMethod("setVersion", version).invoke(message, second);
        message.getClass().getMethod("setPropertiesString", String.class).invoke(message, properties);
        Object encoder = brokerEncoder();
        Object refusal = encoder.getClass().getMethod("encode", message.getClass()).invoke(encoder, message);
        if (refusal != null) {
            throw new IllegalStateException("the broker's encoder refuses: " + refusal);
        }
        ByteBuffer buffer = (ByteBuffer) encoder.getClass().getMethod("getEncoderBuffer").invoke(encoder);
        buffer.putLong(QUEUE_OFFSET_AT, message.getQueueOffset());
        buffer.putLong(LOG_OFFSET_AT, message.getCommitLogOffset());
        byte[] stored = new byte[buffer.getInt(0)];
        buffer.get(0, stored);
        return stored;
    }

    private static Object brokerEncoder() throws ReflectiveOperationException {
        if (brokerEncoder == null) {
            Class<?> config = Class.forName("org.apache.rocketmq.store.config.MessageStoreConfig");
            Constructor<?> maker = Class.forName("org.apache.rocketmq.store.MessageExtEncoder")
                .getConstructor(int.class, config);
            brokerEncoder = maker.newInstance(1 << 22, config.getDeclaredConstructor().newInstance());
        }
        return brokerEncoder;
    }

    static List<Object> decodeBatch(byte[] body) throws Exception {
        List<Object> values = new ArrayList<>();
        for (Message message : MessageDecoder.decodeMessages(ByteBuffer.wrap(body))) {
            values.add(described(message));
        }
        return values;
    }

    static byte[] encodeBatch(List<Object> items) {
        List<Message> messages = new ArrayList<>();
        for (Object item : items) {
            Map<String, Object> value = CodecPeer.map(item);
            Message message = new Message("T", (byte[]) value.get("body"));
            message.setFlag(CodecPeer.integer(value, "flag"));
            message.getProperties().clear();
            message.getProperties().putAll(strings(value.get("properties")));
            messages.add(message);
        }
        return MessageDecoder.encodeMessages(messages);
    }

    static Map<String, Object> readProperties(String text) {
        return new TreeMap<>(MessageDecoder.string2messageProperties(text));
    }

    static String writeProperties(Map<String, Object> item) {
        return MessageDecoder.messageProperties2String(strings(item));
    }

    private static Map<String, String> strings(Object item) {
        Map<String, String> strings = new HashMap<>();
        if (item != null) {
            CodecPeer.map(item).forEach((name, value) -> strings.put(name, (String) value));
        }
        return strings;
    }

    private static Compressor compressor(int flags) {
        CompressionType type = CompressionType.findByValue((flags >> 8) & 0x7);
        return CompressorFactory.getCompressor(type);
    }

    static byte[] compress(Map<String, Object> item) throws Exception {
        Compressor compressor = compressor(CodecPeer.integer(item, "flags"));
        return compressor.compress((byte[]) item.get("body"), CodecPeer.integer(item, "level"));
    }

    static byte[] decompress(Map<String, Object> item) throws Exception {
        return compressor(CodecPeer.integer(item, "flags")).decompress((byte[]) item.get("body"));
    }

    static int crc(byte[] bytes) {
        return UtilAll.crc32(bytes);
    }

    static String newUniqueId() {
        return MessageClientIDSetter.createUniqID();
    }

    static Map<String, Object> readUniqueId(String id) {
        Map<String, Object> value = new LinkedHashMap<>();
        value.put("ip", MessageClientIDSetter.getIPFromID(id));
        value.put("pid", MessageClientIDSetter.getPidFromID(id));
        value.put("time", MessageClientIDSetter.getNearlyTimeFromID(id).getTime());
        return value;
    }

    static String offsetId(Map<String, Object> item) throws UnknownHostException {
        return MessageDecoder.createMessageId(host(item.get("host")), CodecPeer.number(item, "offset"));
    }

    static Map<String, Object> readOffsetId(String id) throws UnknownHostException {
        MessageId read = MessageDecoder.decodeMessageId(id);
        Map<String, Object> value = new LinkedHashMap<>();
        value.put("host", host(read.getAddress()));
        value.put("offset", read.getOffset());
        return value;
    }
}
