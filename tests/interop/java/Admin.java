import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * RocketMQ's mqadmin, many commands in one process: a line of stdin is one command, its words joined
 * by a control character, and another control character on a line of its own ends what it prints.
 */
public final class Admin {
    private static final String BETWEEN = "\u0001";
    private static final String END = "\u0002";

    private Admin() {
    }

    public static void main(String[] arguments) throws IOException {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        System.setOut(out);
        System.setErr(out);
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            MQAdminStartup.main0(line.split(BETWEEN), null);
            out.println("\n" + END);
        }
        Runtime.getRuntime().halt(0);
    }
}
