package emubus.driver;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.models.CreateMessageBatchOptions;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.List;
import java.util.function.Function;

/**
 * The operations on a sender to a queue or topic. Knows the SDK's send and schedule calls; refuses to know
 * where senders and transactions are kept. Owns nothing: the {@link Clients} own the senders.
 */
final class Sending {
    private final Clients clients;
    private final Transactions transactions;

    Sending(Clients clients, Transactions transactions) {
        this.clients = clients;
        this.transactions = transactions;
    }

    ObjectNode send(JsonNode request) {
        List<ServiceBusMessage> messages = Messages.readAll(request.path("messages"));
        ServiceBusTransactionContext transaction = transactions.of(request);
        String how = request.path("how").asText();
        return withSender(request, sender -> {
            switch (how) {
                case "single" -> messages.forEach(message -> sendOne(sender, message, transaction));
                case "list" -> sendList(sender, messages, transaction);
                case "batch" -> sendBatch(sender, batchOf(sender, messages), transaction);
                default -> throw new IllegalArgumentException("unknown how " + how);
            }
            return JsonNodeFactory.instance.objectNode();
        });
    }

    ObjectNode fillBatch(JsonNode request) {
        int bodyBytes = request.path("body_bytes").intValue();
        return withSender(request, sender -> {
            CreateMessageBatchOptions options = new CreateMessageBatchOptions();
            if (request.hasNonNull("max_bytes")) {
                options.setMaximumSizeInBytes(request.get("max_bytes").intValue());
            }
            ServiceBusMessageBatch batch = sender.createMessageBatch(options);
            while (batch.tryAddMessage(Messages.made(bodyBytes))) {
                continue;
            }
            if (batch.getCount() == 0) {
                throw new Errors.RefusedException("message-size", "no room in an empty batch");
            }
            sender.sendMessages(batch);
            return JsonNodeFactory.instance.objectNode().put("count", batch.getCount());
        });
    }

    ObjectNode schedule(JsonNode request) {
        List<ServiceBusMessage> messages = Messages.readAll(request.path("messages"));
        ServiceBusTransactionContext transaction = transactions.of(request);
        OffsetDateTime instant = Instant.ofEpochMilli(request.path("at_ms").longValue())
            .atOffset(ZoneOffset.UTC);
        return withSender(request, sender -> {
            Iterable<Long> numbers = transaction == null
                ? sender.scheduleMessages(messages, instant)
                : sender.scheduleMessages(messages, instant, transaction);
            ArrayNode texts = JsonNodeFactory.instance.arrayNode();
            numbers.forEach(number -> texts.add(number.toString()));
            return JsonNodeFactory.instance.objectNode().set("sequence_numbers", texts);
        });
    }

    ObjectNode cancelScheduled(JsonNode request) {
        List<Long> numbers = Messages.readSequenceNumbers(request);
        return withSender(request, sender -> {
            sender.cancelScheduledMessages(numbers);
            return JsonNodeFactory.instance.objectNode();
        });
    }

    private static void sendOne(
        ServiceBusSenderClient sender, ServiceBusMessage message, ServiceBusTransactionContext transaction) {
        if (transaction == null) {
            sender.sendMessage(message);
        } else {
            sender.sendMessage(message, transaction);
        }
    }

    private static void sendList(
        ServiceBusSenderClient sender, List<ServiceBusMessage> messages, ServiceBusTransactionContext transaction) {
        if (transaction == null) {
            sender.sendMessages(messages);
        } else {
            sender.sendMessages(messages, transaction);
        }
    }

    private static void sendBatch(
        ServiceBusSenderClient sender, ServiceBusMessageBatch batch, ServiceBusTransactionContext transaction) {
        if (transaction == null) {
            sender.sendMessages(batch);
        } else {
            sender.sendMessages(batch, transaction);
        }
    }

    private static ServiceBusMessageBatch batchOf(ServiceBusSenderClient sender, List<ServiceBusMessage> messages) {
        ServiceBusMessageBatch batch = sender.createMessageBatch();
        for (ServiceBusMessage message : messages) {
            if (!batch.tryAddMessage(message)) {
                throw new Errors.RefusedException("message-size", "no room in the batch");
            }
        }
        return batch;
    }

    private ObjectNode withSender(JsonNode request, Function<ServiceBusSenderClient, ObjectNode> work) {
        String entity = request.path("entity").asText();
        try {
            return work.apply(clients.sender(entity));
        } catch (RuntimeException error) {
            clients.forgetSender(entity);
            throw error;
        }
    }
}
