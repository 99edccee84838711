package emubus.driver;

import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;

/**
 * One receiver of the SDK and the handles of the messages it locked. Knows the operations on received
 * messages and on the message session of a receiver that has one; refuses to know how a receiver is made
 * and closed: {@link #close} runs what it was given for that.
 */
final class Receiver {
    private final ServiceBusReceiverClient client;
    private final boolean locks;
    private final Runnable closing;
    private final Map<String, ServiceBusReceivedMessage> messages = new HashMap<>();
    private long handlesCount;

    Receiver(ServiceBusReceiverClient client, ServiceBusReceiveMode mode, Runnable closing) {
        this.client = client;
        this.locks = mode == ServiceBusReceiveMode.PEEK_LOCK;
        this.closing = closing;
    }

    void close() {
        messages.clear();
        closing.run();
    }

    ObjectNode receive(JsonNode request) {
        Duration wait = Duration.ofMillis(request.path("wait_ms").longValue());
        return locked(client.receiveMessages(request.path("max").intValue(), wait));
    }

    ObjectNode receiveDeferred(JsonNode request) {
        return locked(client.receiveDeferredMessageBatch(Messages.readSequenceNumbers(request)));
    }

    ObjectNode peek(JsonNode request) {
        int max = request.path("max").intValue();
        Iterable<ServiceBusReceivedMessage> peeked = request.hasNonNull("from_sequence_number")
            ? client.peekMessages(max, Long.parseLong(request.get("from_sequence_number").asText()))
            : client.peekMessages(max);
        ArrayNode nodes = JsonNodeFactory.instance.arrayNode();
        peeked.forEach(message -> nodes.add(Messages.write(message, null)));
        return JsonNodeFactory.instance.objectNode().set("messages", nodes);
    }

    ObjectNode renewLock(JsonNode request) {
        long lockedUntil = client.renewMessageLock(find(request)).toInstant().toEpochMilli();
        return JsonNodeFactory.instance.objectNode().put("locked_until_ms", lockedUntil);
    }

    boolean isOfSession(String sessionId) {
        return sessionId.equals(client.getSessionId());
    }

    ObjectNode renewSession() {
        long lockedUntil = client.renewSessionLock().toInstant().toEpochMilli();
        return JsonNodeFactory.instance.objectNode().put("locked_until_ms", lockedUntil);
    }

    ObjectNode getSessionState() {
        byte[] state = client.getSessionState();
        String text = state == null ? null : Base64.getEncoder().encodeToString(state);
        return JsonNodeFactory.instance.objectNode().put("state_base64", text);
    }

    ObjectNode setSessionState(JsonNode request) {
        boolean clears = !request.hasNonNull("state_base64");
        client.setSessionState(clears ? null : Base64.getDecoder().decode(request.get("state_base64").textValue()));
        return JsonNodeFactory.instance.objectNode();
    }

    ServiceBusTransactionContext createTransaction() {
        return client.createTransaction();
    }

    void commitTransaction(ServiceBusTransactionContext transaction) {
        client.commitTransaction(transaction);
    }

    void rollbackTransaction(ServiceBusTransactionContext transaction) {
        client.rollbackTransaction(transaction);
    }

    /** Settles a message, as part of {@code transaction} when that isn't null. */
    ObjectNode settle(JsonNode request, ServiceBusTransactionContext transaction) {
        ServiceBusReceivedMessage message = find(request);
        String action = request.path("action").asText();
        Map<String, Object> changes = TypedValues.readAll(request.path("properties"));
        switch (action) {
            case "complete" -> complete(message, transaction);
            case "abandon" -> abandon(message, changes, transaction);
            case "defer" -> defer(message, changes, transaction);
            case "dead-letter" -> deadLetter(message, request, changes, transaction);
            default -> throw new IllegalArgumentException("unknown action " + action);
        }
        messages.remove(request.get("message").asText());
        return JsonNodeFactory.instance.objectNode();
    }

    private void complete(ServiceBusReceivedMessage message, ServiceBusTransactionContext transaction) {
        if (transaction == null) {
            client.complete(message);
        } else {
            client.complete(message, new CompleteOptions().setTransactionContext(transaction));
        }
    }

    private void abandon(
        ServiceBusReceivedMessage message, Map<String, Object> changes, ServiceBusTransactionContext transaction) {
        if (changes.isEmpty() && transaction == null) {
            client.abandon(message);
        } else {
            client.abandon(
                message,
                new AbandonOptions().setPropertiesToModify(changes).setTransactionContext(transaction));
        }
    }

    private void defer(
        ServiceBusReceivedMessage message, Map<String, Object> changes, ServiceBusTransactionContext transaction) {
        if (changes.isEmpty() && transaction == null) {
            client.defer(message);
        } else {
            client.defer(
                message,
                new DeferOptions().setPropertiesToModify(changes).setTransactionContext(transaction));
        }
    }

    private void deadLetter(
        ServiceBusReceivedMessage message,
        JsonNode request,
        Map<String, Object> changes,
        ServiceBusTransactionContext transaction) {
        DeadLetterOptions options = new DeadLetterOptions().setTransactionContext(transaction);
        boolean plain = changes.isEmpty() && transaction == null;
        if (!changes.isEmpty()) {
            options.setPropertiesToModify(changes);
        }
        if (request.hasNonNull("reason")) {
            options.setDeadLetterReason(request.get("reason").textValue());
            plain = false;
        }
        if (request.hasNonNull("description")) {
            options.setDeadLetterErrorDescription(request.get("description").textValue());
            plain = false;
        }
        if (plain) {
            client.deadLetter(message);
        } else {
            client.deadLetter(message, options);
        }
    }

    private ServiceBusReceivedMessage find(JsonNode request) {
        ServiceBusReceivedMessage message = messages.get(request.path("message").asText());
        if (message == null) {
            throw new IllegalArgumentException("unknown message " + request.path("message"));
        }
        return message;
    }

    private ObjectNode locked(Iterable<ServiceBusReceivedMessage> received) {
        ArrayNode nodes = JsonNodeFactory.instance.arrayNode();
        received.forEach(message -> nodes.add(Messages.write(message, handleFor(message))));
        return JsonNodeFactory.instance.objectNode().set("messages", nodes);
    }

    private String handleFor(ServiceBusReceivedMessage message) {
        if (!locks) {
            return null;
        }
        handlesCount += 1;
        String handle = "m" + handlesCount;
        messages.put(handle, message);
        return handle;
    }
}
