package emubus.driver;

import com.azure.messaging.servicebus.administration.models.EntityStatus;
import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.function.BiConsumer;
import java.util.function.Function;
import java.util.function.ObjIntConsumer;
import java.util.function.ObjLongConsumer;

/**
 * The properties of an entity that can be set on an object {@code T} of the administration client, by
 * their names in the driver protocol. Knows how the protocol writes values; refuses to know entities.
 */
final class PropertySetters<T> {
    private final Map<String, BiConsumer<T, JsonNode>> setters = new HashMap<>();

    /** A property for which there is no simpler method here; its setter gets JSON null to clear it. */
    PropertySetters<T> with(String name, BiConsumer<T, JsonNode> setter) {
        setters.put(name, setter);
        return this;
    }

    PropertySetters<T> text(String name, BiConsumer<T, String> setter) {
        return nullable(name, setter, JsonNode::textValue);
    }

    PropertySetters<T> duration(String name, BiConsumer<T, Duration> setter) {
        return nullable(name, setter, value -> Duration.ofMillis(value.longValue()));
    }

    PropertySetters<T> status(BiConsumer<T, EntityStatus> setter) {
        return nullable("status", setter, value -> EntityStatus.fromString(value.textValue()));
    }

    PropertySetters<T> flag(String name, BiConsumer<T, Boolean> setter) {
        return with(name, (target, value) -> setter.accept(target, present(name, value).booleanValue()));
    }

    PropertySetters<T> int32(String name, ObjIntConsumer<T> setter) {
        return with(name, (target, value) -> setter.accept(target, present(name, value).intValue()));
    }

    PropertySetters<T> int64(String name, ObjLongConsumer<T> setter) {
        return with(name, (target, value) -> setter.accept(target, present(name, value).longValue()));
    }

    /** Sets what {@code properties} has, for a new entity: null is the same as absent. */
    T create(T target, JsonNode properties) {
        return set(target, properties, false);
    }

    /** Sets what {@code properties} has, for an entity that is there: null clears a property. */
    T update(T target, JsonNode properties) {
        return set(target, properties, true);
    }

    private T set(T target, JsonNode properties, boolean nullClears) {
        Iterator<Map.Entry<String, JsonNode>> fields = properties.fields();
        while (fields.hasNext()) {
            Map.Entry<String, JsonNode> field = fields.next();
            if (field.getValue().isNull() && !nullClears) {
                continue;
            }
            BiConsumer<T, JsonNode> setter = setters.get(field.getKey());
            if (setter == null) {
                throw new IllegalArgumentException(
                    target.getClass().getSimpleName() + " has no setter for " + field.getKey());
            }
            setter.accept(target, field.getValue());
        }
        return target;
    }

    private <V> PropertySetters<T> nullable(String name, BiConsumer<T, V> setter, Function<JsonNode, V> reader) {
        return with(name, (target, value) -> setter.accept(target, value.isNull() ? null : reader.apply(value)));
    }

    private static JsonNode present(String name, JsonNode value) {
        if (value.isNull()) {
            throw new IllegalArgumentException("the SDK can't clear " + name);
        }
        return value;
    }
}
