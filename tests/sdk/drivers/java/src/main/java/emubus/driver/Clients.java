package emubus.driver;

import com.azure.core.amqp.AmqpRetryMode;
import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusClientBuilder.ServiceBusReceiverClientBuilder;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * What the driver holds of the SDK: one builder, whose clients share a connection, a sender for each
 * entity and the open receivers by their handles. Owns them all; {@link #reset} closes everything, and
 * the next use starts with a new builder and so a new connection.
 */
final class Clients {
    private static final Map<String, SubQueue> SUB_QUEUES = Map.of(
        "dead-letter", SubQueue.DEAD_LETTER_QUEUE,
        "transfer-dead-letter", SubQueue.TRANSFER_DEAD_LETTER_QUEUE);
    private static final Map<String, ServiceBusReceiveMode> MODES = Map.of(
        "peek-lock", ServiceBusReceiveMode.PEEK_LOCK,
        "receive-and-delete", ServiceBusReceiveMode.RECEIVE_AND_DELETE);

    private final String connectionString;
    private final Map<String, ServiceBusSenderClient> senders = new HashMap<>();
    private final Map<String, Receiver> receivers = new HashMap<>();
    private ServiceBusClientBuilder builder;
    private long receiversCount;

    Clients(String connectionString) {
        this.connectionString = connectionString;
    }

    private ServiceBusClientBuilder builder() {
        if (builder == null) {
            // To the delay of an operation's retry the SDK adds 4 s, whatever the error; a maximum below
            // that sum makes its retry itself fail, so the maximum stays at its default.
            AmqpRetryOptions retry = new AmqpRetryOptions()
                .setMode(AmqpRetryMode.FIXED)
                .setMaxRetries(1)
                .setDelay(Duration.ofMillis(100))
                .setTryTimeout(Duration.ofSeconds(10));
            builder = new ServiceBusClientBuilder().connectionString(connectionString).retryOptions(retry);
        }
        return builder;
    }

    /** Returns the sender to a queue or topic; the same one until it is forgotten. */
    ServiceBusSenderClient sender(String entity) {
        // The builder takes the name for that of a queue; for sending, a topic's is used in the same way.
        return senders.computeIfAbsent(entity, name -> builder().sender().queueName(name).buildClient());
    }

    void forgetSender(String entity) {
        ServiceBusSenderClient sender = senders.remove(entity);
        if (sender != null) {
            sender.close();
        }
    }

    /** Makes the receiver of a {@code receiver_open} request and returns its handle. */
    String openReceiver(JsonNode request) {
        String mode = request.path("mode").asText();
        if (!MODES.containsKey(mode)) {
            throw new IllegalArgumentException("unknown mode " + mode);
        }
        ServiceBusReceiverClientBuilder made = builder().receiver()
            .disableAutoComplete()
            .maxAutoLockRenewDuration(Duration.ZERO)
            .prefetchCount(request.path("prefetch").asInt(0))
            .receiveMode(MODES.get(mode));
        String entity = request.path("entity").asText();
        if (request.hasNonNull("subscription")) {
            made.topicName(entity).subscriptionName(request.get("subscription").asText());
        } else {
            made.queueName(entity);
        }
        if (request.hasNonNull("sub_queue")) {
            String subQueue = request.get("sub_queue").asText();
            if (!SUB_QUEUES.containsKey(subQueue)) {
                throw new IllegalArgumentException("unknown sub_queue " + subQueue);
            }
            made.subQueue(SUB_QUEUES.get(subQueue));
        }
        receiversCount += 1;
        String handle = "r" + receiversCount;
        receivers.put(handle, new Receiver(made.buildClient(), "peek-lock".equals(mode)));
        return handle;
    }

    Receiver receiver(JsonNode request) {
        Receiver receiver = receivers.get(request.path("receiver").asText());
        if (receiver == null) {
            throw new IllegalArgumentException("unknown receiver " + request.path("receiver"));
        }
        return receiver;
    }

    void closeReceiver(JsonNode request) {
        Receiver receiver = receiver(request);
        receivers.remove(request.get("receiver").asText());
        receiver.close();
    }

    /** Closes every sender and receiver; the connection goes with the last of them. */
    void reset() {
        List<Runnable> closings = new ArrayList<>();
        senders.values().forEach(sender -> closings.add(sender::close));
        receivers.values().forEach(receiver -> closings.add(receiver::close));
        senders.clear();
        receivers.clear();
        builder = null;
        closings.forEach(Runnable::run);
    }
}
