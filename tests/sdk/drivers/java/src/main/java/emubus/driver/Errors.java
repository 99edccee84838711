package emubus.driver;

import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.core.exception.HttpResponseException;
import com.azure.core.exception.ResourceNotFoundException;
import com.azure.messaging.servicebus.ServiceBusException;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeoutException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import reactor.core.Exceptions;

/**
 * Exceptions of the SDK, and of what it is built on, to the kinds of error of the driver protocol. Knows
 * reasons, AMQP conditions, HTTP statuses and exception classes; refuses to know operations.
 */
final class Errors {
    private static final Map<String, String> KIND_BY_REASON = Map.ofEntries(
        Map.entry("MESSAGING_ENTITY_NOT_FOUND", "not-found"),
        Map.entry("MESSAGE_SIZE_EXCEEDED", "message-size"),
        Map.entry("MESSAGE_LOCK_LOST", "lock-lost"),
        Map.entry("SESSION_LOCK_LOST", "session-lock-lost"),
        Map.entry("SESSION_CANNOT_BE_LOCKED", "session-cannot-be-locked"),
        Map.entry("SERVICE_TIMEOUT", "timeout"),
        Map.entry("UNAUTHORIZED", "unauthorized"),
        Map.entry("QUOTA_EXCEEDED", "quota"),
        Map.entry("SERVICE_BUSY", "busy"),
        Map.entry("MESSAGING_ENTITY_DISABLED", "disabled"),
        Map.entry("MESSAGE_NOT_FOUND", "message-not-found"),
        Map.entry("MESSAGING_ENTITY_ALREADY_EXISTS", "exists"));

    private static final Map<AmqpErrorCondition, String> KIND_BY_CONDITION = Map.ofEntries(
        Map.entry(AmqpErrorCondition.NOT_FOUND, "not-found"),
        Map.entry(AmqpErrorCondition.LINK_PAYLOAD_SIZE_EXCEEDED, "message-size"),
        Map.entry(AmqpErrorCondition.MESSAGE_LOCK_LOST, "lock-lost"),
        Map.entry(AmqpErrorCondition.SESSION_LOCK_LOST, "session-lock-lost"),
        Map.entry(AmqpErrorCondition.SESSION_CANNOT_BE_LOCKED, "session-cannot-be-locked"),
        Map.entry(AmqpErrorCondition.TIMEOUT_ERROR, "timeout"),
        Map.entry(AmqpErrorCondition.UNAUTHORIZED_ACCESS, "unauthorized"),
        Map.entry(AmqpErrorCondition.RESOURCE_LIMIT_EXCEEDED, "quota"),
        Map.entry(AmqpErrorCondition.SERVER_BUSY_ERROR, "busy"),
        Map.entry(AmqpErrorCondition.ENTITY_DISABLED_ERROR, "disabled"),
        Map.entry(AmqpErrorCondition.MESSAGE_NOT_FOUND, "message-not-found"),
        Map.entry(AmqpErrorCondition.NOT_ALLOWED, "not-allowed"),
        Map.entry(AmqpErrorCondition.ENTITY_ALREADY_EXISTS, "exists"),
        Map.entry(AmqpErrorCondition.ARGUMENT_ERROR, "argument"),
        Map.entry(AmqpErrorCondition.ARGUMENT_OUT_OF_RANGE_ERROR, "argument"));

    /** Conditions that the SDK has no constant for; of those it keeps nothing but the text. */
    private static final Map<String, String> KIND_BY_CONDITION_TEXT = Map.of(
        "amqp:transaction:unknown-id", "transaction",
        "amqp:transaction:rollback", "transaction");

    /** The administration client has exceptions for some of these and shows the others by their status. */
    private static final Map<Integer, String> KIND_BY_STATUS = Map.of(
        400, "argument",
        401, "unauthorized",
        403, "quota",
        404, "not-found",
        409, "exists",
        503, "busy");

    private static final Pattern CONDITION_TEXT = Pattern.compile("errorCondition\\[([^\\]]+)\\]");

    private Errors() {
    }

    /** A refusal that the SDK tells by a return value, not by an exception. */
    static final class RefusedException extends RuntimeException {
        private static final long serialVersionUID = 1L;

        private final String kind;

        RefusedException(String kind, String message) {
            super(message);
            this.kind = kind;
        }
    }

    /** Returns the {@code error} object of an answer: the exception that tells the kind, or the outermost. */
    static ObjectNode write(Throwable error) {
        String kind = "other";
        String code = null;
        // Reactor wraps a checked exception to throw it from a blocking call.
        Throwable shown = Exceptions.unwrap(error);
        Set<Throwable> seen = Collections.newSetFromMap(new IdentityHashMap<>());
        for (Throwable link = error; link != null && seen.add(link); link = link.getCause()) {
            String found = "other".equals(kind) ? kindOf(link) : "other";
            boolean tells = !"other".equals(found);
            if (tells) {
                kind = found;
                shown = link;
            }
            if (code == null || tells && codeOf(link) != null) {
                code = codeOf(link);
            }
        }
        return JsonNodeFactory.instance.objectNode()
            .put("kind", kind)
            .put("type", shown.getClass().getSimpleName())
            .put("code", code)
            .put("message", String.valueOf(shown.getMessage()));
    }

    private static String kindOf(Throwable error) {
        if (error instanceof RefusedException refusal) {
            return refusal.kind;
        }
        if (error instanceof ServiceBusException failure) {
            return KIND_BY_REASON.getOrDefault(failure.getReason().toString(), "other");
        }
        if (error instanceof AmqpException failure && failure.getErrorCondition() != null) {
            return KIND_BY_CONDITION.getOrDefault(failure.getErrorCondition(), "other");
        }
        if (error instanceof AmqpException) {
            return KIND_BY_CONDITION_TEXT.getOrDefault(String.valueOf(codeOf(error)), "other");
        }
        // For a queue or topic that isn't there this one comes with the status of the answer, 200.
        if (error instanceof ResourceNotFoundException) {
            return "not-found";
        }
        if (error instanceof HttpResponseException failure && failure.getResponse() != null) {
            return KIND_BY_STATUS.getOrDefault(failure.getResponse().getStatusCode(), "other");
        }
        // The SDK turns amqp:not-allowed into this class, with nothing but the text.
        if (error instanceof UnsupportedOperationException) {
            return "not-allowed";
        }
        // The sync clients block on the async ones: block() tells the end of its wait by its text.
        boolean blockedTooLong = error instanceof IllegalStateException
            && String.valueOf(error.getMessage()).startsWith("Timeout on blocking read");
        return blockedTooLong || error instanceof TimeoutException ? "timeout" : "other";
    }

    private static String codeOf(Throwable error) {
        if (error instanceof ServiceBusException failure) {
            return failure.getReason().toString();
        }
        if (error instanceof AmqpException failure && failure.getErrorCondition() != null) {
            return failure.getErrorCondition().getErrorCondition();
        }
        if (error instanceof HttpResponseException failure && failure.getResponse() != null) {
            return String.valueOf(failure.getResponse().getStatusCode());
        }
        Matcher condition = CONDITION_TEXT.matcher(String.valueOf(error.getMessage()));
        return condition.find() ? condition.group(1) : null;
    }
}
