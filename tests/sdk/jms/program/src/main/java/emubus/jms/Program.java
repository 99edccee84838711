package emubus.jms;

import java.io.BufferedReader;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/**
 * Runs the scenarios; a line for each tells how it ended.
 *
 * <p>Arguments: `qpid` or `library`, and `host:port` of five namespaces: Premium, Premium that verifies nothing,
 * Standard, Premium with partitions, and Premium that is killed. A line without an end asks whoever started the program
 * to do what it names; the next line of its input says that it is done.
 */
public final class Program {
    private static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));

    private Program() {}

    public static void main(String[] arguments) throws Exception {
        List<String> addresses = Arrays.asList(arguments).subList(1, arguments.length);
        Clients clients = new Clients(arguments[0].equals("library"), addresses);
        List<Scenarios> all = List.of(
            new Messages(clients),
            new Subscriptions(clients),
            new Destinations(clients),
            new Settlements(clients),
            new Access(clients),
            new Breaks(clients));
        for (Scenarios scenarios : all) {
            for (Map.Entry<String, Scenarios.Scenario> each : scenarios.all().entrySet()) {
                System.out.println(each.getKey() + ": " + end(scenarios, each.getKey(), each.getValue()));
            }
        }
    }

    /** Have something done to the broker. */
    static void ask(String what) throws IOException {
        System.out.println(what);
        if (INPUT.readLine() == null) {
            throw new EOFException("nobody does it: " + what);
        }
    }

    private static String end(Scenarios scenarios, String name, Scenarios.Scenario scenario) throws Exception {
        try {
            scenario.run(name);
            return "passed";
        } catch (Exception | AssertionError failure) {
            StringWriter trace = new StringWriter();
            failure.printStackTrace(new PrintWriter(trace));
            return trace.toString().replace("\n", "\\n");
        } finally {
            scenarios.closeAll();
        }
    }
}
