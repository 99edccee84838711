package emubus.jms;

import com.azure.core.credential.AccessToken;
import com.azure.servicebus.jms.ServiceBusJmsConnectionFactory;
import com.azure.servicebus.jms.ServiceBusJmsConnectionFactorySettings;
import jakarta.jms.ConnectionFactory;
import java.time.OffsetDateTime;
import java.util.List;
import org.apache.qpid.jms.JmsConnectionFactory;
import reactor.core.publisher.Mono;

/** Clients of one kind, Qpid JMS or the library of Service Bus, for several namespaces: `host:port` each. */
record Clients(boolean areOfLibrary, List<String> addresses) {
    static final int PREMIUM = 0;
    static final int UNVERIFIED = 1;
    static final int STANDARD = 2;
    static final int PARTITIONED = 3;

    private static final String KEY_NAME = "RootManageSharedAccessKey";
    private static final String KEY = "SAS_KEY_VALUE";
    private static final String TOKEN = "of.a.directory";
    private static final String OPTIONS = "amqp.saslMechanisms=PLAIN&jms.deserializationPolicy.allowList=*"
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
        return areOfLibrary
            ? new ServiceBusJmsConnectionFactory(KEY_NAME, key, addresses.get(namespace), settings())
            : new JmsConnectionFactory(KEY_NAME, key, uri(namespace));
    }

    ConnectionFactory withToken(int namespace) {
        AccessToken token = new AccessToken(TOKEN, OffsetDateTime.now().plusHours(1));
        return areOfLibrary
            ? new ServiceBusJmsConnectionFactory(asked -> Mono.just(token), addresses.get(namespace), settings())
            : new JmsConnectionFactory("$jwt", TOKEN, uri(namespace));
    }

    private String uri(int namespace) {
        return "amqp://" + addresses.get(namespace) + "?" + OPTIONS;
    }

    /** Else the library would try again for ever where it is refused. */
    private static ServiceBusJmsConnectionFactorySettings settings() {
        ServiceBusJmsConnectionFactorySettings settings = new ServiceBusJmsConnectionFactorySettings();
        settings.setShouldReconnect(false);
        return settings;
    }
}
