import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/** Generated values for whatever type a field declares, odd ones among them. */
final class Filler {
    private static final int DEEPEST = 6;
    private static final String[] PIECES = {
        "a", "Z", "0", "-", "_", "%", "/", "\\", "\"", "'", "{", "}", ":", ",", " ", "\t", "\n", "é", "ß",
        "日本", "😀", "\u0001", "\u0002", "\u001f", "\u007f", "\u2028", "\uffff", "null",
    };
    private static final long[] EDGES = {0, 1, -1, 127, 128, 32767, 32768, 2147483647, -2147483648};

    final Random random;
    private final boolean complete;
    private int depth;

    /** Unless complete, some fields are left as a fresh object has them, null mostly. */
    Filler(Random random, boolean complete) {
        this.random = random;
        this.complete = complete;
    }

    /** A value of that type; null where nothing is known about the type. */
    Object some(Type type) throws ReflectiveOperationException {
        if (type instanceof ParameterizedType generic) {
            return container((Class<?>) generic.getRawType(), generic.getActualTypeArguments());
        }
        return type instanceof Class<?> plain ? simple(plain) : null;
    }

    private Object simple(Class<?> type) throws ReflectiveOperationException {
        if (type == String.class) {
            return text();
        } else if (type == int.class || type == Integer.class) {
            return (int) integer();
        } else if (type == long.class || type == Long.class) {
            return random.nextBoolean() ? integer() : random.nextLong();
        } else if (type == boolean.class || type == Boolean.class) {
            return random.nextBoolean();
        } else if (type == double.class || type == Double.class) {
            return random.nextInt(5) == 0 ? 0.0 : random.nextGaussian() * Math.pow(10, random.nextInt(12) - 4);
        } else if (type == short.class || type == Short.class) {
            return (short) integer();
        } else if (type == byte.class || type == Byte.class) {
            return (byte) integer();
        } else if (type == AtomicLong.class) {
            return new AtomicLong(integer());
        } else if (type == AtomicInteger.class) {
            return new AtomicInteger((int) integer());
        } else if (type == BitSet.class) {
            return BitSet.valueOf(new long[] {random.nextLong(), random.nextInt(512)});
        } else if (type == long[].class) {
            return random.longs(random.nextInt(5)).toArray();
        } else if (type == byte[].class) {
            byte[] bytes = new byte[random.nextInt(40)];
            random.nextBytes(bytes);
            return bytes;
        } else if (type.isEnum()) {
            Object[] constants = type.getEnumConstants();
            return constants[random.nextInt(constants.length)];
        }
        return bean(type);
    }

    /** An object with all its own fields filled; null for what cannot be made or lies too deep. */
    Object bean(Class<?> type) throws ReflectiveOperationException {
        boolean ours = type.getName().startsWith("org.apache.rocketmq.");
        if (!ours || type.isInterface() || Modifier.isAbstract(type.getModifiers()) || depth > DEEPEST) {
            return null;
        }
        depth++;
        try {
            Object bean = fresh(type);
            for (Class<?> each = type; each != Object.class; each = each.getSuperclass()) {
                for (Field field : each.getDeclaredFields()) {
                    fill(bean, field);
                }
            }
            return bean;
        } finally {
            depth--;
        }
    }

    private Object fresh(Class<?> type) throws ReflectiveOperationException {
        Constructor<?> least = null;
        for (Constructor<?> each : type.getDeclaredConstructors()) {
            boolean copies = Arrays.asList(each.getParameterTypes()).contains(type);
            if (!copies && (least == null || each.getParameterCount() < least.getParameterCount())) {
                least = each;
            }
        }
        Type[] wanted = least.getGenericParameterTypes();
        Object[] arguments = new Object[wanted.length];
        for (int i = 0; i < wanted.length; i++) {
            arguments[i] = some(wanted[i]);
        }
        least.setAccessible(true);
        return least.newInstance(arguments);
    }

    private void fill(Object bean, Field field) throws ReflectiveOperationException {
        int modifiers = field.getModifiers();
        String of = field.getDeclaringClass().getSimpleName(); // what sets compare is never partial
        boolean part = of.equals("MessageQueue") || of.equals("MessageQueueAssignment");
        boolean left = !complete && !part && random.nextInt(8) == 0;
        if (Modifier.isStatic(modifiers) || Modifier.isTransient(modifiers) || left) {
            return;
        }
        Object value = some(field.getGenericType());
        if (value == null) {
            return;
        }
        field.setAccessible(true);
        if (Modifier.isFinal(modifiers)) {
            refill(field.get(bean), value);
        } else {
            field.set(bean, value);
        }
    }

    /** Final containers stay the object they are and take the content. */
    @SuppressWarnings("unchecked")
    private static void refill(Object old, Object value) {
        if (old instanceof Map<?, ?> map && value instanceof Map<?, ?> content) {
            ((Map<Object, Object>) map).putAll(content);
        } else if (old instanceof Collection<?> items && value instanceof Collection<?> content) {
            ((Collection<Object>) items).addAll(content);
        }
    }

    private Object container(Class<?> raw, Type[] of) throws ReflectiveOperationException {
        if (Map.class.isAssignableFrom(raw)) {
            Map<Object, Object> map = new ConcurrentHashMap<>();
            for (int i = random.nextInt(depth > 2 ? 2 : 4); i > 0; i--) {
                Object key = of[0] == String.class ? name() : some(of[0]);
                Object value = some(of[1]);
                if (key != null && value != null) {
                    map.put(key, value);
                }
            }
            return raw.isAssignableFrom(ConcurrentHashMap.class) ? map
                : SortedMap.class.isAssignableFrom(raw) ? new TreeMap<>(map) : new HashMap<>(map);
        }
        if (Collection.class.isAssignableFrom(raw)) {
            List<Object> items = new ArrayList<>();
            for (int i = random.nextInt(depth > 2 ? 2 : 4); i > 0; i--) {
                Object item = some(of[0]);
                if (item != null) {
                    items.add(item);
                }
            }
            return raw.isAssignableFrom(ArrayList.class) ? items
                : raw.isAssignableFrom(HashSet.class) ? new HashSet<>(items)
                : Set.class.isAssignableFrom(raw) ? new TreeSet<>(items) : null;
        }
        return null;
    }

    private long integer() {
        return switch (random.nextInt(4)) {
            case 0 -> EDGES[random.nextInt(EDGES.length)];
            case 1 -> random.nextInt();
            default -> random.nextInt(1000);
        };
    }

    /**
     * Text for the key of a map: fastjson2 refuses names, its own writing included, that hold both an
     * escape and a character beyond 16 bits.
     */
    private String name() {
        return text().replace("😀", "");
    }

    String text() {
        StringBuilder text = new StringBuilder();
        do {
            text.append(PIECES[random.nextInt(PIECES.length)]);
        } while (random.nextInt(4) > 0);
        return text.toString();
    }
}
