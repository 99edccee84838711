import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import java.time.Duration;
import java.util.HashSet;
import java.util.Set;

/** Sends an order and processes it once, whatever the service does meanwhile; with `fragile` it hopes for the best. */
public class Survive {
    private static final String QUEUE = "queue.1";
    private static final int TRIES = 60;
    private static final ServiceBusClientBuilder BUILDER = new ServiceBusClientBuilder()
            .connectionString(System.getenv("SERVICEBUS_CONNECTION_STRING"))
            .retryOptions(new AmqpRetryOptions().setTryTimeout(Duration.ofSeconds(5))); // a minute as a rule

    /** The id is the order's: a second try after a lost outcome is no second order. */
    private static void send(String order) throws InterruptedException {
        for (int left = TRIES; left > 0; left--) {
            try (var sender = BUILDER.sender().queueName(QUEUE).buildClient()) {
                sender.sendMessage(new ServiceBusMessage("an order").setMessageId(order));
                return;
            } catch (RuntimeException error) { // also MESSAGING_ENTITY_NOT_FOUND, which the SDK does not try again
                Thread.sleep(1_000);
            }
        }
        throw new IllegalStateException(order + " was not accepted");
    }

    /** Until two receives in a row find nothing: one alone may be empty, while a link takes its time. */
    private static Set<String> process() throws InterruptedException {
        var done = new HashSet<String>(); // in a program: a table, written in one transaction with the work
        for (int empty = 0; empty < 2; ) {
            try (var receiver = BUILDER.receiver().queueName(QUEUE).disableAutoComplete().buildClient()) {
                empty++;
                for (var message : receiver.receiveMessages(10, Duration.ofSeconds(5))) {
                    empty = 0;
                    done.add(message.getMessageId()); // the work, unless it is done already
                    try {
                        receiver.complete(message);
                    } catch (ServiceBusException error) {
                        if (error.getReason() != ServiceBusFailureReason.MESSAGE_LOCK_LOST) {
                            throw error;
                        } // it comes again, and is known
                    }
                }
            } catch (RuntimeException error) {
                Thread.sleep(1_000);
            }
        }
        return done;
    }

    public static void main(String[] arguments) throws InterruptedException {
        if (arguments.length > 0) { // one try, and no id of the order's
            try (var sender = BUILDER.sender().queueName(QUEUE).buildClient()) {
                sender.sendMessage(new ServiceBusMessage("an order"));
            }
            return;
        }
        send("order 7");
        System.out.println("done: " + String.join(" ", process()));
    }
}
