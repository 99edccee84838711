package emubus.driver;

import com.azure.messaging.servicebus.administration.models.AccessRights;
import com.azure.messaging.servicebus.administration.models.AuthorizationRule;
import com.azure.messaging.servicebus.administration.models.SharedAccessAuthorizationRule;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import java.util.ArrayList;
import java.util.List;

/**
 * Authorization rules of the driver protocol to those of the administration client and back. Refuses to
 * know whose rules they are.
 */
final class AuthorizationRules {
    private AuthorizationRules() {
    }

    /** Puts the rules of a JSON array, none for JSON null, in the place of those that {@code rules} has. */
    static void replace(List<AuthorizationRule> rules, JsonNode nodes) {
        rules.clear();
        nodes.forEach(node -> rules.add(read(node)));
    }

    static ArrayNode write(List<AuthorizationRule> rules) {
        ArrayNode nodes = JsonNodeFactory.instance.arrayNode();
        for (AuthorizationRule rule : rules) {
            ArrayNode rights = nodes.addObject()
                .put("name", rule.getKeyName())
                .put("primary_key", rule.getPrimaryKey())
                .put("secondary_key", rule.getSecondaryKey())
                .putArray("rights");
            rule.getAccessRights().stream().map(AccessRights::toString).sorted().forEach(rights::add);
        }
        return nodes;
    }

    private static AuthorizationRule read(JsonNode node) {
        List<AccessRights> rights = new ArrayList<>();
        node.path("rights").forEach(right -> rights.add(AccessRights.fromString(right.textValue())));
        return new SharedAccessAuthorizationRule(
            node.path("name").asText(),
            node.path("primary_key").asText(),
            node.path("secondary_key").asText(),
            rights);
    }
}
