import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import java.time.Duration;

/** Sends a message to queue.1 and receives it: mvn -q compile exec:java. */
public class Hello {
    private static final String LOCAL =
            "Endpoint=sb://localhost:5672;SharedAccessKeyName=RootManageSharedAccessKey;"
                    + "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true";

    public static void main(String[] arguments) {
        var connectionString = System.getenv().getOrDefault("SERVICEBUS_CONNECTION_STRING", LOCAL);
        var builder = new ServiceBusClientBuilder().connectionString(connectionString);
        try (var sender = builder.sender().queueName("queue.1").buildClient()) {
            sender.sendMessage(new ServiceBusMessage("hello"));
        }
        try (var receiver = builder.receiver().queueName("queue.1").buildClient()) {
            receiver.receiveMessages(1, Duration.ofSeconds(5)).forEach(message -> {
                System.out.println("received: " + message.getBody());
                receiver.complete(message);
            });
        }
    }
}
