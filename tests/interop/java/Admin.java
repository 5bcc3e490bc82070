import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/**
 * RocketMQ's mqadmin, many commands in one process: a line of stdin is one command, its words joined
 * by a control character, and another control character on a line of its own ends what it prints. A
 * third one, in place of a command, asks for the list of all commands; a fourth before a command
 * says that it never ends by itself.
 */
public final class Admin {
    private static final String BETWEEN = "\u0001";
    private static final String END = "\u0002";
    private static final String LIST = "\u0003";
    private static final String ENDLESS = "\u0004";
    private static final long A_WHILE = 4_000;
    private static final long GLANCE = 20;

    private Admin() {
    }

    public static void main(String[] arguments) throws IOException, InterruptedException {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        System.setOut(out);
        System.setErr(out);
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (line.equals(LIST)) {
                list(out);
            } else if (line.startsWith(ENDLESS)) {
                run(line.substring(1).split(BETWEEN), A_WHILE);
            } else {
                run(line.split(BETWEEN), Long.MAX_VALUE);
            }
            out.println("\n" + END);
        }
        Runtime.getRuntime().halt(0);
    }

    private static void run(String[] words, long milliseconds) throws InterruptedException {
        Thread runner = new Thread(() -> MQAdminStartup.main0(words, null));
        long start = System.currentTimeMillis();
        runner.start();
        for (runner.join(GLANCE); runner.isAlive(); runner.join(GLANCE)) {
            hurry(runner);
            if (System.currentTimeMillis() - start > milliseconds) {
                runner.interrupt();
            }
        }
    }

    /** Who waits for the last event of a connection that is closed may wait three seconds for it. */
    private static void hurry(Thread runner) {
        for (StackTraceElement frame : runner.getStackTrace()) {
            if (frame.getClassName().endsWith(".ServiceThread")) {
                for (Thread other : Thread.getAllStackTraces().keySet()) {
                    if (other.getName().startsWith("NettyEventExecutor")) {
                        other.interrupt();
                    }
                }
                return;
            }
        }
    }

    /** The names of all commands that mqadmin has registered, a line for each, and what each does. */
    private static void list(PrintStream out) {
        MQAdminStartup.initCommand();
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                try {
                    for (Object each : (List<?>) field.get(null)) {
                        SubCommand command = (SubCommand) each;
                        out.println(command.commandName() + BETWEEN + command.commandDesc());
                    }
                } catch (IllegalAccessException impossible) {
                    throw new IllegalStateException(impossible);
                }
            }
        }
    }
}
