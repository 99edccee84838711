package emubus.jms;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.Map;
import org.apache.qpid.jms.JmsConnectionFactory;

/** Runs the scenarios against the broker at the URI of the first argument; a line for each tells how it ended. */
public final class Program {
    private Program() {}

    public static void main(String[] arguments) throws Exception {
        Scenarios scenarios = new Scenarios(new JmsConnectionFactory(arguments[0]));
        for (Map.Entry<String, Scenarios.Scenario> each : scenarios.all().entrySet()) {
            String end = "passed";
            try {
                each.getValue().run(each.getKey());
            } catch (Exception | AssertionError failure) {
                StringWriter trace = new StringWriter();
                failure.printStackTrace(new PrintWriter(trace));
                end = trace.toString().replace("\n", "\\n");
            }
            scenarios.closeAll();
            System.out.println(each.getKey() + ": " + end);
        }
    }
}
