import java.lang.annotation.Annotation;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.remoting.CommandCustomHeader;
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
                headers.put(type.getSimpleName(), fieldTypes(type));
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
        CommandCustomHeader header = (CommandCustomHeader) type.getDeclaredConstructor().newInstance();
        Filler filler = new Filler(new Random(CodecPeer.number(item, "seed")));
        boolean all = Boolean.TRUE.equals(item.get("all"));
        for (Field field : fields(type)) {
            if (all || required(field) || filler.random.nextInt(3) > 0) {
                field.set(header, filler.some(field.getGenericType()));
            }
        }
        RemotingCommand command = RemotingCommand.createRequestCommand(CodecPeer.integer(item, "code"), header);
        Map<String, Object> made = new LinkedHashMap<>();
        made.put("values", values(header));
        made.put("frame", Commands.bytes(command, (String) item.get("type")));
        return made;
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
