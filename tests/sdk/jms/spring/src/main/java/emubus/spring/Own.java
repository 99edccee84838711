package emubus.spring;

import com.azure.servicebus.jms.ServiceBusJmsConnectionFactory;
import com.azure.servicebus.jms.ServiceBusJmsConnectionFactorySettings;
import jakarta.jms.ConnectionFactory;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Primary;
import org.springframework.jms.connection.CachingConnectionFactory;

/** An application with a connection factory of its own, which knows the port. */
@EnableAutoConfiguration
class Own {
    @Bean
    @Primary
    static ConnectionFactory connections(@Value("${port}") String port) {
        return new CachingConnectionFactory(new ServiceBusJmsConnectionFactory(
            Listeners.KEY_NAME, Listeners.KEY, "localhost:" + port, new ServiceBusJmsConnectionFactorySettings()));
    }
}
