import java.io.IOException;
import java.lang.reflect.Method;
import java.util.Arrays;

/**
 * Runs the main method of another class for as long as somebody holds the other end of stdin.
 *
 * <p>A server of a test has to end with the test, also when that is killed: then the pipe closes.
 */
public final class Tethered {
    private Tethered() {
    }

    public static void main(String[] arguments) throws ReflectiveOperationException {
        Thread tether = new Thread(Tethered::endWithInput, "tether");
        tether.setDaemon(true);
        tether.start();
        Method main = Class.forName(arguments[0]).getMethod("main", String[].class);
        main.invoke(null, (Object) Arrays.copyOfRange(arguments, 1, arguments.length));
    }

    private static void endWithInput() {
        try {
            while (System.in.read() >= 0) {
                Thread.onSpinWait();
            }
        } catch (IOException broken) {
            // the same as its end
        }
        Runtime.getRuntime().halt(0);
    }
}
