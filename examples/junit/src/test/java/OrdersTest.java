import static org.junit.jupiter.api.Assertions.assertEquals;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import java.time.Duration;
import java.util.ArrayList;
import org.junit.jupiter.api.Test;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.wait.strategy.Wait;
import org.testcontainers.junit.jupiter.Container;
import org.testcontainers.junit.jupiter.Testcontainers;

/** A generic container: Testcontainers' own module for Service Bus also wants an SQL Server. */
@Testcontainers
class OrdersTest {
    @Container
    static final GenericContainer<?> EMUBUS = new GenericContainer<>("emubus:latest")
            .withExposedPorts(5672, 5300)
            .withEnv("EMUBUS_DURABILITY", "none")
            .withEnv("EMUBUS_QUEUES", "orders,steps?sessions")
            .waitingFor(Wait.forHttp("/health").forPort(5300));

    static String connectionString() {
        return "Endpoint=sb://%s:%d;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;"
                .formatted(EMUBUS.getHost(), EMUBUS.getMappedPort(5672)) + "UseDevelopmentEmulator=true";
    }

    @Test
    void anOrderArrives() {
        var builder = new ServiceBusClientBuilder().connectionString(connectionString());
        try (var sender = builder.sender().queueName("orders").buildClient()) {
            sender.sendMessage(new ServiceBusMessage("order 7"));
        }
        var bodies = new ArrayList<String>();
        try (var receiver = builder.receiver().queueName("orders").buildClient()) {
            receiver.receiveMessages(1, Duration.ofSeconds(5)).forEach(message -> {
                bodies.add(message.getBody().toString());
                receiver.complete(message);
            });
        }
        assertEquals(java.util.List.of("order 7"), bodies);
    }
}
