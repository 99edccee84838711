package emubus.driver;

import com.azure.core.util.CoreUtils;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.models.CreateMessageBatchOptions;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/**
 * The driver around Azure's Java SDK: one request per line in, one answer per line out, as PROTOCOL.md
 * in tests/sdk/ says. Knows the operations and nothing of the wire. Owns the {@link Clients}.
 */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Clients clients;
    private final Map<String, Function<JsonNode, ObjectNode>> operations;

    private Driver(String connectionString) {
        clients = new Clients(connectionString);
        operations = Map.ofEntries(
            Map.entry("hello", request -> hello()),
            Map.entry("send", this::send),
            Map.entry("fill_batch", this::fillBatch),
            Map.entry("receiver_open", this::openReceiver),
            Map.entry("receiver_close", this::closeReceiver),
            Map.entry("receive", request -> clients.receiver(request).receive(request)),
            Map.entry("receive_deferred", request -> clients.receiver(request).receiveDeferred(request)),
            Map.entry("peek", request -> clients.receiver(request).peek(request)),
            Map.entry("settle", request -> clients.receiver(request).settle(request)),
            Map.entry("renew_lock", request -> clients.receiver(request).renewLock(request)),
            Map.entry("reset", request -> reset()),
            Map.entry("close", request -> reset()));
    }

    /** Reads requests until the end of stdin or {@code close}; status 2 after a line that is not JSON. */
    public static void main(String[] arguments) throws IOException {
        PrintStream answers = System.out;
        // Whatever a library prints belongs to the log: stdout is the protocol's.
        System.setOut(System.err);
        int status = new Driver(arguments[0]).serve(answers);
        // The SDK's threads are no daemons, and after the last request nobody waits for them.
        System.exit(status);
    }

    private int serve(PrintStream answers) throws IOException {
        BufferedReader requests = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode request;
            try {
                request = JSON.readTree(line);
            } catch (JsonProcessingException error) {
                System.err.println("not a request: " + error.getMessage());
                return 2;
            }
            byte[] answer = JSON.writeValueAsBytes(answer(request));
            answers.write(answer, 0, answer.length);
            answers.write('\n');
            answers.flush();
            if ("close".equals(request.path("op").asText())) {
                return 0;
            }
        }
        return 0;
    }

    private ObjectNode answer(JsonNode request) {
        ObjectNode answer = JSON.createObjectNode();
        answer.set("id", request.get("id"));
        try {
            String name = request.path("op").asText();
            Function<JsonNode, ObjectNode> operation = operations.get(name);
            if (operation == null) {
                throw new IllegalArgumentException("unknown op " + name);
            }
            ObjectNode result = operation.apply(request);
            answer.put("ok", true).set("result", result);
        } catch (Exception | LinkageError | AssertionError error) {
            answer.put("ok", false).set("error", Errors.write(error));
        }
        return answer;
    }

    private static ObjectNode hello() {
        Map<String, String> sdk = CoreUtils.getProperties("azure-messaging-servicebus.properties");
        ObjectNode result = JSON.createObjectNode();
        result.put("client", "java");
        result.put("sdk", sdk.get("name") + " " + sdk.get("version"));
        result.set("property_types", JSON.valueToTree(TypedValues.TYPES));
        return result.put("modify_properties", true).put("peek_cursor", true);
    }

    private ObjectNode reset() {
        clients.reset();
        return JSON.createObjectNode();
    }

    private ObjectNode openReceiver(JsonNode request) {
        return JSON.createObjectNode().put("receiver", clients.openReceiver(request));
    }

    private ObjectNode closeReceiver(JsonNode request) {
        clients.closeReceiver(request);
        return JSON.createObjectNode();
    }

    private ObjectNode send(JsonNode request) {
        List<ServiceBusMessage> messages = Messages.readAll(request.path("messages"));
        String how = request.path("how").asText();
        return withSender(request, sender -> {
            switch (how) {
                case "single" -> messages.forEach(sender::sendMessage);
                case "list" -> sender.sendMessages(messages);
                case "batch" -> sendBatch(sender, messages);
                default -> throw new IllegalArgumentException("unknown how " + how);
            }
            return JSON.createObjectNode();
        });
    }

    private static void sendBatch(ServiceBusSenderClient sender, List<ServiceBusMessage> messages) {
        ServiceBusMessageBatch batch = sender.createMessageBatch();
        for (ServiceBusMessage message : messages) {
            if (!batch.tryAddMessage(message)) {
                throw new Errors.RefusedException("message-size", "no room in the batch");
            }
        }
        sender.sendMessages(batch);
    }

    private ObjectNode fillBatch(JsonNode request) {
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
            return JSON.createObjectNode().put("count", batch.getCount());
        });
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
