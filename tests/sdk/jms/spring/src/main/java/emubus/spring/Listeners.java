package emubus.spring;

import com.azure.servicebus.jms.ServiceBusJmsConnectionFactory;
import com.azure.servicebus.jms.ServiceBusJmsConnectionFactorySettings;
import jakarta.jms.Connection;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.JMSException;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.io.BufferedReader;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.autoconfigure.jms.DefaultJmsListenerContainerFactoryConfigurer;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.jms.annotation.JmsListener;
import org.springframework.jms.config.DefaultJmsListenerContainerFactory;
import org.springframework.jms.core.JmsTemplate;

/**
 * Templates and listeners of Spring Cloud Azure's starter for JMS, with the connection string of a namespace without port.
 *
 * <p>A line of the output that has no colon asks for something: to drop the connections, to detach the links, for another
 * port of the server, to have a Standard namespace in the place of the Premium one. The next line of the input says that
 * it is done, or the port. The other lines tell what was received.
 */
@SpringBootApplication
public class Listeners {
    static final String KEY_NAME = "RootManageSharedAccessKey";
    static final String KEY = "SAS_KEY_VALUE";
    private static final String KEYS = ";SharedAccessKeyName=" + KEY_NAME + ";SharedAccessKey=" + KEY;
    private static final String LOCAL = "Endpoint=sb://localhost" + KEYS;
    private static final String NOWHERE = "Endpoint=sb://nowhere.invalid" + KEYS;
    private static final String CLIENT_ID = "spring";
    private static final long WAIT_MS = 300_000;
    private static final int ORDERS = 20;
    private static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));

    private final Map<String, BlockingQueue<String>> got = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        subscribe();
        try (ConfigurableApplicationContext context = started(Listeners.class, LOCAL, "premium", "")) {
            Map<String, String> ends = context.getBean(Listeners.class).run(
                context.getBean(JmsTemplate.class), context.getBean(ConnectionFactory.class));
            ends.forEach((name, end) -> System.out.println(name + ": " + end));
        }
        try (ConfigurableApplicationContext context = started(Own.class, NOWHERE, "premium", ask("port"))) {
            System.out.println("own: " + throughQueue(context));
        }
        ask("standard");
        try (ConfigurableApplicationContext context = started(Plain.class, LOCAL, "standard", "")) {
            System.out.println("standard: " + throughQueue(context));
        }
    }

    private static Object throughQueue(ConfigurableApplicationContext context) {
        JmsTemplate template = context.getBean(JmsTemplate.class);
        template.setReceiveTimeout(WAIT_MS);
        template.convertAndSend("template", "plain");
        return template.receiveAndConvert("template");
    }

    private static ConfigurableApplicationContext started(
        Class<?> application, String connectionString, String tier, String port) {
        return new SpringApplicationBuilder(application).properties(Map.of(
            "port", port,
            "spring.jms.servicebus.connection-string", connectionString,
            "spring.jms.servicebus.pricing-tier", tier,
            "spring.jms.servicebus.topic-client-id", CLIENT_ID,
            "spring.main.banner-mode", "off")).run();
    }

    /** Make the durable subscriptions, so that no message comes before them: a listener starts when it likes. */
    private static void subscribe() throws JMSException {
        ConnectionFactory factory = new ServiceBusJmsConnectionFactory(
            LOCAL, new ServiceBusJmsConnectionFactorySettings());
        try (Connection connection = factory.createConnection()) {
            connection.setClientID(CLIENT_ID);
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            session.createSharedDurableConsumer(session.createTopic("news"), "shared").close();
            session.createDurableConsumer(session.createTopic("news"), "own", "k = 1", false).close();
        }
    }

    private static String ask(String what) throws IOException {
        System.out.println(what);
        String answer = INPUT.readLine();
        if (answer == null) {
            throw new EOFException("nobody does it: " + what);
        }
        return answer;
    }

    // ---- listeners

    @Bean
    static DefaultJmsListenerContainerFactory sharedListeners(
        DefaultJmsListenerContainerFactoryConfigurer configurer, ConnectionFactory connections) {
        DefaultJmsListenerContainerFactory factory = new DefaultJmsListenerContainerFactory();
        configurer.configure(factory, connections);
        factory.setPubSubDomain(true);
        factory.setSubscriptionDurable(true);
        factory.setSubscriptionShared(true);
        return factory;
    }

    @JmsListener(destination = "orders", concurrency = "5")
    void order(String text) {
        of("orders").add(text);
    }

    @JmsListener(destination = "poison")
    void poison(String text) {
        of("poison").add(text);
        throw new IllegalStateException("no");
    }

    @JmsListener(destination = "questions")
    String answer(String question) {
        return question + " answer";
    }

    @JmsListener(
        destination = "news", containerFactory = "topicJmsListenerContainerFactory", subscription = "own",
        selector = "k = 1")
    void own(String text) {
        of("own").add(text);
    }

    @JmsListener(
        destination = "news", containerFactory = "sharedListeners", subscription = "shared", concurrency = "2")
    void shared(String text) {
        of("shared").add(text);
    }

    private BlockingQueue<String> of(String listener) {
        return got.computeIfAbsent(listener, name -> new LinkedBlockingQueue<>());
    }

    // ---- what they get

    private Map<String, String> run(JmsTemplate queues, ConnectionFactory connections) throws Exception {
        Map<String, String> ends = new TreeMap<>();
        queues.setReceiveTimeout(WAIT_MS);
        JmsTemplate topics = new JmsTemplate(connections);
        topics.setPubSubDomain(true);

        queues.convertAndSend("template", "hello");
        ends.put("template", (String) queues.receiveAndConvert("template"));
        ends.put("selector", selected(queues));
        ends.put("request-reply", ((TextMessage) queues.sendAndReceive(
            "questions", session -> session.createTextMessage("question"))).getText());
        queues.convertAndSend("poison", "p");
        ends.put("poison", counted("poison", 10) + " " + queues.receiveAndConvert("poison/$DeadLetterQueue"));

        publish(topics, "before");
        ends.put("before", take("own") + " " + take("shared"));
        ask("drop");
        publish(topics, "after");
        ends.put("after", takeNext("own", "before") + " " + takeNext("shared", "before"));
        ask("detach");
        publish(topics, "again");
        ends.put("again", takeNext("own", "after") + " " + takeNext("shared", "after"));
        for (int number = 0; number < ORDERS; number++) {
            queues.convertAndSend("orders", Integer.toString(number));
        }
        ends.put("orders", Integer.toString(counted("orders", ORDERS)));
        return ends;
    }

    private static String selected(JmsTemplate template) {
        template.convertAndSend("template", "other");
        template.convertAndSend("template", "urgent", message -> {
            message.setBooleanProperty("urgent", true);
            return message;
        });
        String found = (String) template.receiveSelectedAndConvert("template", "urgent");
        return found + " " + template.receiveAndConvert("template");
    }

    private static void publish(JmsTemplate template, String text) {
        template.convertAndSend("news", text, message -> {
            message.setIntProperty("k", 1);
            return message;
        });
    }

    private String take(String listener) throws InterruptedException {
        return of(listener).poll(WAIT_MS, TimeUnit.MILLISECONDS);
    }

    /** The next text that is another one: a message comes again if the break came before its commit. */
    private String takeNext(String listener, String before) throws InterruptedException {
        String text = take(listener);
        while (before.equals(text)) {
            text = take(listener);
        }
        return text;
    }

    private int counted(String listener, int count) throws InterruptedException {
        int found = 0;
        while (found < count && take(listener) != null) {
            found++;
        }
        return found;
    }
}
