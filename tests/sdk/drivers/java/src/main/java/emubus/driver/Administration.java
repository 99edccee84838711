package emubus.driver;

import com.azure.core.http.policy.FixedDelayOptions;
import com.azure.core.http.policy.RetryOptions;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.models.NamespaceProperties;
import com.azure.messaging.servicebus.administration.models.QueueProperties;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SubscriptionProperties;
import com.azure.messaging.servicebus.administration.models.TopicProperties;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.function.Function;

/**
 * The administration operations. Knows how the SDK's administration client is made and which entity a
 * request names; what can be done with one knows {@link AdministeredEntity}. Owns the client, which is made
 * by the first operation that needs it and, having nothing to close, forgotten by {@link #reset}.
 */
final class Administration {
    private final Reach reach;
    private ServiceBusAdministrationClient client;

    Administration(Reach reach) {
        this.reach = reach;
    }

    /** Returns the operation of that name, which begins with {@code admin_}; null when there is none. */
    Function<JsonNode, ObjectNode> operation(String name) {
        return switch (name) {
            case "admin_create" -> this::create;
            case "admin_get" -> request -> answer("properties", entity(request).get());
            case "admin_update" -> this::update;
            case "admin_delete" -> this::delete;
            case "admin_exists" -> request -> answer("exists", nodes().booleanNode(entity(request).exists()));
            case "admin_list" -> this::list;
            case "admin_runtime" -> request -> answer("runtime", entity(request).runtime());
            case "admin_runtime_list" -> this::listRuntime;
            case "admin_namespace" -> request -> namespace();
            default -> null;
        };
    }

    void reset() {
        client = null;
    }

    private ServiceBusAdministrationClient client() {
        if (client == null) {
            client = reach.administrationBuilder()
                .retryOptions(new RetryOptions(new FixedDelayOptions(0, Duration.ofMillis(100))))
                .buildClient();
        }
        return client;
    }

    private AdministeredEntity entity(JsonNode request) {
        if (request.hasNonNull("queue")) {
            return new AdministeredQueue(client(), request.get("queue").textValue());
        }
        String topic = request.path("topic").asText();
        String subscription = request.path("subscription").asText();
        if (request.hasNonNull("rule")) {
            return new AdministeredRule(client(), topic, subscription, request.get("rule").textValue());
        }
        return request.hasNonNull("subscription")
            ? new AdministeredSubscription(client(), topic, subscription)
            : new AdministeredTopic(client(), topic);
    }

    private ObjectNode create(JsonNode request) {
        return answer("properties", entity(request).create(request.path("properties")));
    }

    private ObjectNode update(JsonNode request) {
        AdministeredEntity entity = entity(request);
        entity.update(request.path("properties"));
        return answer("properties", entity.get());
    }

    private ObjectNode delete(JsonNode request) {
        entity(request).delete();
        return nodes().objectNode();
    }

    private ObjectNode list(JsonNode request) {
        String topic = request.path("topic").asText();
        return switch (request.path("kind").asText()) {
            case "queues" -> names(client().listQueues(), QueueProperties::getName);
            case "topics" -> names(client().listTopics(), TopicProperties::getName);
            case "subscriptions" -> names(
                client().listSubscriptions(topic), SubscriptionProperties::getSubscriptionName);
            case "rules" -> names(
                client().listRules(topic, request.path("subscription").asText()), RuleProperties::getName);
            default -> throw new IllegalArgumentException("unknown kind " + request.path("kind"));
        };
    }

    private ObjectNode listRuntime(JsonNode request) {
        ObjectNode runtime = nodes().objectNode();
        switch (request.path("kind").asText()) {
            case "queues" -> client().listQueues()
                .forEach(queue -> runtime.set(queue.getName(), AdministeredQueue.runtime(queue)));
            case "topics" -> client().listTopics()
                .forEach(topic -> runtime.set(topic.getName(), AdministeredTopic.runtime(topic)));
            case "subscriptions" -> client().listSubscriptions(request.path("topic").asText())
                .forEach(subscription -> runtime.set(
                    subscription.getSubscriptionName(), AdministeredSubscription.runtime(subscription)));
            default -> throw new IllegalArgumentException("unknown kind " + request.path("kind"));
        }
        return answer("runtime", runtime);
    }

    private ObjectNode namespace() {
        NamespaceProperties namespace = client().getNamespaceProperties();
        ObjectNode result = nodes().objectNode()
            .put("name", namespace.getName())
            .put("sku", namespace.getMessagingSku().toString());
        if (namespace.getMessagingUnits() != null) {
            result.put("messaging_units", namespace.getMessagingUnits());
        }
        return result;
    }

    private static <T> ObjectNode names(Iterable<T> entities, Function<T, String> name) {
        ArrayNode names = nodes().arrayNode();
        entities.forEach(entity -> names.add(name.apply(entity)));
        return answer("names", names);
    }

    private static ObjectNode answer(String key, JsonNode value) {
        return nodes().objectNode().set(key, value);
    }

    private static JsonNodeFactory nodes() {
        return JsonNodeFactory.instance;
    }
}
