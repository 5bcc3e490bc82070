import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** RocketMQ's helpers that turn values into texts: static methods by their names, and signatures. */
final class Statics {
    private Statics() {
    }

    /** {class, method, args}: what the method returns; a StringBuilder argument's content if nothing. */
    static Object call(Map<String, Object> item) throws ReflectiveOperationException {
        List<Object> given = CodecPeer.list(item.get("args"));
        Class<?> type = Classes.bySimpleName((String) item.get("class"));
        for (Method method : type.getDeclaredMethods()) {
            boolean named = method.getName().equals(item.get("method")) && Modifier.isStatic(method.getModifiers());
            if (named && method.getParameterCount() == given.size()) {
                Object[] arguments = new Object[given.size()];
                for (int i = 0; i < arguments.length; i++) {
                    arguments[i] = fitting(given.get(i), method.getParameterTypes()[i]);
                }
                return plain(invoked(method, arguments), arguments);
            }
        }
        throw new NoSuchMethodException(item.get("class") + "." + item.get("method"));
    }

    private static Object invoked(Method method, Object[] arguments) throws ReflectiveOperationException {
        try {
            method.setAccessible(true);
            return method.invoke(null, arguments);
        } catch (InvocationTargetException wrapped) {
            throw new IllegalStateException(wrapped.getCause());
        }
    }

    private static Object fitting(Object value, Class<?> type) {
        if (type == StringBuilder.class) {
            return new StringBuilder((String) value);
        }
        return value instanceof Long number && type == int.class ? (Object) number.intValue() : value;
    }

    private static Object plain(Object result, Object[] arguments) {
        if (result == null && arguments.length > 0 && arguments[0] instanceof StringBuilder) {
            return arguments[0].toString();
        }
        if (result instanceof Object[] items) {
            return new ArrayList<>(List.of(items));
        }
        boolean known = result == null || result instanceof String || result instanceof Number || result instanceof Map
            || result instanceof List || result instanceof Boolean || result instanceof byte[];
        return known ? result : getters(result);
    }

    private static Map<String, Object> getters(Object value) {
        Map<String, Object> found = new LinkedHashMap<>();
        for (Method method : value.getClass().getMethods()) {
            String name = method.getName();
            if (name.startsWith("get") && method.getParameterCount() == 0 && method.getReturnType() == String.class) {
                try {
                    found.put(name.substring(3), method.invoke(value));
                } catch (ReflectiveOperationException refused) {
                    throw new IllegalStateException(refused);
                }
            }
        }
        return found;
    }

    /** {fields, body, access_key, secret_key, token}: the fields that the client's hook makes of it. */
    static Map<String, String> sign(Map<String, Object> item) {
        RemotingCommand command = RemotingCommand.createRequestCommand(10, null);
        HashMap<String, String> fields = new HashMap<>();
        CodecPeer.map(item.get("fields")).forEach((name, value) -> fields.put(name, (String) value));
        command.setExtFields(fields);
        command.setBody((byte[]) item.get("body"));
        String token = (String) item.get("token");
        String key = (String) item.get("access_key");
        String secret = (String) item.get("secret_key");
        new AclClientRPCHook(token == null ? new SessionCredentials(key, secret) : new SessionCredentials(key, secret, token))
            .doBeforeRequest("127.0.0.1:1", command);
        return command.getExtFields();
    }
}
