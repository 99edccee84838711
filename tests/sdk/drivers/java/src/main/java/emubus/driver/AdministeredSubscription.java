package emubus.driver;

import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.SubscriptionProperties;
import com.azure.messaging.servicebus.administration.models.SubscriptionRuntimeProperties;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

/**
 * A subscription of the administration client. Knows its properties and its calls; its first rule is
 * made by a call of its own.
 */
record AdministeredSubscription(ServiceBusAdministrationClient client, String topic, String name)
    implements AdministeredEntity {
    private static final PropertySetters<CreateSubscriptionOptions> CREATION =
        new PropertySetters<CreateSubscriptionOptions>()
            .duration("lock_duration_ms", CreateSubscriptionOptions::setLockDuration)
            .flag("requires_session", CreateSubscriptionOptions::setSessionRequired)
            .duration("default_ttl_ms", CreateSubscriptionOptions::setDefaultMessageTimeToLive)
            .flag("dead_lettering_on_expiration", CreateSubscriptionOptions::setDeadLetteringOnMessageExpiration)
            .flag(
                "dead_lettering_on_filter_error",
                CreateSubscriptionOptions::setEnableDeadLetteringOnFilterEvaluationExceptions)
            .int32("max_delivery_count", CreateSubscriptionOptions::setMaxDeliveryCount)
            .flag("enable_batched_operations", CreateSubscriptionOptions::setBatchedOperationsEnabled)
            .status(CreateSubscriptionOptions::setStatus)
            .duration("auto_delete_on_idle_ms", CreateSubscriptionOptions::setAutoDeleteOnIdle)
            .text("forward_to", CreateSubscriptionOptions::setForwardTo)
            .text("forward_dead_letters_to", CreateSubscriptionOptions::setForwardDeadLetteredMessagesTo)
            .text("user_metadata", CreateSubscriptionOptions::setUserMetadata)
            .with("default_rule", (options, rule) -> { });

    private static final PropertySetters<SubscriptionProperties> CHANGE =
        new PropertySetters<SubscriptionProperties>()
            .duration("lock_duration_ms", SubscriptionProperties::setLockDuration)
            .duration("default_ttl_ms", SubscriptionProperties::setDefaultMessageTimeToLive)
            .flag("dead_lettering_on_expiration", SubscriptionProperties::setDeadLetteringOnMessageExpiration)
            .flag(
                "dead_lettering_on_filter_error",
                SubscriptionProperties::setEnableDeadLetteringOnFilterEvaluationExceptions)
            .int32("max_delivery_count", SubscriptionProperties::setMaxDeliveryCount)
            .flag("enable_batched_operations", SubscriptionProperties::setBatchedOperationsEnabled)
            .status(SubscriptionProperties::setStatus)
            .duration("auto_delete_on_idle_ms", SubscriptionProperties::setAutoDeleteOnIdle)
            .text("forward_to", SubscriptionProperties::setForwardTo)
            .text("forward_dead_letters_to", SubscriptionProperties::setForwardDeadLetteredMessagesTo)
            .text("user_metadata", SubscriptionProperties::setUserMetadata);

    private static final PropertyGetters<SubscriptionProperties> SHOWN =
        new PropertyGetters<SubscriptionProperties>()
            .duration("lock_duration_ms", SubscriptionProperties::getLockDuration)
            .flag("requires_session", SubscriptionProperties::isSessionRequired)
            .duration("default_ttl_ms", SubscriptionProperties::getDefaultMessageTimeToLive)
            .flag("dead_lettering_on_expiration", SubscriptionProperties::isDeadLetteringOnMessageExpiration)
            .flag(
                "dead_lettering_on_filter_error",
                SubscriptionProperties::isDeadLetteringOnFilterEvaluationExceptions)
            .number("max_delivery_count", SubscriptionProperties::getMaxDeliveryCount)
            .flag("enable_batched_operations", SubscriptionProperties::isBatchedOperationsEnabled)
            .status(SubscriptionProperties::getStatus)
            .duration("auto_delete_on_idle_ms", SubscriptionProperties::getAutoDeleteOnIdle)
            .path("forward_to", SubscriptionProperties::getForwardTo)
            .path("forward_dead_letters_to", SubscriptionProperties::getForwardDeadLetteredMessagesTo)
            .text("user_metadata", SubscriptionProperties::getUserMetadata);

    private static final PropertyGetters<SubscriptionRuntimeProperties> RUNTIME =
        new PropertyGetters<SubscriptionRuntimeProperties>()
            .number("active_count", SubscriptionRuntimeProperties::getActiveMessageCount)
            .number("dead_letter_count", SubscriptionRuntimeProperties::getDeadLetterMessageCount)
            .number("transfer_count", SubscriptionRuntimeProperties::getTransferMessageCount)
            .number("transfer_dead_letter_count", SubscriptionRuntimeProperties::getTransferDeadLetterMessageCount)
            .number("total_count", SubscriptionRuntimeProperties::getTotalMessageCount)
            .instant("created_at_ms", SubscriptionRuntimeProperties::getCreatedAt)
            .instant("updated_at_ms", SubscriptionRuntimeProperties::getUpdatedAt)
            .instant("accessed_at_ms", SubscriptionRuntimeProperties::getAccessedAt);

    @Override
    public ObjectNode create(JsonNode properties) {
        CreateSubscriptionOptions options = CREATION.create(new CreateSubscriptionOptions(), properties);
        JsonNode rule = properties.path("default_rule");
        return SHOWN.write(
            rule.isObject()
                ? client.createSubscription(topic, name, rule.path("name").asText(), options, Rules.readOptions(rule))
                : client.createSubscription(topic, name, options));
    }

    @Override
    public ObjectNode get() {
        return SHOWN.write(client.getSubscription(topic, name));
    }

    @Override
    public void update(JsonNode properties) {
        client.updateSubscription(CHANGE.update(client.getSubscription(topic, name), properties));
    }

    @Override
    public void delete() {
        client.deleteSubscription(topic, name);
    }

    @Override
    public boolean exists() {
        return client.getSubscriptionExists(topic, name);
    }

    @Override
    public ObjectNode runtime() {
        return RUNTIME.write(client.getSubscriptionRuntimeProperties(topic, name));
    }

    /** The SDK lists properties; for each, its class for the rest of what they carry is public. */
    static ObjectNode runtime(SubscriptionProperties listed) {
        return RUNTIME.write(new SubscriptionRuntimeProperties(listed));
    }
}
