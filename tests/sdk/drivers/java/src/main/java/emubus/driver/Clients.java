package emubus.driver;

import com.azure.core.amqp.AmqpRetryMode;
import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusClientBuilder.ServiceBusReceiverClientBuilder;
import com.azure.messaging.servicebus.ServiceBusClientBuilder.ServiceBusSessionReceiverClientBuilder;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusRuleManagerClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/**
 * What the driver holds of the SDK: one builder, whose clients share a connection, a sender for each
 * entity, a rule manager for each subscription and the open receivers by their handles. Owns them all;
 * {@link #reset} closes everything, and the next use starts with a new builder and so a new connection.
 */
final class Clients {
    private static final Map<String, SubQueue> SUB_QUEUES = Map.of(
        "dead-letter", SubQueue.DEAD_LETTER_QUEUE,
        "transfer-dead-letter", SubQueue.TRANSFER_DEAD_LETTER_QUEUE);
    private static final Map<String, ServiceBusReceiveMode> MODES = Map.of(
        "peek-lock", ServiceBusReceiveMode.PEEK_LOCK,
        "receive-and-delete", ServiceBusReceiveMode.RECEIVE_AND_DELETE);

    private static final Duration TRY_TIMEOUT = Duration.ofSeconds(20);
    /** What the SDK keeps for itself of the try timeout when it tells the server how long to wait. */
    private static final Duration TRY_MARGIN = Duration.ofSeconds(1);

    private final Reach reach;
    private final Map<String, ServiceBusSenderClient> senders = new HashMap<>();
    private final Map<List<String>, ServiceBusRuleManagerClient> ruleManagers = new HashMap<>();
    private final Map<String, Receiver> receivers = new HashMap<>();
    private final List<Receiver> closed = new ArrayList<>();
    private ServiceBusClientBuilder builder;
    private boolean crossEntity;
    private long receiversCount;

    Clients(Reach reach) {
        this.reach = reach;
    }

    private ServiceBusClientBuilder builder() {
        if (builder == null) {
            builder = newBuilder(1, TRY_TIMEOUT);
            if (crossEntity) {
                builder.enableCrossEntityTransactions();
            }
        }
        return builder;
    }

    private ServiceBusClientBuilder newBuilder(int retriesMax, Duration tryTimeout) {
        // To the delay of an operation's retry the SDK adds 4 s, whatever the error; a maximum below
        // that sum makes its retry itself fail, so the maximum stays at its default.
        AmqpRetryOptions retry = new AmqpRetryOptions()
            .setMode(AmqpRetryMode.FIXED)
            .setMaxRetries(retriesMax)
            .setDelay(Duration.ofMillis(100))
            .setTryTimeout(tryTimeout);
        return reach.dataBuilder().retryOptions(retry);
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

    /** Returns the rule manager of the subscription that a request names. */
    ServiceBusRuleManagerClient ruleManager(JsonNode request) {
        String topic = request.path("entity").asText();
        String subscription = request.path("subscription").asText();
        return ruleManagers.computeIfAbsent(
            List.of(topic, subscription),
            key -> builder().ruleManager().topicName(topic).subscriptionName(subscription).buildClient());
    }

    /** Makes the receiver of a {@code receiver_open} request and returns its handle. */
    String openReceiver(JsonNode request) {
        ServiceBusReceiveMode mode = mode(request);
        ServiceBusReceiverClientBuilder made = builder().receiver()
            .disableAutoComplete()
            .maxAutoLockRenewDuration(Duration.ZERO)
            .prefetchCount(request.path("prefetch").asInt(0))
            .receiveMode(mode);
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
        ServiceBusReceiverClient receiver = made.buildClient();
        return keep(new Receiver(receiver, mode, receiver::close));
    }

    /** Makes the receiver of a {@code session_accept} request; the SDK doesn't show until when it is locked. */
    ObjectNode acceptSession(JsonNode request) {
        ServiceBusReceiveMode mode = mode(request);
        ServiceBusSessionReceiverClientBuilder made = acceptBuilder(request).sessionReceiver()
            .disableAutoComplete()
            .maxAutoLockRenewDuration(Duration.ZERO)
            .receiveMode(mode);
        String entity = request.path("entity").asText();
        if (request.hasNonNull("subscription")) {
            made.topicName(entity).subscriptionName(request.get("subscription").asText());
        } else {
            made.queueName(entity);
        }
        ServiceBusSessionReceiverClient accepting = made.buildClient();
        ServiceBusReceiverClient receiver;
        try {
            receiver = request.hasNonNull("session_id")
                ? accepting.acceptSession(request.get("session_id").textValue())
                : accepting.acceptNextSession();
        } catch (RuntimeException error) {
            accepting.close();
            throw error;
        }
        String handle = keep(new Receiver(receiver, mode, () -> {
            receiver.close();
            accepting.close();
        }));
        return JsonNodeFactory.instance.objectNode()
            .put("receiver", handle)
            .put("session_id", receiver.getSessionId())
            .putNull("locked_until_ms");
    }

    /**
     * The SDK tells the server its try timeout for how long to wait. A message session with a name isn't
     * waited for, so its receiver shares the connection, and transactions, with the others; except that a
     * connection gives the one link it has to every receiver of the same session, without asking the server,
     * and goes on for a moment when that link is being closed.
     */
    private ServiceBusClientBuilder acceptBuilder(JsonNode request) {
        if (request.hasNonNull("session_id")) {
            String sessionId = request.get("session_id").textValue();
            boolean known = Stream.concat(receivers.values().stream(), closed.stream())
                .anyMatch(receiver -> receiver.isOfSession(sessionId));
            return known ? newBuilder(1, TRY_TIMEOUT) : builder();
        }
        Duration wait = Duration.ofMillis(request.path("wait_ms").longValue());
        return newBuilder(0, wait.plus(TRY_MARGIN));
    }

    private static ServiceBusReceiveMode mode(JsonNode request) {
        String name = request.path("mode").asText();
        if (!MODES.containsKey(name)) {
            throw new IllegalArgumentException("unknown mode " + name);
        }
        return MODES.get(name);
    }

    private String keep(Receiver receiver) {
        receiversCount += 1;
        String handle = "r" + receiversCount;
        receivers.put(handle, receiver);
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
        closed.add(receiver);
    }

    /** Closes every sender and receiver; the connection goes with the last of them. */
    void reset(boolean crossEntityNext) {
        List<Runnable> closings = new ArrayList<>();
        senders.values().forEach(sender -> closings.add(sender::close));
        ruleManagers.values().forEach(manager -> closings.add(manager::close));
        receivers.values().forEach(receiver -> closings.add(receiver::close));
        senders.clear();
        ruleManagers.clear();
        receivers.clear();
        closed.clear();
        builder = null;
        crossEntity = crossEntityNext;
        closings.forEach(Runnable::run);
    }
}
