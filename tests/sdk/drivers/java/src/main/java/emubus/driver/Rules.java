package emubus.driver;

import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.FalseRuleFilter;
import com.azure.messaging.servicebus.administration.models.RuleFilter;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.TrueRuleFilter;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import java.util.function.BiConsumer;
import java.util.function.Function;

/**
 * The operations on the rules of a subscription, and rules of the driver protocol to the SDK's rules and
 * back, for the administration too. Does not know how a rule manager is made. Owns nothing: the
 * {@link Clients} own the managers.
 */
final class Rules {
    private record Text(
        Function<CorrelationRuleFilter, String> getter,
        BiConsumer<CorrelationRuleFilter, String> setter) {
    }

    private static final Map<String, Text> CORRELATION_TEXTS = Map.of(
        "correlation_id",
        new Text(CorrelationRuleFilter::getCorrelationId, CorrelationRuleFilter::setCorrelationId),
        "message_id", new Text(CorrelationRuleFilter::getMessageId, CorrelationRuleFilter::setMessageId),
        "to", new Text(CorrelationRuleFilter::getTo, CorrelationRuleFilter::setTo),
        "reply_to", new Text(CorrelationRuleFilter::getReplyTo, CorrelationRuleFilter::setReplyTo),
        "subject", new Text(CorrelationRuleFilter::getLabel, CorrelationRuleFilter::setLabel),
        "session_id", new Text(CorrelationRuleFilter::getSessionId, CorrelationRuleFilter::setSessionId),
        "reply_to_session_id",
        new Text(CorrelationRuleFilter::getReplyToSessionId, CorrelationRuleFilter::setReplyToSessionId),
        "content_type",
        new Text(CorrelationRuleFilter::getContentType, CorrelationRuleFilter::setContentType));

    private final Clients clients;

    Rules(Clients clients) {
        this.clients = clients;
    }

    ObjectNode add(JsonNode request) {
        clients.ruleManager(request).createRule(request.path("name").asText(), readOptions(request));
        return JsonNodeFactory.instance.objectNode();
    }

    ObjectNode list(JsonNode request) {
        ArrayNode rules = JsonNodeFactory.instance.arrayNode();
        clients.ruleManager(request).listRules().forEach(rule -> rules.add(write(rule)));
        return JsonNodeFactory.instance.objectNode().set("rules", rules);
    }

    ObjectNode remove(JsonNode request) {
        clients.ruleManager(request).deleteRule(request.path("name").asText());
        return JsonNodeFactory.instance.objectNode();
    }

    /** Returns the SDK's form of a {@code filter} and {@code action}. */
    static CreateRuleOptions readOptions(JsonNode node) {
        CreateRuleOptions options = new CreateRuleOptions(readFilter(node.path("filter")));
        if (node.hasNonNull("action")) {
            options.setAction(new SqlRuleAction(node.get("action").textValue()));
        }
        return options;
    }

    static RuleFilter readFilter(JsonNode node) {
        if (node.hasNonNull("sql")) {
            return new SqlRuleFilter(node.get("sql").textValue());
        }
        if (node.hasNonNull("correlation")) {
            return readCorrelation(node.get("correlation"));
        }
        if (node.hasNonNull("true")) {
            return new TrueRuleFilter();
        }
        if (node.hasNonNull("false")) {
            return new FalseRuleFilter();
        }
        throw new IllegalArgumentException("unknown filter " + node);
    }

    private static CorrelationRuleFilter readCorrelation(JsonNode node) {
        CorrelationRuleFilter filter = new CorrelationRuleFilter();
        CORRELATION_TEXTS.forEach((name, text) -> {
            if (node.hasNonNull(name)) {
                text.setter().accept(filter, node.get(name).textValue());
            }
        });
        filter.getProperties().putAll(TypedValues.readAll(node.path("properties")));
        return filter;
    }

    static ObjectNode write(RuleProperties rule) {
        ObjectNode node = JsonNodeFactory.instance.objectNode().put("name", rule.getName());
        node.set("filter", writeFilter(rule.getFilter()));
        if (rule.getAction() instanceof SqlRuleAction action) {
            node.put("action", action.getSqlExpression());
        }
        return node;
    }

    private static ObjectNode writeFilter(RuleFilter filter) {
        ObjectNode node = JsonNodeFactory.instance.objectNode();
        // The classes for everything and nothing are subclasses of that for SQL.
        if (filter instanceof TrueRuleFilter) {
            return node.put("true", true);
        }
        if (filter instanceof FalseRuleFilter) {
            return node.put("false", true);
        }
        if (filter instanceof SqlRuleFilter sql) {
            return node.put("sql", sql.getSqlExpression());
        }
        return node.set("correlation", writeCorrelation((CorrelationRuleFilter) filter));
    }

    private static ObjectNode writeCorrelation(CorrelationRuleFilter filter) {
        ObjectNode node = JsonNodeFactory.instance.objectNode();
        CORRELATION_TEXTS.forEach((name, text) -> {
            String value = text.getter().apply(filter);
            if (value != null) {
                node.put(name, value);
            }
        });
        if (!filter.getProperties().isEmpty()) {
            node.set("properties", TypedValues.writeAll(filter.getProperties()));
        }
        return node;
    }
}
