import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Plain values as bytes, one tag byte each, so that no JSON library stands between what is compared.
 *
 * <p>null n, true t, false f, integer i (int64), double d, string s, bytes b (int32 length), list l,
 * map m (int32 count). The twin is peer.py.
 */
final class Packed {
    private Packed() {
    }

    static byte[] write(Object value) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream(1 << 16);
        write(new DataOutputStream(bytes), value);
        return bytes.toByteArray();
    }

    private static void write(DataOutputStream out, Object value) throws IOException {
        if (value == null) {
            out.writeByte('n');
        } else if (value instanceof Boolean flag) {
            out.writeByte(flag ? 't' : 'f');
        } else if (value instanceof Double || value instanceof Float) {
            out.writeByte('d');
            out.writeDouble(((Number) value).doubleValue());
        } else if (value instanceof Number number) {
            out.writeByte('i');
            out.writeLong(number.longValue());
        } else if (value instanceof byte[] bytes) {
            sized(out, 'b', bytes);
        } else if (value instanceof List<?> items) {
            out.writeByte('l');
            out.writeInt(items.size());
            for (Object item : items) {
                write(out, item);
            }
        } else if (value instanceof Map<?, ?> map) {
            out.writeByte('m');
            out.writeInt(map.size());
            for (Map.Entry<?, ?> entry : map.entrySet()) {
                write(out, entry.getKey());
                write(out, entry.getValue());
            }
        } else {
            sized(out, 's', value.toString().getBytes(StandardCharsets.UTF_8));
        }
    }

    private static void sized(DataOutputStream out, char tag, byte[] bytes) throws IOException {
        out.writeByte(tag);
        out.writeInt(bytes.length);
        out.write(bytes);
    }

    static Object read(DataInputStream in) throws IOException {
        int tag = in.readUnsignedByte();
        switch (tag) {
            case 'n':
                return null;
            case 't':
                return true;
            case 'f':
                return false;
            case 'i':
                return in.readLong();
            case 'd':
                return in.readDouble();
            case 's':
                return new String(exactly(in), StandardCharsets.UTF_8);
            case 'b':
                return exactly(in);
            case 'l':
                return list(in);
            case 'm':
                return map(in);
            default:
                throw new IOException("no value begins with tag " + tag);
        }
    }

    private static byte[] exactly(DataInputStream in) throws IOException {
        byte[] bytes = new byte[in.readInt()];
        in.readFully(bytes);
        return bytes;
    }

    private static List<Object> list(DataInputStream in) throws IOException {
        int count = in.readInt();
        List<Object> items = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            items.add(read(in));
        }
        return items;
    }

    private static Map<Object, Object> map(DataInputStream in) throws IOException {
        int count = in.readInt();
        Map<Object, Object> map = new LinkedHashMap<>(count * 2);
        for (int i = 0; i < count; i++) {
            Object key = read(in);
            map.put(key, read(in));
        }
        return map;
    }
}
