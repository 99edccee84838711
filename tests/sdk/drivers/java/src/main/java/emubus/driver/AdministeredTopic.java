package emubus.driver;

import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.models.CreateTopicOptions;
import com.azure.messaging.servicebus.administration.models.TopicProperties;
import com.azure.messaging.servicebus.administration.models.TopicRuntimeProperties;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

/**
 * A topic of the administration client. Knows its properties and its calls; the SDK's options for lock
 * duration, delivery count and message sessions of a topic are none that the service has.
 */
record AdministeredTopic(ServiceBusAdministrationClient client, String name) implements AdministeredEntity {
    private static final PropertySetters<CreateTopicOptions> CREATION = new PropertySetters<CreateTopicOptions>()
        .int64("max_size_mb", CreateTopicOptions::setMaxSizeInMegabytes)
        .flag("requires_duplicate_detection", CreateTopicOptions::setDuplicateDetectionRequired)
        .duration("default_ttl_ms", CreateTopicOptions::setDefaultMessageTimeToLive)
        .duration("duplicate_window_ms", CreateTopicOptions::setDuplicateDetectionHistoryTimeWindow)
        .flag("enable_batched_operations", CreateTopicOptions::setBatchedOperationsEnabled)
        .status(CreateTopicOptions::setStatus)
        .duration("auto_delete_on_idle_ms", CreateTopicOptions::setAutoDeleteOnIdle)
        .flag("enable_partitioning", CreateTopicOptions::setPartitioningEnabled)
        .text("user_metadata", CreateTopicOptions::setUserMetadata)
        .int64("max_message_size_kb", CreateTopicOptions::setMaxMessageSizeInKilobytes)
        .flag("supports_ordering", CreateTopicOptions::setOrderingSupported)
        .with(
            "authorization_rules",
            (options, rules) -> AuthorizationRules.replace(options.getAuthorizationRules(), rules));

    private static final PropertySetters<TopicProperties> CHANGE = new PropertySetters<TopicProperties>()
        .int64("max_size_mb", TopicProperties::setMaxSizeInMegabytes)
        .flag("requires_duplicate_detection", TopicProperties::setDuplicateDetectionRequired)
        .duration("default_ttl_ms", TopicProperties::setDefaultMessageTimeToLive)
        .duration("duplicate_window_ms", TopicProperties::setDuplicateDetectionHistoryTimeWindow)
        .status(TopicProperties::setStatus)
        .duration("auto_delete_on_idle_ms", TopicProperties::setAutoDeleteOnIdle)
        .text("user_metadata", TopicProperties::setUserMetadata)
        .int64("max_message_size_kb", TopicProperties::setMaxMessageSizeInKilobytes)
        .flag("supports_ordering", TopicProperties::setOrderingSupported)
        .with(
            "authorization_rules",
            (topic, rules) -> AuthorizationRules.replace(topic.getAuthorizationRules(), rules));

    private static final PropertyGetters<TopicProperties> SHOWN = new PropertyGetters<TopicProperties>()
        .number("max_size_mb", TopicProperties::getMaxSizeInMegabytes)
        .flag("requires_duplicate_detection", TopicProperties::isDuplicateDetectionRequired)
        .duration("default_ttl_ms", TopicProperties::getDefaultMessageTimeToLive)
        .duration("duplicate_window_ms", TopicProperties::getDuplicateDetectionHistoryTimeWindow)
        .flag("enable_batched_operations", TopicProperties::isBatchedOperationsEnabled)
        .status(TopicProperties::getStatus)
        .duration("auto_delete_on_idle_ms", TopicProperties::getAutoDeleteOnIdle)
        .flag("enable_partitioning", TopicProperties::isPartitioningEnabled)
        .text("user_metadata", TopicProperties::getUserMetadata)
        .number("max_message_size_kb", TopicProperties::getMaxMessageSizeInKilobytes)
        .flag("supports_ordering", TopicProperties::isOrderingSupported)
        .with("authorization_rules", topic -> AuthorizationRules.write(topic.getAuthorizationRules()));

    private static final PropertyGetters<TopicRuntimeProperties> RUNTIME =
        new PropertyGetters<TopicRuntimeProperties>()
            .number("scheduled_count", TopicRuntimeProperties::getScheduledMessageCount)
            .number("subscription_count", TopicRuntimeProperties::getSubscriptionCount)
            .number("size_bytes", TopicRuntimeProperties::getSizeInBytes)
            .instant("created_at_ms", TopicRuntimeProperties::getCreatedAt)
            .instant("updated_at_ms", TopicRuntimeProperties::getUpdatedAt)
            .instant("accessed_at_ms", TopicRuntimeProperties::getAccessedAt);

    @Override
    public ObjectNode create(JsonNode properties) {
        return SHOWN.write(client.createTopic(name, CREATION.create(new CreateTopicOptions(), properties)));
    }

    @Override
    public ObjectNode get() {
        return SHOWN.write(client.getTopic(name));
    }

    @Override
    public void update(JsonNode properties) {
        client.updateTopic(CHANGE.update(client.getTopic(name), properties));
    }

    @Override
    public void delete() {
        client.deleteTopic(name);
    }

    @Override
    public boolean exists() {
        return client.getTopicExists(name);
    }

    @Override
    public ObjectNode runtime() {
        return RUNTIME.write(client.getTopicRuntimeProperties(name));
    }

    /** The SDK lists properties; for each, its class for the rest of what they carry is public. */
    static ObjectNode runtime(TopicProperties listed) {
        return RUNTIME.write(new TopicRuntimeProperties(listed));
    }
}
