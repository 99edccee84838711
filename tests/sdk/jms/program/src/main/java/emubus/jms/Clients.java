package emubus.jms;

import com.azure.core.credential.AccessToken;
import com.azure.servicebus.jms.ServiceBusJmsConnectionFactory;
import com.azure.servicebus.jms.ServiceBusJmsConnectionFactorySettings;
import jakarta.jms.ConnectionFactory;
import java.time.OffsetDateTime;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.qpid.jms.JmsConnectionExtensions;
import org.apache.qpid.jms.JmsConnectionFactory;
import reactor.core.publisher.Mono;

/** Clients of one kind, Qpid JMS or the library of Service Bus, for several namespaces: `host:port` each. */
record Clients(boolean areOfLibrary, List<String> addresses) {
    static final int PREMIUM = 0;
    static final int UNVERIFIED = 1;
    static final int STANDARD = 2;
    static final int PARTITIONED = 3;
    static final int KILLED = 4;
    static final String SENDS = "Sends";

    private static final String KEY_NAME = "RootManageSharedAccessKey";
    private static final String KEY = "SAS_KEY_VALUE";
    private static final String TOKEN = "of.a.directory";
    private static final String MECHANISM = "?amqp.saslMechanisms=PLAIN";
    private static final String OPTIONS = "&jms.deserializationPolicy.allowList=*"
        + "&jms.deserializationPolicy.whiteList=*";

    ConnectionFactory usual() {
        return of(PREMIUM);
    }

    /** Connections that fetch no message before it is asked for. */
    ConnectionFactory lazy() {
        return areOfLibrary
            ? of(PREMIUM)
            : new JmsConnectionFactory(KEY_NAME, KEY, uri(PREMIUM) + "&jms.prefetchPolicy.all=0");
    }

    ConnectionFactory of(int namespace) {
        return of(namespace, KEY);
    }

    ConnectionFactory of(int namespace, String key) {
        return of(namespace, KEY_NAME, key);
    }

    /** Connections with a key that may only send. */
    ConnectionFactory sending() {
        return of(PREMIUM, SENDS, SENDS);
    }

    private ConnectionFactory of(int namespace, String keyName, String key) {
        return areOfLibrary
            ? new ServiceBusJmsConnectionFactory(keyName, key, addresses.get(namespace), settings())
            : new JmsConnectionFactory(keyName, key, uri(namespace));
    }

    /** Connections that leave it to the broker to look at selectors. */
    ConnectionFactory unvalidated() {
        if (!areOfLibrary) {
            return new JmsConnectionFactory(KEY_NAME, KEY, uri(PREMIUM) + "&jms.validateSelector=false");
        }
        Map<String, String> options = new HashMap<>();
        options.put("jms.validateSelector", "false");
        ServiceBusJmsConnectionFactorySettings settings = new ServiceBusJmsConnectionFactorySettings(options);
        settings.setShouldReconnect(false);
        return new ServiceBusJmsConnectionFactory(KEY_NAME, KEY, addresses.get(PREMIUM), settings);
    }

    /** Connections of Qpid JMS that are those of the library: what they make goes when it is idle for `seconds`. */
    ConnectionFactory makingPassingEntities(long seconds) {
        Map<String, Object> properties = new HashMap<>();
        properties.put("com.microsoft:is-client-provider", true);
        for (String kind : List.of("queue", "topic", "subscriber")) {
            properties.put("com.microsoft:" + kind + "-auto-delete-on-idle-duration-in-seconds", seconds);
        }
        JmsConnectionFactory factory = new JmsConnectionFactory(KEY_NAME, KEY, uri(PREMIUM));
        factory.setExtension(
            JmsConnectionExtensions.AMQP_OPEN_PROPERTIES.toString(), (connection, uri) -> properties);
        return factory;
    }

    /** Connections that are made again when they break, and fetch no message before it is asked for. */
    ConnectionFactory lasting(int namespace) {
        if (!areOfLibrary) {
            String options = "?jms.prefetchPolicy.all=0";
            return new JmsConnectionFactory(KEY_NAME, KEY, "failover:(" + address(namespace) + ")" + options);
        }
        return new ServiceBusJmsConnectionFactory(
            KEY_NAME, KEY, addresses.get(namespace), new ServiceBusJmsConnectionFactorySettings());
    }

    ConnectionFactory withToken(int namespace) {
        AccessToken token = new AccessToken(TOKEN, OffsetDateTime.now().plusHours(1));
        return areOfLibrary
            ? new ServiceBusJmsConnectionFactory(asked -> Mono.just(token), addresses.get(namespace), settings())
            : new JmsConnectionFactory("$jwt", TOKEN, uri(namespace));
    }

    private String uri(int namespace) {
        return address(namespace) + OPTIONS;
    }

    private String address(int namespace) {
        return "amqp://" + addresses.get(namespace) + MECHANISM;
    }

    /** Else the library would try again for ever where it is refused. */
    private static ServiceBusJmsConnectionFactorySettings settings() {
        ServiceBusJmsConnectionFactorySettings settings = new ServiceBusJmsConnectionFactorySettings();
        settings.setShouldReconnect(false);
        return settings;
    }
}
