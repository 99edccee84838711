package emubus.jms;

import jakarta.jms.*;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/** Named scenarios of JMS 2.0, each with a queue and a topic of its own; they run one after the other. */
abstract class Scenarios {
    static final long WAIT_MS = 20_000;
    static final long NOTHING_MS = 50;

    /** One scenario; `name` is unique, so that its queue and topic are its own. */
    interface Scenario {
        void run(String name) throws Exception;
    }

    final Clients clients;
    private final List<Connection> opened = new ArrayList<>();

    Scenarios(Clients clients) {
        this.clients = clients;
    }

    /** The scenarios by name, in their order. */
    abstract Map<String, Scenario> all();

    void closeAll() throws JMSException {
        for (Connection connection : opened) {
            connection.close();
        }
        opened.clear();
    }

    Connection connection(String clientId) throws JMSException {
        return connection(clients.usual(), clientId);
    }

    Connection connection(ConnectionFactory factory, String clientId) throws JMSException {
        Connection connection = factory.createConnection();
        opened.add(connection);
        if (clientId != null) {
            connection.setClientID(clientId);
        }
        connection.start();
        return connection;
    }

    Session session(String clientId) throws JMSException {
        return connection(clientId).createSession(false, Session.AUTO_ACKNOWLEDGE);
    }

    static String text(MessageConsumer consumer) throws JMSException {
        Message message = consumer.receive(WAIT_MS);
        if (message == null) {
            throw new AssertionError("no message came");
        }
        return ((TextMessage) message).getText();
    }

    static int count(QueueBrowser browser) throws JMSException {
        int count = 0;
        for (Enumeration<?> each = browser.getEnumeration(); each.hasMoreElements(); each.nextElement()) {
            count++;
        }
        browser.close();
        return count;
    }

    static void expectNothing(MessageConsumer consumer) throws JMSException {
        Message message = consumer.receive(NOTHING_MS);
        if (message != null) {
            throw new AssertionError("a message came: " + message);
        }
    }

    static void expect(Object expected, Object found) {
        if (!Objects.equals(expected, found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }
}
