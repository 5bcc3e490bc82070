import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.remoting.protocol.LanguageCode;

/** The lists of numbers that RocketMQ declares as constants. */
final class Codes {
    private Codes() {
    }

    static Map<String, Object> all() throws ReflectiveOperationException {
        Map<String, Object> lists = new LinkedHashMap<>();
        for (String name : new String[] {"RequestCode", "RemotingSysResponseCode", "ResponseCode"}) {
            lists.put(name, constants(Classes.bySimpleName(name)));
        }
        Map<String, Object> languages = new LinkedHashMap<>();
        for (LanguageCode language : LanguageCode.values()) {
            languages.put(language.name(), language.getCode());
        }
        lists.put("LanguageCode", languages);
        Map<String, Object> versions = new LinkedHashMap<>();
        for (MQVersion.Version version : MQVersion.Version.values()) {
            versions.put(version.name(), version.ordinal());
        }
        lists.put("MQVersion", versions);
        lists.put("current", MQVersion.CURRENT_VERSION);
        return lists;
    }

    /** The public constants of a class, sets of strings as lists. */
    static Map<String, Object> ofClass(String simple) throws ReflectiveOperationException {
        Map<String, Object> constants = new LinkedHashMap<>();
        for (Field field : Classes.bySimpleName(simple).getFields()) {
            if (Modifier.isStatic(field.getModifiers())) {
                Object value = field.get(null);
                constants.put(field.getName(), value instanceof Set<?> set ? List.copyOf(set) : value);
            }
        }
        return constants;
    }

    private static Map<String, Object> constants(Class<?> type) throws IllegalAccessException {
        Map<String, Object> constants = new LinkedHashMap<>();
        for (Field field : type.getDeclaredFields()) {
            if (Modifier.isStatic(field.getModifiers()) && field.getType() == int.class) {
                field.setAccessible(true);
                constants.put(field.getName(), field.getInt(null));
            }
        }
        return constants;
    }
}
