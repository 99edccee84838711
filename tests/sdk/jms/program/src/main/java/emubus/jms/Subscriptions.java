package emubus.jms;

import jakarta.jms.*;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

/** Consumers on topics, and their subscriptions. */
final class Subscriptions extends Scenarios {
    Subscriptions(Clients clients) {
        super(clients);
    }

    @Override
    Map<String, Scenario> all() {
        Map<String, Scenario> found = new LinkedHashMap<>();
        found.put("unshared-non-durable", this::unsharedNonDurable);
        found.put("durable-resumes", this::durableResumes);
        found.put("client-ids", this::clientIds);
        found.put("durable-is-exclusive", this::durableIsExclusive);
        found.put("durable-selector", this::durableSelector);
        found.put("durable-changes-topic", this::durableChangesTopic);
        found.put("shared-against-unshared", this::sharedAgainstUnshared);
        found.put("shared-durable", this::sharedDurable);
        found.put("shared-durable-of-a-client", this::sharedDurableOfAClient);
        found.put("shared-non-durable", this::sharedNonDurable);
        found.put("unsubscribe", this::unsubscribe);
        found.put("no-local", this::noLocal);
        return found;
    }

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

    /** Two names of two client ids are four subscriptions, each with a copy. */
    private void clientIds(String name) throws Exception {
        Topic topic = session(null).createTopic(name + "-topic");
        List<MessageConsumer> consumers = new ArrayList<>();
        for (String client : List.of("-one", "-two")) {
            Session session = session(name + client);
            consumers.add(session.createDurableConsumer(topic, "s1"));
            consumers.add(session.createDurableConsumer(topic, "s2"));
        }
        Session session = session(null);
        session.createProducer(topic).send(session.createTextMessage("copy"));
        for (MessageConsumer consumer : consumers) {
            expect("copy", text(consumer));
            expectNothing(consumer);
        }
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
        consumer.close();
        producer.send(session.createTextMessage("lost"));
        expectNothing(session.createDurableConsumer(topic, "sub", "year > 1980 OR year IS NULL", false));
    }

    private void durableChangesTopic(String name) throws Exception {
        Session session = session(name + "-client");
        Topic topic = session.createTopic(name + "-topic");
        Topic other = session.createTopic("other-topic");
        session.createDurableConsumer(topic, "sub").close();
        session.createProducer(topic).send(session.createTextMessage("left behind"));
        MessageConsumer consumer = session.createDurableConsumer(other, "sub");
        session.createProducer(other).send(session.createTextMessage("other"));
        expect("other", text(consumer));
        try {
            session(name + "-client").createDurableConsumer(topic, "sub");
            throw new AssertionError("a subscription changed its topic under its consumer");
        } catch (JMSException expected) {
            consumer.close();
            expectNothing(session.createDurableConsumer(topic, "sub"));
        }
    }

    private void sharedAgainstUnshared(String name) throws Exception {
        Session session = session(name + "-client");
        Topic topic = session.createTopic(name + "-topic");
        session.createDurableConsumer(topic, "sub").close();
        session.createProducer(topic).send(session.createTextMessage("kept"));
        try {
            session.createSharedDurableConsumer(topic, "sub");
            throw new AssertionError("an unshared subscription was shared");
        } catch (JMSException expected) {
            expect("kept", text(session.createDurableConsumer(topic, "sub")));
        }
    }

    private void sharedDurable(String name) throws Exception {
        Topic topic = session(null).createTopic(name + "-topic");
        List<MessageConsumer> consumers = new ArrayList<>();
        for (int each = 0; each < 3; each++) {
            consumers.add(session(null).createSharedDurableConsumer(topic, name));
        }
        expectShared(topic, consumers);
    }

    private void sharedDurableOfAClient(String name) throws Exception {
        Session session = session(name + "-client");
        Topic topic = session.createTopic(name + "-topic");
        List<MessageConsumer> consumers = new ArrayList<>();
        consumers.add(session.createSharedDurableConsumer(topic, "sub"));
        consumers.add(session.createSharedDurableConsumer(topic, "sub"));
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
        for (int number = 0; number < 300; number++) {
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
        expectActive(session, "sub");
        try {
            session.unsubscribe("unknown");
            throw new AssertionError("an unknown subscription was removed");
        } catch (InvalidDestinationException expected) {
            Session other = session(null);
            MessageConsumer consumer = other.createSharedDurableConsumer(topic, name);
            expectActive(session(null), name);
            consumer.close();
            other.unsubscribe(name);
        }
    }

    /** A subscription with a consumer is not removed: the client refuses it if the consumer is its own, else the broker. */
    private static void expectActive(Session session, String name) throws JMSException {
        try {
            session.unsubscribe(name);
            throw new AssertionError("a subscription was removed under its consumer");
        } catch (JMSException expected) {
            expect(false, expected instanceof InvalidDestinationException);
        }
    }

    private void noLocal(String name) throws Exception {
        Session session = session(null);
        Topic topic = session.createTopic(name + "-topic");
        MessageConsumer consumer = session.createConsumer(topic, null, true);
        session.createProducer(topic).send(session.createTextMessage("own"));
        expect("own", text(consumer));
    }
}
