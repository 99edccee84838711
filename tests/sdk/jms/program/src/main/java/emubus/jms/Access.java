package emubus.jms;

import jakarta.jms.*;
import java.util.LinkedHashMap;
import java.util.Map;

/** Who gets in where, and with what. */
final class Access extends Scenarios {
    Access(Clients clients) {
        super(clients);
    }

    @Override
    Map<String, Scenario> all() {
        Map<String, Scenario> found = new LinkedHashMap<>();
        found.put("wrong-key", this::wrongKey);
        found.put("send-only-key", this::sendOnlyKey);
        found.put("auto-delete", this::autoDelete);
        found.put("token", this::token);
        found.put("expired-in-buffer", this::expiredInBuffer);
        found.put("standard", this::standard);
        found.put("partitioned", this::partitioned);
        return found;
    }

    private void wrongKey(String name) throws Exception {
        Session session = connection(clients.of(Clients.PREMIUM, "wrong"), null)
            .createSession(false, Session.AUTO_ACKNOWLEDGE);
        try {
            session.createConsumer(session.createQueue(name));
            throw new AssertionError("a wrong key opens a queue");
        } catch (JMSSecurityException expected) {
            expect(true, expected.getMessage().contains("'Listen' claim(s) are required"));
        }
    }

    /** Sending to a queue that is there needs no more than Send; making one needs Manage. */
    private void sendOnlyKey(String name) throws Exception {
        Session owner = session(null);
        Queue queue = owner.createQueue(name);
        MessageConsumer consumer = owner.createConsumer(queue);
        Session session = connection(clients.sending(), null).createSession(false, Session.AUTO_ACKNOWLEDGE);
        session.createProducer(queue).send(session.createTextMessage("sent"));
        expect("sent", text(consumer));
        try {
            session.createProducer(session.createQueue(name + "-missing"));
            throw new AssertionError("a key without Manage made a queue");
        } catch (JMSSecurityException expected) {
            expect(true, clients.areOfLibrary());
        } catch (InvalidDestinationException expected) {
            expect(false, clients.areOfLibrary());
        }
    }

    /** Whoever started the program looks at what was made. */
    private void autoDelete(String name) throws Exception {
        Session session = connection(clients.makingPassingEntities(600), name + "-client")
            .createSession(false, Session.AUTO_ACKNOWLEDGE);
        session.createProducer(session.createQueue(name + "-made")).close();
        session.createDurableConsumer(session.createTopic(name + "-made-topic"), "sub").close();
    }

    /** A token of Entra ID, as both libraries show it: the name `$jwt`, and the token for a key. */
    private void token(String name) throws Exception {
        Session session = connection(clients.withToken(Clients.UNVERIFIED), null)
            .createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue queue = session.createQueue(name);
        session.createProducer(queue).send(session.createTextMessage("with a token"));
        expect("with a token", text(session.createConsumer(queue)));
    }

    /** A message that has expired when it comes is deferred by the client. */
    private void expiredInBuffer(String name) throws Exception {
        Session session = session(null);
        expect("stays", text(session.createConsumer(session.createQueue(name))));
    }

    private void standard(String name) throws Exception {
        onlyPlainClients(Clients.STANDARD, name);
    }

    private void partitioned(String name) throws Exception {
        onlyPlainClients(Clients.PARTITIONED, name);
    }

    /** The library for JMS 2.0 gets no connection; other clients have queues, without selectors. */
    private void onlyPlainClients(int namespace, String name) throws Exception {
        try {
            Session session = connection(clients.of(namespace), null).createSession(false, Session.AUTO_ACKNOWLEDGE);
            expect(false, clients.areOfLibrary());
            Queue queue = session.createQueue(name);
            session.createProducer(queue).send(session.createTextMessage("plain"));
            expect("plain", text(session.createConsumer(queue)));
            session.createConsumer(queue, "k = 1");
            throw new AssertionError("a selector was taken");
        } catch (JMSException expected) {
            expect(true, expected.getMessage().contains("amqp:not-implemented"));
            expect(true, expected.getMessage().contains("Premium"));
        }
    }
}
