package emubus.driver;

import com.azure.core.exception.ResourceNotFoundException;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

/** A rule of a subscription, of the administration client. Knows its calls. */
record AdministeredRule(ServiceBusAdministrationClient client, String topic, String subscription, String name)
    implements AdministeredEntity {
    private static final PropertySetters<RuleProperties> CHANGE = new PropertySetters<RuleProperties>()
        .with("filter", (rule, filter) -> rule.setFilter(Rules.readFilter(filter)))
        .with(
            "action",
            (rule, action) -> rule.setAction(
                action.isNull() ? null : new SqlRuleAction(action.textValue())));

    @Override
    public ObjectNode create(JsonNode properties) {
        return shown(client.createRule(topic, name, subscription, Rules.readOptions(properties)));
    }

    @Override
    public ObjectNode get() {
        return shown(client.getRule(topic, subscription, name));
    }

    @Override
    public void update(JsonNode properties) {
        RuleProperties rule = client.getRule(topic, subscription, name);
        client.updateRule(topic, subscription, CHANGE.update(rule, properties));
    }

    @Override
    public void delete() {
        client.deleteRule(topic, subscription, name);
    }

    /** The SDK has no call for this. */
    @Override
    public boolean exists() {
        try {
            client.getRule(topic, subscription, name);
            return true;
        } catch (ResourceNotFoundException missing) {
            return false;
        }
    }

    @Override
    public ObjectNode runtime() {
        throw new IllegalArgumentException("a rule has no runtime properties");
    }

    private static ObjectNode shown(RuleProperties rule) {
        ObjectNode node = Rules.write(rule);
        node.remove("name");
        return node;
    }
}
