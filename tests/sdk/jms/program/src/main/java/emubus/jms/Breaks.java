package emubus.jms;

import jakarta.jms.*;
import jakarta.jms.IllegalStateException;
import java.util.LinkedHashMap;
import java.util.Map;

/** What clients have left when their links are detached, or their broker is killed and starts again. */
final class Breaks extends Scenarios {
    Breaks(Clients clients) {
        super(clients);
    }

    @Override
    Map<String, Scenario> all() {
        Map<String, Scenario> found = new LinkedHashMap<>();
        found.put("detached-links", this::detachedLinks);
        found.put("killed", this::killed);
        return found;
    }

    /** A client does not attach its links again, but its connection lives: the program makes new consumers. */
    private void detachedLinks(String name) throws Exception {
        Session session = connection(clients.lasting(Clients.PREMIUM), name + "-client")
            .createSession(false, Session.AUTO_ACKNOWLEDGE);
        Topic topic = session.createTopic(name + "-topic");
        Queue queue = session.createQueue(name);
        MessageProducer producer = session.createProducer(topic);
        MessageConsumer subscriber = session.createDurableConsumer(topic, "sub", "k = 1", false);
        MessageConsumer consumer = session.createConsumer(queue, "k = 1");
        send(session, producer, "before", 1);
        Program.ask("detach");
        expectClosed(subscriber);
        expectClosed(consumer);
        subscriber = session.createDurableConsumer(topic, "sub", "k = 1", false);
        consumer = session.createConsumer(queue, "k = 1");
        expect("before", text(subscriber));
        send(session, session.createProducer(topic), "other", 2);
        send(session, session.createProducer(topic), "after", 1);
        send(session, session.createProducer(queue), "after", 1);
        expect("after", text(subscriber));
        expect("after", text(consumer));
    }

    /** A client attaches its links again: what is durable was kept, all else is made anew. */
    private void killed(String name) throws Exception {
        Connection connection = connection(clients.lasting(Clients.KILLED), name + "-client");
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Topic topic = session.createTopic(name + "-topic");
        Queue queue = session.createQueue(name);
        MessageProducer producer = session.createProducer(topic);
        MessageConsumer durable = session.createDurableConsumer(topic, "durable", "k = 1", false);
        MessageConsumer shared = session.createSharedDurableConsumer(topic, "shared");
        MessageConsumer passing = session.createConsumer(topic, "k = 1");
        MessageConsumer sharedPassing = session.createSharedConsumer(topic, "passing");
        MessageConsumer selected = session.createConsumer(queue, "k = 1");
        TemporaryQueue answers = session.createTemporaryQueue();
        MessageConsumer answered = session.createConsumer(answers);
        String address = answers.getQueueName();
        send(session, producer, "before", 1);
        Program.ask("kill");
        expect("before", text(durable));
        expect("before", text(shared));
        send(session, producer, "other", 2);
        send(session, producer, "after", 1);
        expect("after", text(durable));
        expect("other", text(shared));
        expect("after", text(shared));
        expect("after", text(passing));
        expect("other", text(sharedPassing));
        expect("after", text(sharedPassing));
        send(session, session.createProducer(queue), "other", 2);
        send(session, session.createProducer(queue), "selected", 1);
        expect("selected", text(selected));
        expect(false, address.equals(answers.getQueueName()));
        send(session, session.createProducer(answers), "answer", 1);
        expect("answer", text(answered));
    }

    private static void send(Session session, MessageProducer producer, String text, int k) throws JMSException {
        TextMessage message = session.createTextMessage(text);
        message.setIntProperty("k", k);
        producer.send(message);
    }

    /** Look whether a consumer is closed: one that is asked for a message just now may wait for ever. */
    private static void expectClosed(MessageConsumer consumer) throws JMSException {
        long end = System.currentTimeMillis() + WAIT_MS;
        try {
            while (System.currentTimeMillis() < end) {
                consumer.getMessageListener();
                Thread.onSpinWait();
            }
            throw new AssertionError("a consumer is open, though its link was detached");
        } catch (IllegalStateException closed) {
            expect(true, closed.getMessage().contains("closed"));
        }
    }
}
