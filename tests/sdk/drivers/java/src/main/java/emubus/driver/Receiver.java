package emubus.driver;

import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * One receiver of the SDK and the handles of the messages it locked. Knows the operations on received
 * messages; refuses to know how a receiver is made. Owns the SDK's receiver: {@link #close} closes it.
 */
final class Receiver {
    private final ServiceBusReceiverClient client;
    private final boolean locks;
    private final Map<String, ServiceBusReceivedMessage> messages = new HashMap<>();
    private long handlesCount;

    Receiver(ServiceBusReceiverClient client, boolean locks) {
        this.client = client;
        this.locks = locks;
    }

    void close() {
        messages.clear();
        client.close();
    }

    ObjectNode receive(JsonNode request) {
        Duration wait = Duration.ofMillis(request.path("wait_ms").longValue());
        return locked(client.receiveMessages(request.path("max").intValue(), wait));
    }

    ObjectNode receiveDeferred(JsonNode request) {
        List<Long> numbers = new ArrayList<>();
        request.path("sequence_numbers").forEach(number -> numbers.add(Long.valueOf(number.asText())));
        return locked(client.receiveDeferredMessageBatch(numbers));
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

    ObjectNode settle(JsonNode request) {
        ServiceBusReceivedMessage message = find(request);
        String action = request.path("action").asText();
        Map<String, Object> changes = TypedValues.readAll(request.path("properties"));
        switch (action) {
            case "complete" -> client.complete(message);
            case "abandon" -> abandon(message, changes);
            case "defer" -> defer(message, changes);
            case "dead-letter" -> deadLetter(message, request, changes);
            default -> throw new IllegalArgumentException("unknown action " + action);
        }
        messages.remove(request.get("message").asText());
        return JsonNodeFactory.instance.objectNode();
    }

    private void abandon(ServiceBusReceivedMessage message, Map<String, Object> changes) {
        if (changes.isEmpty()) {
            client.abandon(message);
        } else {
            client.abandon(message, new AbandonOptions().setPropertiesToModify(changes));
        }
    }

    private void defer(ServiceBusReceivedMessage message, Map<String, Object> changes) {
        if (changes.isEmpty()) {
            client.defer(message);
        } else {
            client.defer(message, new DeferOptions().setPropertiesToModify(changes));
        }
    }

    private void deadLetter(
        ServiceBusReceivedMessage message, JsonNode request, Map<String, Object> changes) {
        DeadLetterOptions options = new DeadLetterOptions();
        boolean plain = changes.isEmpty();
        if (!plain) {
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
