package emubus.jms;

import jakarta.jms.*;
import java.util.LinkedHashMap;
import java.util.Map;

/** Transactions, acknowledgements, and consumers that find nothing. */
final class Settlements extends Scenarios {
    private static final int REJECTED = 2;
    private static final int RELEASED = 3;
    private static final int MODIFIED_FAILED = 4;
    private static final int MODIFIED_FAILED_UNDELIVERABLE = 5;

    Settlements(Clients clients) {
        super(clients);
    }

    @Override
    Map<String, Scenario> all() {
        Map<String, Scenario> found = new LinkedHashMap<>();
        found.put("transaction", this::transaction);
        found.put("delay-in-transaction", this::delayInTransaction);
        found.put("dead-letter", this::deadLetter);
        found.put("acknowledgements", this::acknowledgements);
        found.put("recover", this::recover);
        found.put("nothing-there", this::nothingThere);
        return found;
    }

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
        TemporaryQueue second = plain.createTemporaryQueue();
        MessageProducer other = session.createProducer(second);
        expect("in", text(subscriber));
        producer.send(session.createTextMessage("rolled back"));
        other.send(session.createTextMessage("rolled back"));
        session.rollback();
        Message again = subscriber.receive(WAIT_MS);
        expect(2, again.getIntProperty("JMSXDeliveryCount"));
        producer.send(session.createTextMessage("out"));
        other.send(session.createTextMessage("out, too"));
        session.commit();
        expect("out", text(plain.createConsumer(queue)));
        expect("out, too", text(plain.createConsumer(second)));
    }

    private void delayInTransaction(String name) throws Exception {
        Session session = connection((String) null).createSession(true, Session.SESSION_TRANSACTED);
        Topic topic = session.createTopic(name + "-topic");
        MessageConsumer consumer = session(name + "-client").createDurableConsumer(topic, "sub");
        MessageProducer producer = session.createProducer(topic);
        producer.setDeliveryDelay(1);
        producer.send(session.createTextMessage("rolled back"));
        session.rollback();
        producer.setDeliveryDelay(300);
        TextMessage sent = session.createTextMessage("later");
        producer.send(sent);
        session.commit();
        expect("later", text(consumer));
        expect(true, System.currentTimeMillis() >= sent.getJMSDeliveryTime());
        expectNothing(consumer);
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

    /** Each type of acknowledgement that Qpid JMS has beyond JMS, and where its message goes. */
    private void acknowledgements(String name) throws Exception {
        // Lazy: the next message is asked for once this one is where it belongs.
        Session session = connection(clients.lazy(), null).createSession(false, Session.CLIENT_ACKNOWLEDGE);
        Queue queue = session.createQueue(name);
        session.createProducer(queue).send(session.createTextMessage("m"));
        MessageConsumer consumer = session.createConsumer(queue);
        acknowledge(consumer, RELEASED, 1);
        acknowledge(consumer, MODIFIED_FAILED, 1);
        acknowledge(consumer, REJECTED, 2);
        expectNothing(consumer);
        MessageConsumer buried = session.createConsumer(session.createQueue(name + "/$DeadLetterQueue"));
        expect("m", text(buried));
        session.createProducer(queue).send(session.createTextMessage("deferred"));
        acknowledge(consumer, MODIFIED_FAILED_UNDELIVERABLE, 1);
        expectNothing(consumer);
    }

    private static void acknowledge(MessageConsumer consumer, int type, int deliveryCount) throws JMSException {
        Message message = consumer.receive(WAIT_MS);
        expect(deliveryCount, message.getIntProperty("JMSXDeliveryCount"));
        message.setIntProperty("JMS_AMQP_ACK_TYPE", type);
        message.acknowledge();
    }

    private void recover(String name) throws Exception {
        Session session = connection((String) null).createSession(false, Session.CLIENT_ACKNOWLEDGE);
        Queue queue = session.createQueue(name);
        session.createProducer(queue).send(session.createTextMessage("again"));
        MessageConsumer consumer = session.createConsumer(queue);
        expect("again", text(consumer));
        session.recover();
        Message again = consumer.receive(WAIT_MS);
        expect(true, again.getJMSRedelivered());
        again.acknowledge();
        expectNothing(consumer);
    }

    private void nothingThere(String name) throws Exception {
        Session session = connection(clients.lazy(), null).createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue queue = session.createQueue(name);
        MessageConsumer consumer = session.createConsumer(queue, "k = 1");
        for (int number = 0; number < 1_000; number++) {
            expect(null, consumer.receiveNoWait());
        }
        TextMessage sent = session.createTextMessage("there");
        sent.setIntProperty("k", 1);
        session.createProducer(queue).send(sent);
        expect("there", text(consumer));
    }
}
