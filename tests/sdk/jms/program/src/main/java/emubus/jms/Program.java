package emubus.jms;

import com.azure.servicebus.jms.ServiceBusJmsConnectionFactory;
import com.azure.servicebus.jms.ServiceBusJmsConnectionFactorySettings;
import jakarta.jms.ConnectionFactory;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.Map;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * Runs the scenarios; a line for each tells how it ended.
 *
 * <p>The argument is the URI of a broker for Qpid JMS, or `host:port` for the library of Service Bus.
 */
public final class Program {
    private Program() {}

    public static void main(String[] arguments) throws Exception {
        String address = arguments[0];
        Scenarios scenarios = address.contains("://")
            ? new Scenarios(
                new JmsConnectionFactory(address), new JmsConnectionFactory(address + "&jms.prefetchPolicy.all=0"))
            : new Scenarios(library(address), library(address));
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

    private static ConnectionFactory library(String address) {
        return new ServiceBusJmsConnectionFactory(
            "RootManageSharedAccessKey", "SAS_KEY_VALUE", address, new ServiceBusJmsConnectionFactorySettings());
    }
}
