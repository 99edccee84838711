package emubus.jms;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/**
 * Runs the scenarios; a line for each tells how it ended.
 *
 * <p>Arguments: `qpid` or `library`, and `host:port` of four namespaces: Premium, Premium that verifies nothing,
 * Standard, and Premium with partitions.
 */
public final class Program {
    private Program() {}

    public static void main(String[] arguments) throws Exception {
        List<String> addresses = Arrays.asList(arguments).subList(1, arguments.length);
        Clients clients = new Clients(arguments[0].equals("library"), addresses);
        List<Scenarios> all = List.of(
            new Messages(clients),
            new Subscriptions(clients),
            new Destinations(clients),
            new Settlements(clients),
            new Access(clients));
        for (Scenarios scenarios : all) {
            for (Map.Entry<String, Scenarios.Scenario> each : scenarios.all().entrySet()) {
                System.out.println(each.getKey() + ": " + end(scenarios, each.getKey(), each.getValue()));
            }
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
