import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * RocketMQ's own codecs behind stdin and stdout, a big batch to each request.
 *
 * <p>A request is an int32 length and a packed map {op, items, ...}; the answer an int32 length and a
 * packed list with one [true, value] or [false, text of the error] for each item.
 */
public final class CodecPeer {
    /** What is done with one item. */
    interface Operation {
        Object apply(Object item) throws Exception;
    }

    private static final Map<String, Operation> OPERATIONS = new LinkedHashMap<>();

    static {
        OPERATIONS.put("commands.decode", item -> Commands.decode(list(item)));
        OPERATIONS.put("commands.encode", item -> Commands.encode(map(item)));
        OPERATIONS.put("headers.list", item -> Headers.list());
        OPERATIONS.put("headers.make", item -> Headers.make(map(item)));
        OPERATIONS.put("headers.read", item -> Headers.read(map(item)));
        OPERATIONS.put("messages.decode", item -> Messages.decode((byte[]) item));
        OPERATIONS.put("messages.encode", item -> Messages.encode(map(item)));
        OPERATIONS.put("batch.decode", item -> Messages.decodeBatch((byte[]) item));
        OPERATIONS.put("batch.encode", item -> Messages.encodeBatch(list(item)));
        OPERATIONS.put("properties.read", item -> Messages.readProperties((String) item));
        OPERATIONS.put("properties.write", item -> Messages.writeProperties(map(item)));
        OPERATIONS.put("compress", item -> Messages.compress(map(item)));
        OPERATIONS.put("decompress", item -> Messages.decompress(map(item)));
        OPERATIONS.put("crc", item -> Messages.crc((byte[]) item));
        OPERATIONS.put("ids.new", item -> Messages.newUniqueId());
        OPERATIONS.put("ids.read", item -> Messages.readUniqueId((String) item));
        OPERATIONS.put("ids.offset", item -> Messages.offsetId(map(item)));
        OPERATIONS.put("ids.offset.read", item -> Messages.readOffsetId((String) item));
        OPERATIONS.put("bodies.make", item -> Bodies.make(map(item)));
        OPERATIONS.put("bodies.compare", item -> Bodies.compare(map(item)));
        OPERATIONS.put("bodies.list", item -> Bodies.list());
        OPERATIONS.put("bodies.echo", item -> Bodies.echo(map(item)));
        OPERATIONS.put("bodies.find", item -> Bodies.find((String) item));
        OPERATIONS.put("codes", item -> Codes.all());
        OPERATIONS.put("constants", item -> Codes.ofClass((String) item));
        OPERATIONS.put("client.send", item -> Clients.send(map(item)));
        OPERATIONS.put("client.pull", item -> Clients.pull(map(item)));
        OPERATIONS.put("traffic.send", item -> Traffic.send(map(item)));
        OPERATIONS.put("consumer.start", item -> Traffic.start(map(item)));
        OPERATIONS.put("consumer.take", item -> Traffic.take(map(item)));
        OPERATIONS.put("consumer.queues", item -> Traffic.queues(map(item)));
        OPERATIONS.put("consumer.stop", item -> Traffic.stop(map(item)));
        OPERATIONS.put("producer.start", item -> Features.start(map(item)));
        OPERATIONS.put("producer.transact", item -> Features.transact(map(item)));
        OPERATIONS.put("producer.send", item -> Features.send(map(item)));
        OPERATIONS.put("producer.recall", item -> Features.recall(map(item)));
        OPERATIONS.put("producer.asked", item -> Features.asked(map(item)));
        OPERATIONS.put("producer.request", item -> Features.request(map(item)));
        OPERATIONS.put("producer.stop", item -> Features.stop(map(item)));
        OPERATIONS.put("answerer.start", item -> Features.answer(map(item)));
        OPERATIONS.put("answerer.stop", item -> Features.unanswer(map(item)));
        OPERATIONS.put("sql.verdicts", item -> Features.verdicts(map(item)));
        OPERATIONS.put("trace.read", item -> Features.readTrace((String) item));
        OPERATIONS.put("call", item -> Statics.call(map(item)));
        OPERATIONS.put("acl.sign", item -> Statics.sign(map(item)));
        OPERATIONS.put("topics.text", item -> Bodies.topicText((String) item));
        OPERATIONS.put("registration.read", item -> Bodies.readRegistration(map(item)));
        OPERATIONS.put("registration.write", item -> Bodies.writeRegistration(map(item)));
    }

    private CodecPeer() {
    }

    public static void main(String[] arguments) throws IOException {
        PrintStream answers = System.out;
        System.setOut(System.err); // a library that prints must not break the answers
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(answers, 1 << 16));
        while (true) {
            byte[] request;
            try {
                request = new byte[in.readInt()];
            } catch (EOFException end) {
                Runtime.getRuntime().halt(0); // clients have threads of their own, and nobody waits for them
                return;
            }
            in.readFully(request);
            byte[] answer = Packed.write(answer(request));
            out.writeInt(answer.length);
            out.write(answer);
            out.flush();
        }
    }

    private static List<Object> answer(byte[] request) throws IOException {
        DataInputStream in = new DataInputStream(new ByteArrayInputStream(request));
        Map<String, Object> asked = map(Packed.read(in));
        Operation operation = OPERATIONS.get((String) asked.get("op"));
        List<Object> results = new ArrayList<>();
        for (Object item : list(asked.get("items"))) {
            results.add(result(operation, item));
        }
        return results;
    }

    private static List<Object> result(Operation operation, Object item) {
        List<Object> result = new ArrayList<>(2);
        try {
            Object value = operation.apply(item);
            result.add(true);
            result.add(value);
        } catch (Throwable error) { // whatever it is, the test has to see it
            result.add(false);
            result.add(text(error));
        }
        return result;
    }

    static String text(Throwable error) {
        StringBuilder text = new StringBuilder(error.toString());
        StackTraceElement[] trace = error.getStackTrace();
        for (int i = 0; i < Math.min(4, trace.length); i++) {
            text.append(" < ").append(trace[i]);
        }
        return error.getCause() == null ? text.toString() : text + " <- " + text(error.getCause());
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> map(Object value) {
        return (Map<String, Object>) value;
    }

    @SuppressWarnings("unchecked")
    static List<Object> list(Object value) {
        return (List<Object>) value;
    }

    static int integer(Map<String, Object> map, String name) {
        return (int) number(map, name);
    }

    static long number(Map<String, Object> map, String name) {
        Object value = map.get(name);
        return value == null ? 0 : (Long) value;
    }
}
