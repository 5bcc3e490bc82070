import java.io.File;
import java.io.IOException;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;

/** The classes in RocketMQ's jars on the class path, by full name. */
final class Classes {
    private static final Map<String, String> FILES = scan();
    private static final Map<String, Class<?>> BY_SIMPLE_NAME = new HashMap<>();

    private Classes() {
    }

    private static Map<String, String> scan() {
        Map<String, String> found = new TreeMap<>();
        for (String path : System.getProperty("java.class.path").split(File.pathSeparator)) {
            if (!new File(path).getName().startsWith("rocketmq-")) {
                continue;
            }
            try (JarFile jar = new JarFile(path)) {
                for (Enumeration<JarEntry> entries = jar.entries(); entries.hasMoreElements(); ) {
                    String name = entries.nextElement().getName();
                    if (name.startsWith("org/apache/rocketmq/") && name.endsWith(".class")) {
                        found.put(name.substring(0, name.length() - 6).replace('/', '.'), path);
                    }
                }
            } catch (IOException error) {
                throw new IllegalStateException(path, error);
            }
        }
        return found;
    }

    static Iterable<String> names() {
        return FILES.keySet();
    }

    /** The class of that simple name, or of `Outer.Inner`, rather in a package of the protocol. */
    static Class<?> bySimpleName(String dotted) throws ClassNotFoundException {
        Class<?> known = BY_SIMPLE_NAME.get(dotted);
        if (known == null) {
            known = Class.forName(fullName(dotted));
            BY_SIMPLE_NAME.put(dotted, known);
        }
        return known;
    }

    private static String fullName(String dotted) throws ClassNotFoundException {
        String simple = dotted.replace('.', '$');
        String best = null;
        for (String name : FILES.keySet()) {
            if ((name.endsWith("." + simple) || name.endsWith("$" + simple)) && (best == null || rank(name) < rank(best))) {
                best = name;
            }
        }
        if (best == null) {
            throw new ClassNotFoundException(simple);
        }
        return best;
    }

    /** What travels is in remoting or common; a server may have a class of the same name inside. */
    private static int rank(String name) {
        return name.contains(".remoting.") ? 0 : name.contains(".common.") ? 1 : 2;
    }
}
