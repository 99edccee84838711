package bench;

import java.nio.file.Path;
import java.util.concurrent.CountDownLatch;
import org.apache.activemq.artemis.api.core.QueueConfiguration;
import org.apache.activemq.artemis.api.core.RoutingType;
import org.apache.activemq.artemis.core.config.Configuration;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.server.JournalType;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;
import org.apache.activemq.artemis.nativo.jlibaio.LibaioContext;

/**
 * An Artemis broker with one durable queue, named "queue", for AMQP clients on a port of the loopback interface.
 *
 * <p>Its settings are the defaults; the journal is that of libaio where it can be loaded, else that of Java's NIO. Both
 * write a message to the disk before it is accepted. Prints "ready" and the kind of journal; runs until it is terminated.
 */
public final class Main {
    private static final String QUEUE = "queue";

    private Main() {}

    /** Arguments: the port, and the folder for the data. */
    public static void main(String[] arguments) throws Exception {
        JournalType journal = LibaioContext.isLoaded() ? JournalType.ASYNCIO : JournalType.NIO;
        EmbeddedActiveMQ server = new EmbeddedActiveMQ();
        server.setConfiguration(configuration(arguments[0], Path.of(arguments[1]), journal));
        server.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(server)));
        System.out.println("ready " + (journal == JournalType.ASYNCIO ? "AIO" : "NIO"));
        new CountDownLatch(1).await();
    }

    private static Configuration configuration(String port, Path folder, JournalType journal) throws Exception {
        return new ConfigurationImpl()
                .setPersistenceEnabled(true)
                .setSecurityEnabled(false)
                .setJournalType(journal)
                .setJournalDirectory(folder.resolve("journal").toString())
                .setBindingsDirectory(folder.resolve("bindings").toString())
                .setPagingDirectory(folder.resolve("paging").toString())
                .setLargeMessagesDirectory(folder.resolve("large").toString())
                .addAcceptorConfiguration("amqp", "tcp://127.0.0.1:" + port + "?protocols=AMQP")
                .addQueueConfiguration(
                        QueueConfiguration.of(QUEUE)
                                .setAddress(QUEUE)
                                .setRoutingType(RoutingType.ANYCAST)
                                .setDurable(true));
    }

    private static void stop(EmbeddedActiveMQ server) {
        try {
            server.stop();
        } catch (Exception error) {
            System.err.println("Artemis did not stop in good order: " + error);
        }
    }
}
