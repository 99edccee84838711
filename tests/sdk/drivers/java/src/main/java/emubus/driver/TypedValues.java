package emubus.driver;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Base64;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.function.Function;
import org.apache.qpid.proton.amqp.Binary;

/**
 * Typed application properties of the driver protocol, to and from the Java types that proton-j puts
 * on the wire as the AMQP type of that name. Knows nothing of messages or of the SDK's clients.
 */
final class TypedValues {
    static final List<String> TYPES = List.of("int", "long", "double", "timestamp", "uuid", "binary");

    private static final Map<String, Function<JsonNode, Object>> READERS = Map.of(
        "int", JsonNode::intValue,
        "long", value -> Long.valueOf(value.asText()),
        "double", JsonNode::doubleValue,
        "timestamp", value -> new Date(value.longValue()),
        "uuid", value -> UUID.fromString(value.asText()),
        "binary", value -> new Binary(Base64.getDecoder().decode(value.asText())));

    private TypedValues() {
    }

    /** Returns the values of a JSON object of typed properties; an empty map for JSON null. */
    static Map<String, Object> readAll(JsonNode properties) {
        Map<String, Object> values = new LinkedHashMap<>();
        properties.fields().forEachRemaining(field -> values.put(field.getKey(), read(field.getValue())));
        return values;
    }

    /** Returns a JSON object with every value of {@code values} in its typed form. */
    static ObjectNode writeAll(Map<String, Object> values) {
        ObjectNode properties = JsonNodeFactory.instance.objectNode();
        values.forEach((name, value) -> properties.set(name, write(value)));
        return properties;
    }

    private static Object read(JsonNode node) {
        if (node.isNull()) {
            return null;
        }
        if (node.isTextual()) {
            return node.textValue();
        }
        if (node.isBoolean()) {
            return node.booleanValue();
        }
        Function<JsonNode, Object> reader = READERS.get(node.path("type").asText());
        if (reader == null) {
            throw new IllegalArgumentException("this SDK can't send a property like " + node);
        }
        return reader.apply(node.path("value"));
    }

    private static JsonNode write(Object value) {
        JsonNodeFactory nodes = JsonNodeFactory.instance;
        if (value == null) {
            return nodes.nullNode();
        }
        if (value instanceof String text) {
            return nodes.textNode(text);
        }
        if (value instanceof Boolean truth) {
            return nodes.booleanNode(truth);
        }
        if (value instanceof Integer number) {
            return typed("int", nodes.numberNode(number));
        }
        if (value instanceof Long number) {
            return typed("long", nodes.textNode(number.toString()));
        }
        if (value instanceof Double number) {
            return typed("double", nodes.numberNode(number));
        }
        if (value instanceof Date instant) {
            return typed("timestamp", nodes.numberNode(instant.getTime()));
        }
        if (value instanceof UUID uuid) {
            return typed("uuid", nodes.textNode(uuid.toString()));
        }
        if (value instanceof Binary binary) {
            byte[] bytes = new byte[binary.getLength()];
            binary.asByteBuffer().get(bytes);
            return typed("binary", nodes.textNode(Base64.getEncoder().encodeToString(bytes)));
        }
        return typed("other", nodes.textNode(value.toString()));
    }

    private static ObjectNode typed(String type, JsonNode value) {
        return JsonNodeFactory.instance.objectNode().put("type", type).set("value", value);
    }
}
