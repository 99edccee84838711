package emubus.driver;

import com.azure.core.amqp.models.AmqpMessageBodyType;
import com.azure.core.util.BinaryData;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.BiConsumer;

/**
 * Messages of the driver protocol to the SDK's messages and back. Knows the shapes of both; refuses to
 * know receivers, so the handle of a received message is given by the caller.
 */
final class Messages {
    private static final int BODY_TEXT_BYTES_MAX = 1024;

    private static final Map<String, BiConsumer<ServiceBusMessage, String>> TEXT_SETTERS = Map.of(
        "message_id", ServiceBusMessage::setMessageId,
        "subject", ServiceBusMessage::setSubject,
        "session_id", ServiceBusMessage::setSessionId,
        "partition_key", ServiceBusMessage::setPartitionKey,
        "correlation_id", ServiceBusMessage::setCorrelationId,
        "content_type", ServiceBusMessage::setContentType,
        "reply_to", ServiceBusMessage::setReplyTo,
        "reply_to_session_id", ServiceBusMessage::setReplyToSessionId,
        "to", ServiceBusMessage::setTo);

    private Messages() {
    }

    /** Returns the SDK's messages for a JSON array of messages. */
    static List<ServiceBusMessage> readAll(JsonNode nodes) {
        List<ServiceBusMessage> messages = new ArrayList<>();
        nodes.forEach(node -> messages.add(read(node)));
        return messages;
    }

    /** Returns the numbers that the decimal strings of a request's {@code sequence_numbers} stand for. */
    static List<Long> readSequenceNumbers(JsonNode request) {
        List<Long> numbers = new ArrayList<>();
        request.path("sequence_numbers").forEach(number -> numbers.add(Long.valueOf(number.asText())));
        return numbers;
    }

    /** Returns a message with a made body of {@code bytesCount} bytes. */
    static ServiceBusMessage made(int bytesCount) {
        return new ServiceBusMessage(BinaryData.fromBytes(madeBody(bytesCount)));
    }

    private static ServiceBusMessage read(JsonNode node) {
        ServiceBusMessage message = new ServiceBusMessage(BinaryData.fromBytes(readBody(node)));
        TEXT_SETTERS.forEach((name, setter) -> {
            if (node.hasNonNull(name)) {
                setter.accept(message, node.get(name).textValue());
            }
        });
        if (node.hasNonNull("ttl_ms")) {
            message.setTimeToLive(Duration.ofMillis(node.get("ttl_ms").longValue()));
        }
        if (node.hasNonNull("scheduled_at_ms")) {
            Instant instant = Instant.ofEpochMilli(node.get("scheduled_at_ms").longValue());
            message.setScheduledEnqueueTime(instant.atOffset(ZoneOffset.UTC));
        }
        message.getApplicationProperties().putAll(TypedValues.readAll(node.path("properties")));
        Map<String, Object> annotations = message.getRawAmqpMessage().getMessageAnnotations();
        node.path("annotations").fields().forEachRemaining(
            entry -> annotations.put(entry.getKey(), entry.getValue().textValue()));
        return message;
    }

    private static byte[] readBody(JsonNode node) {
        if (node.hasNonNull("body_size")) {
            return madeBody(node.get("body_size").intValue());
        }
        if (node.hasNonNull("body_base64")) {
            return Base64.getDecoder().decode(node.get("body_base64").textValue());
        }
        return node.path("body").asText("").getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] madeBody(int bytesCount) {
        byte[] body = new byte[bytesCount];
        for (int i = 0; i < bytesCount; i++) {
            body[i] = (byte) (i * 31 + 7);
        }
        return body;
    }

    /** Returns the protocol's form of a received or peeked message; {@code handle} may be null. */
    static ObjectNode write(ServiceBusReceivedMessage message, String handle) {
        // The SDK shows a message without a time to live as one of zero that expires when it is enqueued.
        boolean expires = message.getTimeToLive() != null && !message.getTimeToLive().isZero();
        ObjectNode node = JsonNodeFactory.instance.objectNode();
        node.put("handle", handle);
        node.put("message_id", message.getMessageId());
        node.put("subject", message.getSubject());
        node.put("session_id", message.getSessionId());
        node.put("partition_key", message.getPartitionKey());
        node.put("correlation_id", message.getCorrelationId());
        node.put("content_type", message.getContentType());
        node.put("reply_to", message.getReplyTo());
        node.put("reply_to_session_id", message.getReplyToSessionId());
        node.put("to", message.getTo());
        node.put("ttl_ms", expires ? message.getTimeToLive().toMillis() : null);
        node.put("sequence_number", Long.toString(message.getSequenceNumber()));
        node.put("enqueued_at_ms", millis(message.getEnqueuedTime()));
        node.put("expires_at_ms", expires ? millis(message.getExpiresAt()) : null);
        node.put("locked_until_ms", millis(message.getLockedUntil()));
        node.put("scheduled_at_ms", millis(message.getScheduledEnqueueTime()));
        node.put("delivery_count", message.getDeliveryCount());
        node.put("state", stateText(message.getState()));
        node.put("dead_letter_reason", message.getDeadLetterReason());
        node.put("dead_letter_description", message.getDeadLetterErrorDescription());
        node.put("dead_letter_source", message.getDeadLetterSource());
        node.set("properties", TypedValues.writeAll(message.getApplicationProperties()));
        // Of a body that isn't data (an AMQP value or sequence) the SDK has no bytes.
        if (message.getRawAmqpMessage().getBody().getBodyType() == AmqpMessageBodyType.DATA) {
            writeBody(node, message.getBody().toBytes());
        }
        return node;
    }

    private static void writeBody(ObjectNode node, byte[] body) {
        node.put("body", bodyText(body));
        node.put("body_size", body.length);
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(body);
            node.put("body_sha256", HexFormat.of().formatHex(digest));
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    private static String bodyText(byte[] body) {
        if (body.length > BODY_TEXT_BYTES_MAX) {
            return null;
        }
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(body)).toString();
        } catch (CharacterCodingException notText) {
            return null;
        }
    }

    private static String stateText(ServiceBusMessageState state) {
        return state == null ? "active" : state.name().toLowerCase(Locale.ROOT);
    }

    private static Long millis(OffsetDateTime instant) {
        return instant == null ? null : instant.toInstant().toEpochMilli();
    }
}
