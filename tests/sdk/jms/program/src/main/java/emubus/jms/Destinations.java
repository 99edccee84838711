package emubus.jms;

import jakarta.jms.*;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;

/** Temporary queues and topics. */
final class Destinations extends Scenarios {
    private static final int QUEUES_MAX = 255;

    Destinations(Clients clients) {
        super(clients);
    }

    @Override
    Map<String, Scenario> all() {
        Map<String, Scenario> found = new LinkedHashMap<>();
        found.put("request-reply", this::requestReply);
        found.put("temporary-topic", this::temporaryTopic);
        found.put("many-temporary-queues", this::manyTemporaryQueues);
        return found;
    }

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

    private void manyTemporaryQueues(String name) throws Exception {
        Session session = session(null);
        Set<String> names = new HashSet<>();
        TemporaryQueue last = null;
        for (int number = 0; number < QUEUES_MAX; number++) {
            last = session.createTemporaryQueue();
            names.add(last.getQueueName());
        }
        expect(QUEUES_MAX, names.size());
        try {
            session(null).createConsumer(last);
            throw new AssertionError("another connection consumes from a temporary queue");
        } catch (InvalidDestinationException expected) {
            session.createProducer(last).send(session.createTextMessage(name));
            expect(name, text(session.createConsumer(last)));
        }
    }
}
