import java.lang.annotation.Annotation;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.exception.RemotingCommandException;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** The custom headers: what fields they have, and those fields through Java's own codec. */
final class Headers {
    private Headers() {
    }

    static Map<String, Object> list() {
        Map<String, Object> headers = new LinkedHashMap<>();
        for (String name : Classes.names()) {
            if (!name.contains("eader")) {
                continue; // loading every class of a server would take seconds
            }
            Class<?> type;
            try {
                type = Class.forName(name, false, Headers.class.getClassLoader());
            } catch (ClassNotFoundException | LinkageError absent) {
                continue;
            }
            if (CommandCustomHeader.class.isAssignableFrom(type) && !Modifier.isAbstract(type.getModifiers())) {
                Map<String, Object> facts = new LinkedHashMap<>();
                facts.put("code", code(type));
                facts.put("fields", fieldTypes(type));
                headers.put(type.getSimpleName(), facts);
            }
        }
        return headers;
    }

    private static Map<String, Object> fieldTypes(Class<?> type) {
        Map<String, Object> fields = new LinkedHashMap<>();
        for (Field field : fields(type)) {
            Map<String, Object> facts = new LinkedHashMap<>();
            facts.put("type", field.getType().getSimpleName());
            facts.put("required", required(field));
            facts.put("inherited", field.getDeclaringClass() != type);
            fields.put(field.getName(), facts);
        }
        return fields;
    }

    /** The request code in the annotation that 5.x puts on request headers; null without one. */
    private static Object code(Class<?> type) {
        for (Annotation annotation : type.getAnnotations()) {
            if (annotation.annotationType().getSimpleName().equals("RocketMQAction")) {
                try {
                    return annotation.annotationType().getMethod("value").invoke(annotation);
                } catch (ReflectiveOperationException other) {
                    throw new IllegalStateException(other);
                }
            }
        }
        return null;
    }

    private static boolean required(Field field) {
        for (Annotation annotation : field.getAnnotations()) {
            if (annotation.annotationType().getSimpleName().equals("CFNotNull")) {
                return true;
            }
        }
        return false;
    }

    /** The fields that RemotingCommand puts on the wire. */
    static List<Field> fields(Class<?> type) {
        List<Field> fields = new ArrayList<>();
        for (Class<?> each = type; each != Object.class; each = each.getSuperclass()) {
            for (Field field : each.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers()) && !field.getName().startsWith("this")) {
                    field.setAccessible(true);
                    fields.add(field);
                }
            }
        }
        return fields;
    }

    /** A header with generated values: the frame that Java makes of it, and the values. */
    static Map<String, Object> make(Map<String, Object> item) throws Exception {
        Class<?> type = Classes.bySimpleName((String) item.get("class"));
        Filler filler = new Filler(new Random(CodecPeer.number(item, "seed")), true);
        CommandCustomHeader header = filled(type, filler, CodecPeer.map(item.get("choices")));
        RemotingCommand command = RemotingCommand.createRequestCommand(CodecPeer.integer(item, "code"), header);
        Map<String, Object> made = new LinkedHashMap<>();
        made.put("values", values(header));
        made.put("frame", Commands.bytes(command, (String) item.get("type")));
        return made;
    }

    /** Values that the class itself does not refuse. */
    private static CommandCustomHeader filled(Class<?> type, Filler filler, Map<String, Object> choices)
        throws ReflectiveOperationException {
        while (true) {
            CommandCustomHeader header = (CommandCustomHeader) type.getDeclaredConstructor().newInstance();
            for (Field field : fields(type)) {
                if (required(field) || filler.random.nextInt(3) > 0) {
                    List<Object> among = CodecPeer.list(choices.get(field.getName()));
                    Object value = among == null ? filler.some(field.getGenericType())
                        : chosen(among.get(filler.random.nextInt(among.size())), field.getType());
                    field.set(header, value);
                }
            }
            try {
                header.checkFields();
                return header;
            } catch (RemotingCommandException refused) {
                continue; // the next values are others
            }
        }
    }

    private static Object chosen(Object value, Class<?> type) {
        if (value instanceof Long number && (type == int.class || type == Integer.class)) {
            return number.intValue();
        }
        if (type.isEnum()) {
            for (Object constant : type.getEnumConstants()) {
                if (((Enum<?>) constant).name().equals(value)) {
                    return constant;
                }
            }
            throw new IllegalArgumentException(type.getSimpleName() + " has no " + value);
        }
        return value;
    }

    /** What Java reads from the custom header of a frame. */
    @SuppressWarnings("unchecked")
    static Map<String, Object> read(Map<String, Object> item) throws Exception {
        Class<?> type = Classes.bySimpleName((String) item.get("class"));
        List<RemotingCommand> commands = Commands.read(List.of(item.get("frame")));
        Object header = commands.get(0).decodeCommandCustomHeader((Class<? extends CommandCustomHeader>) type);
        return values(header);
    }

    private static Map<String, Object> values(Object header) throws IllegalAccessException {
        Map<String, Object> values = new LinkedHashMap<>();
        for (Field field : fields(header.getClass())) {
            Object value = field.get(header);
            values.put(field.getName(), value == null ? null : value.toString());
        }
        return values;
    }
}
