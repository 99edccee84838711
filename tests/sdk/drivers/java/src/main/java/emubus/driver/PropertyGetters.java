package emubus.driver;

import com.azure.messaging.servicebus.administration.models.EntityStatus;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Function;
import java.util.function.ToLongFunction;

/**
 * The properties of an entity that an object {@code T} of the administration client shows, by their names
 * in the driver protocol. Knows how the protocol writes values; refuses to know entities.
 */
final class PropertyGetters<T> {
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;
    private static final Duration ENDLESS_MIN = Duration.ofDays(10_000_000);

    private final Map<String, Function<T, JsonNode>> getters = new LinkedHashMap<>();

    /** A property for which there is no simpler method here; its getter may give null for nothing. */
    PropertyGetters<T> with(String name, Function<T, JsonNode> getter) {
        getters.put(name, getter);
        return this;
    }

    PropertyGetters<T> text(String name, Function<T, String> getter) {
        return nullable(name, getter, NODES::textNode);
    }

    /** A text that may be a URL, of which the entity's name is the last part. */
    PropertyGetters<T> path(String name, Function<T, String> getter) {
        return nullable(name, getter, path -> NODES.textNode(path.substring(path.lastIndexOf('/') + 1)));
    }

    PropertyGetters<T> duration(String name, Function<T, Duration> getter) {
        return nullable(
            name,
            getter,
            value -> value.compareTo(ENDLESS_MIN) > 0 ? NODES.nullNode() : NODES.numberNode(value.toMillis()));
    }

    PropertyGetters<T> instant(String name, Function<T, OffsetDateTime> getter) {
        return nullable(name, getter, value -> NODES.numberNode(value.toInstant().toEpochMilli()));
    }

    PropertyGetters<T> status(Function<T, EntityStatus> getter) {
        return nullable("status", getter, value -> NODES.textNode(value.toString()));
    }

    PropertyGetters<T> flag(String name, Function<T, Boolean> getter) {
        return nullable(name, getter, NODES::booleanNode);
    }

    PropertyGetters<T> number(String name, ToLongFunction<T> getter) {
        return with(name, source -> NODES.numberNode(getter.applyAsLong(source)));
    }

    ObjectNode write(T source) {
        ObjectNode node = NODES.objectNode();
        getters.forEach((name, getter) -> {
            JsonNode value = getter.apply(source);
            if (value != null) {
                node.set(name, value);
            }
        });
        return node;
    }

    private <V> PropertyGetters<T> nullable(String name, Function<T, V> getter, Function<V, JsonNode> writer) {
        return with(name, source -> {
            V value = getter.apply(source);
            return value == null ? null : writer.apply(value);
        });
    }
}
