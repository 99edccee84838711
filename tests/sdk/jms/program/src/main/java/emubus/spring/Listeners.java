package emubus.spring;

import com.azure.servicebus.jms.ServiceBusJmsConnectionFactory;
import com.azure.servicebus.jms.ServiceBusJmsConnectionFactorySettings;
import jakarta.jms.Connection;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.Message;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.springframework.jms.connection.CachingConnectionFactory;
import org.springframework.jms.core.JmsTemplate;
import org.springframework.jms.listener.DefaultMessageListenerContainer;
import org.springframework.jms.listener.SessionAwareMessageListener;

/**
 * Spring's template and listeners over the library of Service Bus, as its Spring starter for Premium sets them up.
 *
 * <p>The argument is `host:port`. The program writes "drop" when it wants its connections dropped, and goes on with the
 * next line of its input. Its last lines tell what each listener has got.
 */
public final class Listeners {
    private static final long WAIT_MS = 60_000;
    private static final int ORDERS = 20;

    private static final String CLIENT_ID = "spring";

    private final ConnectionFactory factory;
    private final List<DefaultMessageListenerContainer> containers = new ArrayList<>();

    private Listeners(ConnectionFactory factory) {
        this.factory = factory;
    }

    public static void main(String[] arguments) throws Exception {
        ConnectionFactory factory = new ServiceBusJmsConnectionFactory(
            "RootManageSharedAccessKey", "SAS_KEY_VALUE", arguments[0], new ServiceBusJmsConnectionFactorySettings());
        CachingConnectionFactory ofTemplates = new CachingConnectionFactory(factory);
        Listeners listeners = new Listeners(factory);
        listeners.run(ofTemplates).forEach((name, got) -> System.out.println(name + ": " + got));
        listeners.containers.forEach(DefaultMessageListenerContainer::destroy);
        ofTemplates.destroy();
    }

    private Map<String, String> run(ConnectionFactory ofTemplates) throws Exception {
        Map<String, String> ends = new TreeMap<>();
        JmsTemplate queues = new JmsTemplate(ofTemplates);
        queues.setReceiveTimeout(WAIT_MS);
        JmsTemplate topics = new JmsTemplate(ofTemplates);
        topics.setPubSubDomain(true);

        queues.convertAndSend("template", "hello");
        ends.put("template", (String) queues.receiveAndConvert("template"));
        ends.put("selector", selected(queues));

        BlockingQueue<String> orders = listen("orders", 5, (message, session) -> {});
        BlockingQueue<String> poison = listen("poison", 1, (message, session) -> {
            throw new IllegalStateException("no");
        });
        listen("questions", 1, (message, session) ->
            session.createProducer(message.getJMSReplyTo()).send(session.createTextMessage("answer")));
        BlockingQueue<String> durable = subscribe(false, "k = 1");
        BlockingQueue<String> shared = subscribe(true, null);

        ends.put("request-reply", ((TextMessage) queues.sendAndReceive(
            "questions", session -> session.createTextMessage("question"))).getText());
        queues.convertAndSend("poison", "p");
        ends.put("poison", counted(poison, 10) + " " + queues.receiveAndConvert("poison/$DeadLetterQueue"));

        publish(topics, "before");
        ends.put("before", take(durable) + " " + take(shared));
        System.out.println("drop");
        System.in.read();
        publish(topics, "after");
        ends.put("after", takeAfter("before", durable) + " " + takeAfter("before", shared));
        for (int number = 0; number < ORDERS; number++) {
            queues.convertAndSend("orders", Integer.toString(number));
        }
        ends.put("orders", Integer.toString(counted(orders, ORDERS)));
        return ends;
    }

    private static String selected(JmsTemplate template) throws Exception {
        template.convertAndSend("template", "other");
        template.convertAndSend("template", "urgent", message -> {
            message.setBooleanProperty("urgent", true);
            return message;
        });
        String found = (String) template.receiveSelectedAndConvert("template", "urgent");
        return found + " " + template.receiveAndConvert("template");
    }

    private static void publish(JmsTemplate template, String text) throws Exception {
        template.convertAndSend("news", text, message -> {
            message.setIntProperty("k", 1);
            return message;
        });
    }

    // ---- listeners

    private BlockingQueue<String> listen(
        String queue, int consumers, SessionAwareMessageListener<Message> then) throws Exception {
        DefaultMessageListenerContainer container = new DefaultMessageListenerContainer();
        container.setDestinationName(queue);
        container.setConcurrentConsumers(consumers);
        return start(container, then);
    }

    /** Listen to a durable subscription; it is there when this returns, the listener perhaps later. */
    private BlockingQueue<String> subscribe(boolean isShared, String selector) throws Exception {
        try (Connection connection = factory.createConnection()) {
            if (isShared) {
                Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
                session.createSharedDurableConsumer(session.createTopic("news"), "shared").close();
            } else {
                connection.setClientID(CLIENT_ID);
                Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
                session.createDurableConsumer(session.createTopic("news"), "own", selector, false).close();
            }
        }
        DefaultMessageListenerContainer container = new DefaultMessageListenerContainer();
        container.setPubSubDomain(true);
        container.setDestinationName("news");
        container.setSubscriptionDurable(true);
        container.setSubscriptionShared(isShared);
        container.setSubscriptionName(isShared ? "shared" : "own");
        container.setMessageSelector(selector);
        if (isShared) {
            container.setConcurrentConsumers(2);
        } else {
            container.setClientId(CLIENT_ID);
        }
        return start(container, (message, session) -> {});
    }

    /** Start listeners as the starter does: transacted, with a cached consumer each. */
    private BlockingQueue<String> start(
        DefaultMessageListenerContainer container, SessionAwareMessageListener<Message> then) throws Exception {
        BlockingQueue<String> got = new LinkedBlockingQueue<>();
        container.setConnectionFactory(factory);
        container.setSessionTransacted(true);
        container.setReceiveTimeout(500);
        container.setRecoveryInterval(50);
        container.setMessageListener((SessionAwareMessageListener<Message>) (Message message, Session session) -> {
            got.add(((TextMessage) message).getText());
            then.onMessage(message, session);
        });
        container.afterPropertiesSet();
        container.start();
        containers.add(container);
        return got;
    }

    // ---- what they got

    private static String take(BlockingQueue<String> got) throws InterruptedException {
        return got.poll(WAIT_MS, TimeUnit.MILLISECONDS);
    }

    /** The next text that is another one: a message comes again if its connection broke before the commit. */
    private static String takeAfter(String before, BlockingQueue<String> got) throws InterruptedException {
        String text = take(got);
        while (before.equals(text)) {
            text = take(got);
        }
        return text;
    }

    private static int counted(BlockingQueue<String> got, int count) throws InterruptedException {
        int found = 0;
        while (found < count && take(got) != null) {
            found++;
        }
        return found;
    }
}
