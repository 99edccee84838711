package emubus.jms;

import jakarta.jms.*;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Selectors, browsers, and what a message carries. */
final class Messages extends Scenarios {
    private static final List<Object> PRIMITIVES =
        List.of(true, (byte) 1, (short) 2, 3, 4L, 5.5f, 6.5, 'c', "text");

    Messages(Clients clients) {
        super(clients);
    }

    @Override
    Map<String, Scenario> all() {
        Map<String, Scenario> found = new LinkedHashMap<>();
        found.put("queue-selector", this::queueSelector);
        found.put("two-selectors", this::twoSelectors);
        found.put("selector-and-redelivery", this::selectorAndRedelivery);
        found.put("bad-selector", this::badSelector);
        found.put("browser", this::browser);
        found.put("message-types", this::messageTypes);
        found.put("foreign-messages", this::foreignMessages);
        found.put("headers", this::headers);
        found.put("anonymous-producer", this::anonymousProducer);
        found.put("delivery-delay", this::deliveryDelay);
        return found;
    }

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
        for (int number = 0; number < 100; number++) {
            TextMessage message = session.createTextMessage(Integer.toString(number));
            message.setIntProperty("k", 1 + number % 2);
            producer.send(message);
        }
        for (int number = 0; number < 100; number += 2) {
            expect(Integer.toString(number), text(one));
            expect(Integer.toString(number + 1), text(two));
        }
    }

    private void selectorAndRedelivery(String name) throws Exception {
        // Lazy: a consumer with credit would get the message again before its session has closed.
        Connection connection = connection(clients.lazy(), null);
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

    /** The client refuses a bad selector itself, or else the broker does. */
    private void badSelector(String name) throws Exception {
        Session session = session(null);
        session.createProducer(session.createQueue(name)).close();
        try {
            session.createConsumer(session.createQueue(name), "a = = 1");
            throw new AssertionError("the client took a bad selector");
        } catch (InvalidSelectorException expected) {
            session = connection(clients.unvalidated(), null).createSession(false, Session.AUTO_ACKNOWLEDGE);
        }
        try {
            session.createConsumer(session.createQueue(name), "a = = 1");
            throw new AssertionError("the broker took a bad selector");
        } catch (JMSException expected) {
            expect(true, expected.getMessage().contains("amqp:invalid-field"));
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
        Session other = connection(clients.lazy(), null).createSession(false, Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer holder = other.createConsumer(queue);
        for (int number = 0; number < 5; number++) {
            expect(Integer.toString(number), text(holder));
        }
        expect(15, count(session.createBrowser(queue, "n >= 5")));
        expect("5", text(session.createConsumer(queue)));
    }

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
        for (Object each : PRIMITIVES) {
            map.setObject(each.getClass().getSimpleName(), each);
        }
        map.setString("null", null);
        map.setBytes("bytes", new byte[] {4, 5});
        producer.send(map);
        MapMessage received = (MapMessage) consumer.receive(WAIT_MS);
        for (Object each : PRIMITIVES) {
            expect(each, received.getObject(each.getClass().getSimpleName()));
        }
        expect(true, received.itemExists("null"));
        expect(2, received.getBytes("bytes").length);
        StreamMessage stream = session.createStreamMessage();
        for (Object each : PRIMITIVES) {
            stream.writeObject(each);
        }
        stream.writeString(null);
        producer.send(stream);
        StreamMessage read = (StreamMessage) consumer.receive(WAIT_MS);
        for (Object each : PRIMITIVES) {
            expect(each, read.readObject());
        }
        expect(null, read.readString());
    }

    /** Another SDK has sent three messages, and reads the answer. */
    private void foreignMessages(String name) throws Exception {
        Session session = session(null);
        Queue queue = session.createQueue(name);
        MessageConsumer consumer = session.createConsumer(queue);
        BytesMessage text = (BytesMessage) consumer.receive(WAIT_MS);
        byte[] bytes = new byte[(int) text.getBodyLength()];
        text.readBytes(bytes);
        expect("text", new String(bytes, StandardCharsets.UTF_8));
        expect("{}", text(consumer));
        expect(4L, ((BytesMessage) consumer.receive(WAIT_MS)).getBodyLength());
        consumer.close();  // else it would lock the answer
        session.createProducer(queue).send(session.createTextMessage("from JMS"));
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
        producer.setPriority(1);
        producer.send(session.createTextMessage("first"));
        producer.setPriority(9);
        producer.send(session.createTextMessage("urgent"));
        MessageConsumer consumer = session.createConsumer(queue);
        expect("first", text(consumer));
        expect("urgent", text(consumer));
    }

    private void anonymousProducer(String name) throws Exception {
        Session session = session(null);
        Queue queue = session.createQueue(name);
        Topic topic = session.createTopic(name + "-topic");
        MessageConsumer subscriber = session.createConsumer(topic);
        try (JMSContext context = clients.usual().createContext()) {
            JMSProducer producer = context.createProducer();
            for (int number = 0; number < 2; number++) {
                producer.send(queue, "to the queue").send(topic, "to the topic");
            }
        }
        MessageConsumer consumer = session.createConsumer(queue);
        for (int number = 0; number < 2; number++) {
            Message queued = consumer.receive(WAIT_MS);
            expect("to the queue", queued.getBody(String.class));
            expect(name, ((Queue) queued.getJMSDestination()).getQueueName());
            Message published = subscriber.receive(WAIT_MS);
            expect("to the topic", published.getBody(String.class));
            expect(name + "-topic", ((Topic) published.getJMSDestination()).getTopicName());
        }
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
}
