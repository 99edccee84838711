package emubus.jms;

import jakarta.jms.*;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeSet;

/** Named scenarios of JMS 2.0, each with queues and topics of its own; they run one after the other. */
final class Scenarios {
    private static final long WAIT_MS = 20_000;
    private static final long NOTHING_MS = 50;

    /** One scenario; `name` is unique, so that its queue and topic are its own. */
    interface Scenario {
        void run(String name) throws Exception;
    }

    private final ConnectionFactory factory;
    private final ConnectionFactory lazy;
    private final List<Connection> opened = new ArrayList<>();

    /** `lazy` makes connections that fetch no message before it is asked for. */
    Scenarios(ConnectionFactory factory, ConnectionFactory lazy) {
        this.factory = factory;
        this.lazy = lazy;
    }

    Map<String, Scenario> all() {
        Map<String, Scenario> found = new LinkedHashMap<>();
        found.put("queue-selector", this::queueSelector);
        found.put("two-selectors", this::twoSelectors);
        found.put("selector-and-redelivery", this::selectorAndRedelivery);
        found.put("bad-selector", this::badSelector);
        found.put("browser", this::browser);
        found.put("message-types", this::messageTypes);
        found.put("headers", this::headers);
        found.put("anonymous-producer", this::anonymousProducer);
        found.put("delivery-delay", this::deliveryDelay);
        found.put("unshared-non-durable", this::unsharedNonDurable);
        found.put("durable-resumes", this::durableResumes);
        found.put("durable-is-exclusive", this::durableIsExclusive);
        found.put("durable-selector", this::durableSelector);
        found.put("shared-durable", this::sharedDurable);
        found.put("shared-non-durable", this::sharedNonDurable);
        found.put("unsubscribe", this::unsubscribe);
        found.put("no-local", this::noLocal);
        found.put("request-reply", this::requestReply);
        found.put("temporary-topic", this::temporaryTopic);
        found.put("transaction", this::transaction);
        found.put("dead-letter", this::deadLetter);
        return found;
    }

    void closeAll() throws JMSException {
        for (Connection connection : opened) {
            connection.close();
        }
        opened.clear();
    }

    // ---- selectors

    private void queueSelector(String name) throws Exception {
        Session session = session(null);
        Queue queue = session.createQueue(name);
        MessageProducer producer = session.createProducer(queue);
        for (int number = 0; number < 10; number++) {
            TextMessage message = session.createTextMessage("m" + number);
            message.setJMSCorrelationID(Integer.toString(number));
            message.setStringProperty("prop1", number == 5 ? "test" : "other");
            producer.send(message);
        }
        MessageConsumer consumer =
            session.createConsumer(queue, "JMSCorrelationID='5' AND prop1='test' OR prop2='test'");
        expect("m5", text(consumer));
        expectNothing(consumer);
        expect(9, count(session.createBrowser(queue)));
    }

    private void twoSelectors(String name) throws Exception {
        Session session = session(null);
        Queue queue = session.createQueue(name);
        MessageConsumer one = session.createConsumer(queue, "k = 1");
        MessageConsumer two = session.createConsumer(queue, "k = 2");
        MessageProducer producer = session.createProducer(queue);
        for (int number = 0; number < 40; number++) {
            TextMessage message = session.createTextMessage(Integer.toString(number));
            message.setIntProperty("k", 1 + number % 2);
            producer.send(message);
        }
        for (int number = 0; number < 40; number += 2) {
            expect(Integer.toString(number), text(one));
            expect(Integer.toString(number + 1), text(two));
        }
    }

    private void selectorAndRedelivery(String name) throws Exception {
        // Lazy: a consumer with credit would get the message again before its session has closed.
        Connection connection = connection(lazy, null);
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        Queue queue = session.createQueue(name);
        TextMessage sent = session.createTextMessage("again");
        sent.setBooleanProperty("urgent", true);
        session.createProducer(queue).send(sent);
        expect(1, session.createConsumer(queue, "urgent").receive(WAIT_MS).getIntProperty("JMSXDeliveryCount"));
        session.close();
        MessageConsumer consumer = session(null).createConsumer(queue, "urgent AND JMSXDeliveryCount = 2");
        Message again = consumer.receive(WAIT_MS);
        expect(true, again.getJMSRedelivered());
        expect(2, again.getIntProperty("JMSXDeliveryCount"));
    }

    private void badSelector(String name) throws Exception {
        Session session = session(null);
        try {
            session.createConsumer(session.createQueue(name), "a = = 1");
            throw new AssertionError("a bad selector was taken");
        } catch (InvalidSelectorException expected) {
            session.createConsumer(session.createQueue(name), "a = 1").close();
        }
    }

    private void browser(String name) throws Exception {
        Session session = session(null);
        Queue queue = session.createQueue(name);
        MessageProducer producer = session.createProducer(queue);
        for (int number = 0; number < 20; number++) {
            TextMessage message = session.createTextMessage(Integer.toString(number));
            message.setIntProperty("n", number);
            producer.send(message);
        }
        expect(20, count(session.createBrowser(queue)));
        expect(5, count(session.createBrowser(queue, "n BETWEEN 3 AND 7")));
        expect("0", text(session.createConsumer(queue)));
    }

    // ---- messages

    private void messageTypes(String name) throws Exception {
        Session session = session(null);
        Queue queue = session.createQueue(name);
        MessageProducer producer = session.createProducer(queue);
        MessageConsumer consumer = session.createConsumer(queue);
        producer.send(session.createMessage());
        expect(false, consumer.receive(WAIT_MS) instanceof TextMessage);
        producer.send(session.createTextMessage(null));
        expect(null, text(consumer));
        producer.send(session.createObjectMessage(new ArrayList<>(List.of("a", 1))));
        expect(List.of("a", 1), ((ObjectMessage) consumer.receive(WAIT_MS)).getObject());
        BytesMessage bytes = session.createBytesMessage();
        bytes.writeBytes(new byte[] {1, 2, 3});
        producer.send(bytes);
        expect(3L, ((BytesMessage) consumer.receive(WAIT_MS)).getBodyLength());
        MapMessage map = session.createMapMessage();
        map.setLong("long", 5);
        map.setString("null", null);
        map.setChar("char", 'c');
        producer.send(map);
        MapMessage received = (MapMessage) consumer.receive(WAIT_MS);
        expect(5L, received.getLong("long"));
        expect('c', received.getChar("char"));
        expect(true, received.itemExists("null"));
        StreamMessage stream = session.createStreamMessage();
        stream.writeDouble(2.5);
        stream.writeBoolean(true);
        producer.send(stream);
        StreamMessage read = (StreamMessage) consumer.receive(WAIT_MS);
        expect(2.5, read.readDouble());
        expect(true, read.readBoolean());
    }

    private void headers(String name) throws Exception {
        Session session = session(null);
        Queue queue = session.createQueue(name);
        TextMessage sent = session.createTextMessage("m");
        sent.setJMSCorrelationID("corr");
        sent.setJMSType("kind");
        sent.setJMSReplyTo(session.createTopic("answers"));
        sent.setStringProperty("JMSXGroupID", "group");
        MessageProducer producer = session.createProducer(queue);
        producer.setPriority(9);
        producer.send(sent);
        String selector = "JMSType = 'kind' AND JMSPriority = 9 AND JMSXGroupID = 'group' AND JMSMessageID = '"
            + sent.getJMSMessageID() + "' AND JMSTimestamp = " + sent.getJMSTimestamp();
        Message received = session.createConsumer(queue, selector).receive(WAIT_MS);
        expect("corr", received.getJMSCorrelationID());
        expect("answers", ((Topic) received.getJMSReplyTo()).getTopicName());
        expect(9, received.getJMSPriority());
        expect(sent.getJMSMessageID(), received.getJMSMessageID());
        expect(name, ((Queue) received.getJMSDestination()).getQueueName());
    }

    private void anonymousProducer(String name) throws Exception {
        Session session = session(null);
        Queue queue = session.createQueue(name);
        Topic topic = session.createTopic(name + "-topic");
        MessageConsumer subscriber = session.createConsumer(topic);
        MessageProducer producer = session.createProducer(null);
        producer.send(queue, session.createTextMessage("to the queue"));
        producer.send(topic, session.createTextMessage("to the topic"));
        expect("to the queue", text(session.createConsumer(queue)));
        expect("to the topic", text(subscriber));
    }

    private void deliveryDelay(String name) throws Exception {
        Session session = session(null);
        Queue queue = session.createQueue(name);
        MessageConsumer consumer = session.createConsumer(queue);
        MessageProducer producer = session.createProducer(queue);
        producer.setDeliveryDelay(700);
        TextMessage sent = session.createTextMessage("later");
        producer.send(sent);
        producer.setDeliveryDelay(0);
        producer.send(session.createTextMessage("now"));
        expect("now", text(consumer));
        Message later = consumer.receive(WAIT_MS);
        expect(sent.getJMSDeliveryTime(), later.getJMSDeliveryTime());
        expect(true, System.currentTimeMillis() >= sent.getJMSDeliveryTime());
    }

    // ---- topics

    private void unsharedNonDurable(String name) throws Exception {
        Session session = session(null);
        Topic topic = session.createTopic(name + "-topic");
        MessageProducer producer = session.createProducer(topic);
        producer.send(session.createTextMessage("before"));
        MessageConsumer one = session.createConsumer(topic);
        MessageConsumer two = session.createConsumer(topic, "JMSType IS NULL");
        producer.send(session.createTextMessage("after"));
        expect("after", text(one));
        expect("after", text(two));
        expectNothing(one);
    }

    private void durableResumes(String name) throws Exception {
        Session session = session(name + "-client");
        Topic topic = session.createTopic(name + "-topic");
        session.createDurableConsumer(topic, "sub").close();
        session.createProducer(topic).send(session.createTextMessage("kept"));
        closeAll();
        expect("kept", text(session(name + "-client").createDurableConsumer(topic, "sub")));
    }

    private void durableIsExclusive(String name) throws Exception {
        Session one = session(name + "-client");
        Topic topic = one.createTopic(name + "-topic");
        one.createDurableConsumer(topic, "sub");
        try {
            session(name + "-client").createDurableConsumer(topic, "sub");
            throw new AssertionError("a second consumer was taken");
        } catch (JMSException expected) {
            expect(true, expected.getMessage().contains("Cannot create a new consumer on subscriber sub$"));
        }
    }

    private void durableSelector(String name) throws Exception {
        Session session = session(name + "-client");
        Topic topic = session.createTopic(name + "-topic");
        session.createDurableConsumer(topic, "sub", "year < 1980", false).close();
        MessageProducer producer = session.createProducer(topic);
        for (int year : new int[] {1900, 2000}) {
            TextMessage message = session.createTextMessage(Integer.toString(year));
            message.setIntProperty("year", year);
            producer.send(message);
        }
        MessageConsumer consumer = session.createDurableConsumer(topic, "sub", "year < 1980", false);
        expect("1900", text(consumer));
        expectNothing(consumer);
    }

    private void sharedDurable(String name) throws Exception {
        Topic topic = session(null).createTopic(name + "-topic");
        List<MessageConsumer> consumers = new ArrayList<>();
        for (int each = 0; each < 3; each++) {
            consumers.add(session(null).createSharedDurableConsumer(topic, name));
        }
        expectShared(topic, consumers);
    }

    private void sharedNonDurable(String name) throws Exception {
        Session session = session(null);
        Topic topic = session.createTopic(name + "-topic");
        List<MessageConsumer> consumers = new ArrayList<>();
        consumers.add(session.createSharedConsumer(topic, name));
        consumers.add(session.createSharedConsumer(topic, name));
        expectShared(topic, consumers);
    }

    private void expectShared(Topic topic, List<MessageConsumer> consumers) throws Exception {
        Session session = session(null);
        MessageProducer producer = session.createProducer(topic);
        Set<String> missing = new TreeSet<>();
        for (int number = 0; number < 30; number++) {
            missing.add(Integer.toString(number));
            producer.send(session.createTextMessage(Integer.toString(number)));
        }
        long end = System.currentTimeMillis() + WAIT_MS;
        while (!missing.isEmpty() && System.currentTimeMillis() < end) {
            for (MessageConsumer consumer : consumers) {
                TextMessage message = (TextMessage) consumer.receiveNoWait();
                if (message != null) {
                    expect(true, missing.remove(message.getText()));
                }
            }
        }
        expect(Set.of(), missing);
    }

    private void unsubscribe(String name) throws Exception {
        Session session = session(name + "-client");
        Topic topic = session.createTopic(name + "-topic");
        session.createDurableConsumer(topic, "sub").close();
        session.createProducer(topic).send(session.createTextMessage("lost"));
        session.unsubscribe("sub");
        expectNothing(session.createDurableConsumer(topic, "sub"));
        try {
            session.unsubscribe("unknown");
            throw new AssertionError("an unknown subscription was removed");
        } catch (InvalidDestinationException expected) {
            Session other = session(null);
            other.createSharedDurableConsumer(topic, name).close();
            other.unsubscribe(name);
        }
    }

    private void noLocal(String name) throws Exception {
        Session session = session(null);
        Topic topic = session.createTopic(name + "-topic");
        MessageConsumer consumer = session.createConsumer(topic, null, true);
        session.createProducer(topic).send(session.createTextMessage("own"));
        expect("own", text(consumer));
    }

    // ---- temporary destinations

    private void requestReply(String name) throws Exception {
        Session asking = session(null);
        Session answering = session(null);
        Queue queue = asking.createQueue(name);
        TemporaryQueue answers = asking.createTemporaryQueue();
        MessageConsumer consumer = asking.createConsumer(answers);
        TextMessage question = asking.createTextMessage("question");
        question.setJMSReplyTo(answers);
        asking.createProducer(queue).send(question);
        Message got = answering.createConsumer(queue).receive(WAIT_MS);
        answering.createProducer(got.getJMSReplyTo()).send(answering.createTextMessage("answer"));
        expect("answer", text(consumer));
        consumer.close();
        answers.delete();
        try {
            answering.createProducer(got.getJMSReplyTo());
            throw new AssertionError("a deleted queue takes messages");
        } catch (InvalidDestinationException expected) {
            expect(true, answers.getQueueName().length() == 32);
        }
    }

    private void temporaryTopic(String name) throws Exception {
        Session session = session(null);
        TemporaryTopic topic = session.createTemporaryTopic();
        MessageConsumer one = session.createConsumer(topic);
        MessageConsumer two = session.createConsumer(topic);
        session.createProducer(topic).send(session.createTextMessage(name));
        expect(name, text(one));
        expect(name, text(two));
    }

    // ---- transactions

    private void transaction(String name) throws Exception {
        Connection connection = connection(name + "-client");
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        Topic topic = session.createTopic(name + "-topic");
        Queue queue = session.createQueue(name);
        MessageConsumer subscriber = session.createDurableConsumer(topic, "sub", "k = 1", false);
        Session plain = session(null);
        TextMessage sent = plain.createTextMessage("in");
        sent.setIntProperty("k", 1);
        plain.createProducer(topic).send(sent);
        MessageProducer producer = session.createProducer(queue);
        expect("in", text(subscriber));
        producer.send(session.createTextMessage("rolled back"));
        session.rollback();
        Message again = subscriber.receive(WAIT_MS);
        expect(2, again.getIntProperty("JMSXDeliveryCount"));
        producer.send(session.createTextMessage("out"));
        session.commit();
        expect("out", text(plain.createConsumer(queue)));
    }

    private void deadLetter(String name) throws Exception {
        Connection connection = connection(name + "-client");
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        Topic topic = session.createTopic(name + "-topic");
        MessageConsumer subscriber = session.createDurableConsumer(topic, "sub");
        Session plain = session(null);
        plain.createProducer(topic).send(plain.createTextMessage("poison"));
        for (int count = 1; count <= 10; count++) {
            expect(count, subscriber.receive(WAIT_MS).getIntProperty("JMSXDeliveryCount"));
            session.rollback();
        }
        String path = name + "-topic/Subscriptions/sub$" + name + "-client$D/$DeadLetterQueue";
        expect("poison", text(plain.createConsumer(plain.createQueue(path))));
    }

    // ---- helpers

    private Connection connection(String clientId) throws JMSException {
        return connection(factory, clientId);
    }

    private Connection connection(ConnectionFactory factory, String clientId) throws JMSException {
        Connection connection = factory.createConnection();
        opened.add(connection);
        if (clientId != null) {
            connection.setClientID(clientId);
        }
        connection.start();
        return connection;
    }

    private Session session(String clientId) throws JMSException {
        return connection(clientId).createSession(false, Session.AUTO_ACKNOWLEDGE);
    }

    private static String text(MessageConsumer consumer) throws JMSException {
        Message message = consumer.receive(WAIT_MS);
        if (message == null) {
            throw new AssertionError("no message came");
        }
        return ((TextMessage) message).getText();
    }

    private static int count(QueueBrowser browser) throws JMSException {
        int count = 0;
        for (Enumeration<?> each = browser.getEnumeration(); each.hasMoreElements(); each.nextElement()) {
            count++;
        }
        browser.close();
        return count;
    }

    private static void expectNothing(MessageConsumer consumer) throws JMSException {
        Message message = consumer.receive(NOTHING_MS);
        if (message != null) {
            throw new AssertionError("a message came: " + message);
        }
    }

    private static void expect(Object expected, Object found) {
        if (!Objects.equals(expected, found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }
}
