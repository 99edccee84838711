package emubus.driver;

import com.azure.core.util.CoreUtils;
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
 * in tests/sdk/ says. Knows the operations and nothing of the wire. Owns the {@link Clients} and the
 * {@link Administration}.
 */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();

    private static final List<String> FEATURES = List.of("rules", "transactions", "administration");

    private final Reach reach;
    private final Clients clients;
    private final Transactions transactions;
    private final Administration administration;
    private final Map<String, Function<JsonNode, ObjectNode>> operations;

    private Driver(Arguments arguments) {
        Trust trust = new Trust(arguments.ca());
        reach = new Reach(arguments, trust);
        clients = new Clients(reach);
        administration = new Administration(reach);
        transactions = new Transactions(clients);
        Sending sending = new Sending(clients, transactions);
        Rules rules = new Rules(clients);
        operations = Map.ofEntries(
            Map.entry("hello", request -> hello()),
            Map.entry("send", sending::send),
            Map.entry("fill_batch", sending::fillBatch),
            Map.entry("schedule", sending::schedule),
            Map.entry("cancel_scheduled", sending::cancelScheduled),
            Map.entry("receiver_open", this::openReceiver),
            Map.entry("receiver_close", this::closeReceiver),
            Map.entry("receive", request -> clients.receiver(request).receive(request)),
            Map.entry("receive_deferred", request -> clients.receiver(request).receiveDeferred(request)),
            Map.entry("peek", request -> clients.receiver(request).peek(request)),
            Map.entry("settle", request -> clients.receiver(request).settle(request, transactions.of(request))),
            Map.entry("renew_lock", request -> clients.receiver(request).renewLock(request)),
            Map.entry("session_accept", request -> clients.acceptSession(request)),
            Map.entry("session_renew", request -> clients.receiver(request).renewSession()),
            Map.entry("session_get_state", request -> clients.receiver(request).getSessionState()),
            Map.entry("session_set_state", request -> clients.receiver(request).setSessionState(request)),
            Map.entry("rule_add", rules::add),
            Map.entry("rule_list", rules::list),
            Map.entry("rule_remove", rules::remove),
            Map.entry("transaction_begin", transactions::begin),
            Map.entry("transaction_end", transactions::end),
            Map.entry("reset", this::reset),
            Map.entry("close", this::reset));
    }

    /** Reads requests until the end of stdin or {@code close}; status 2 after a line that is not JSON. */
    public static void main(String[] arguments) throws IOException {
        PrintStream answers = System.out;
        // Whatever a library prints belongs to the log: stdout is the protocol's.
        System.setOut(System.err);
        int status = new Driver(Arguments.read(arguments)).serve(answers);
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
            Function<JsonNode, ObjectNode> operation = name.startsWith("admin_")
                ? administration.operation(name)
                : operations.get(name);
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
        result.set("features", JSON.valueToTree(FEATURES));
        return result.put("modify_properties", true).put("peek_cursor", true);
    }

    private ObjectNode reset(JsonNode request) {
        transactions.forget();
        administration.reset();
        clients.reset(request.path("cross_entity").booleanValue());
        reach.set(request);
        return JSON.createObjectNode();
    }

    private ObjectNode openReceiver(JsonNode request) {
        return JSON.createObjectNode().put("receiver", clients.openReceiver(request));
    }

    private ObjectNode closeReceiver(JsonNode request) {
        clients.closeReceiver(request);
        return JSON.createObjectNode();
    }
}
