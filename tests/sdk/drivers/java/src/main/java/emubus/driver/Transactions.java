package emubus.driver;

import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Consumer;

/**
 * The open transactions by their ids, each with the calls that end it through what began it. Knows no
 * work that is done in them. Owns nothing: a transaction lives in the server, on the clients' connection.
 */
final class Transactions {
    private final Clients clients;
    private final Map<String, Open> transactions = new HashMap<>();
    private long transactionsCount;

    Transactions(Clients clients) {
        this.clients = clients;
    }

    private record Open(
        ServiceBusTransactionContext context,
        Consumer<ServiceBusTransactionContext> commit,
        Consumer<ServiceBusTransactionContext> rollback) {
    }

    ObjectNode begin(JsonNode request) {
        Open open;
        if (request.hasNonNull("receiver")) {
            Receiver receiver = clients.receiver(request);
            open = new Open(
                receiver.createTransaction(), receiver::commitTransaction, receiver::rollbackTransaction);
        } else {
            // The sender may have been forgotten by the time of the end, after a send that failed.
            String entity = request.path("entity").asText();
            open = new Open(
                clients.sender(entity).createTransaction(),
                context -> clients.sender(entity).commitTransaction(context),
                context -> clients.sender(entity).rollbackTransaction(context));
        }
        transactionsCount += 1;
        String id = "t" + transactionsCount;
        transactions.put(id, open);
        return JsonNodeFactory.instance.objectNode().put("transaction", id);
    }

    ObjectNode end(JsonNode request) {
        Open open = find(request);
        transactions.remove(request.get("transaction").asText());
        boolean commit = request.path("commit").booleanValue();
        (commit ? open.commit() : open.rollback()).accept(open.context());
        return JsonNodeFactory.instance.objectNode();
    }

    /** Returns the transaction that a request is part of; null when it names none. */
    ServiceBusTransactionContext of(JsonNode request) {
        return request.hasNonNull("transaction") ? find(request).context() : null;
    }

    void forget() {
        transactions.clear();
    }

    private Open find(JsonNode request) {
        Open open = transactions.get(request.path("transaction").asText());
        if (open == null) {
            throw new IllegalArgumentException("unknown transaction " + request.path("transaction"));
        }
        return open;
    }
}
