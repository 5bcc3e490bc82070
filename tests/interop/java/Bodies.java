import java.lang.reflect.Array;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/** JSON bodies, made by and given back to RocketMQ's own serializer, and compared field by field. */
final class Bodies {
    private Bodies() {
    }

    static String find(String simple) throws ClassNotFoundException {
        return Classes.bySimpleName(simple).getName();
    }

    /** The names of all classes that are sent as JSON bodies. */
    static List<Object> list() {
        List<Object> names = new ArrayList<>();
        for (String name : Classes.names()) {
            if (!name.contains(".protocol.")) {
                continue;
            }
            try {
                Class<?> type = Class.forName(name, false, Bodies.class.getClassLoader());
                if (RemotingSerializable.class.isAssignableFrom(type) && !Modifier.isAbstract(type.getModifiers())) {
                    names.add(type.getSimpleName());
                }
            } catch (ClassNotFoundException | LinkageError absent) {
                continue; // needs what is not on the class path, so it cannot be sent either
            }
        }
        return names;
    }

    /** Read as that class and written again. */
    static byte[] echo(Map<String, Object> item) throws ReflectiveOperationException {
        Class<?> type = Classes.bySimpleName((String) item.get("class"));
        return RemotingSerializable.encode((Object) RemotingSerializable.decode((byte[]) item.get("body"), type));
    }

    static byte[] make(Map<String, Object> item) throws ReflectiveOperationException {
        Class<?> type = Classes.bySimpleName((String) item.get("class"));
        boolean complete = Boolean.TRUE.equals(item.get("complete"));
        Object body = new Filler(new Random(CodecPeer.number(item, "seed")), complete).bean(type);
        if (body == null) {
            throw new IllegalStateException("no " + type.getName() + " can be made");
        }
        return RemotingSerializable.encode(body);
    }

    /** Where two JSON texts differ when read as that class: [path, one, other] each; empty when nowhere. */
    static List<Object> compare(Map<String, Object> item) throws ReflectiveOperationException {
        Class<?> type = Classes.bySimpleName((String) item.get("class"));
        Object one = RemotingSerializable.decode((byte[]) item.get("one"), type);
        Object other = RemotingSerializable.decode((byte[]) item.get("other"), type);
        List<Object> differences = new ArrayList<>();
        differ("", tree(one), tree(other), differences);
        return differences;
    }

    private static void differ(String path, Object one, Object other, List<Object> differences) {
        if (one instanceof Map<?, ?> first && other instanceof Map<?, ?> second
            && first.keySet().equals(second.keySet())) {
            first.forEach((key, value) -> differ(path + "." + key, value, second.get(key), differences));
        } else if (one instanceof List<?> first && other instanceof List<?> second && first.size() == second.size()) {
            for (int i = 0; i < first.size(); i++) {
                differ(path + "[" + i + "]", first.get(i), second.get(i), differences);
            }
        } else if (one == null ? other != null : !one.equals(other)) {
            differences.add(Arrays.asList(path, String.valueOf(one), String.valueOf(other)));
        }
    }

    /** An object as maps, lists and plain values, so that any two can be compared. */
    private static Object tree(Object value) throws ReflectiveOperationException {
        if (value == null || value instanceof String || value instanceof Boolean || value instanceof Enum) {
            return value == null ? null : value.toString();
        } else if (value instanceof Number || value instanceof AtomicBoolean || value instanceof BitSet) {
            return value.toString();
        } else if (value.getClass().isArray()) {
            List<Object> items = new ArrayList<>();
            for (int i = 0; i < Array.getLength(value); i++) {
                items.add(Array.get(value, i));
            }
            return items.toString();
        } else if (value instanceof Map<?, ?> map) {
            Map<String, Object> entries = new TreeMap<>();
            for (Map.Entry<?, ?> entry : map.entrySet()) {
                entries.put(String.valueOf(tree(entry.getKey())), tree(entry.getValue()));
            }
            return entries;
        } else if (value instanceof Collection<?> items) {
            List<Object> trees = new ArrayList<>();
            for (Object item : items) {
                trees.add(tree(item));
            }
            if (items instanceof Set) {
                trees.sort((a, b) -> String.valueOf(a).compareTo(String.valueOf(b)));
            }
            return trees;
        } else if (!value.getClass().getName().startsWith("org.apache.rocketmq.")) {
            return value.getClass().getName(); // nothing that travels
        }
        return fields(value);
    }

    private static Map<String, Object> fields(Object value) throws ReflectiveOperationException {
        Map<String, Object> entries = new LinkedHashMap<>();
        for (Class<?> each = value.getClass(); each != Object.class; each = each.getSuperclass()) {
            for (Field field : each.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers()) && !Modifier.isTransient(field.getModifiers())) {
                    field.setAccessible(true);
                    entries.put(field.getName(), tree(field.get(value)));
                }
            }
        }
        return entries;
    }

    /** TopicConfig's own text form, read and written again. */
    static String topicText(String text) {
        TopicConfig config = new TopicConfig();
        if (!config.decode(text)) {
            throw new IllegalArgumentException("TopicConfig cannot read " + text);
        }
        return config.encode();
    }

    /** A registration body in its deflated binary form, read by Java and given back as JSON. */
    static byte[] readRegistration(Map<String, Object> item) throws ReflectiveOperationException {
        Class<?> type = Classes.bySimpleName("RegisterBrokerBody");
        for (Method method : type.getMethods()) {
            if (method.getName().equals("decode") && method.getParameterCount() == 3) {
                Object version = method.getParameterTypes()[2].getEnumConstants()[CodecPeer.integer(item, "version")];
                return RemotingSerializable.encode(unwrapped(method, null, item.get("body"), true, version));
            }
            if (method.getName().equals("decode") && method.getParameterCount() == 2
                && method.getParameterTypes()[1] == boolean.class) {
                return RemotingSerializable.encode(unwrapped(method, null, item.get("body"), true));
            }
        }
        throw new NoSuchMethodException("RegisterBrokerBody.decode");
    }

    static byte[] writeRegistration(Map<String, Object> item) throws ReflectiveOperationException {
        Class<?> type = Classes.bySimpleName("RegisterBrokerBody");
        Object body = RemotingSerializable.decode((byte[]) item.get("body"), type);
        Method encode = type.getMethod("encode", boolean.class);
        return (byte[]) unwrapped(encode, body, Boolean.TRUE.equals(item.get("compress")));
    }

    private static Object unwrapped(Method method, Object on, Object... arguments) throws ReflectiveOperationException {
        try {
            return method.invoke(on, arguments);
        } catch (InvocationTargetException wrapped) {
            throw new IllegalStateException(wrapped.getCause());
        }
    }
}
