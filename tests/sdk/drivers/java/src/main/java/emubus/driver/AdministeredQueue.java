package emubus.driver;

import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.QueueProperties;
import com.azure.messaging.servicebus.administration.models.QueueRuntimeProperties;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

/** A queue of the administration client. Knows its properties and its calls. */
record AdministeredQueue(ServiceBusAdministrationClient client, String name) implements AdministeredEntity {
    private static final PropertySetters<CreateQueueOptions> CREATION = new PropertySetters<CreateQueueOptions>()
        .duration("lock_duration_ms", CreateQueueOptions::setLockDuration)
        .int32("max_size_mb", CreateQueueOptions::setMaxSizeInMegabytes)
        .flag("requires_duplicate_detection", CreateQueueOptions::setDuplicateDetectionRequired)
        .flag("requires_session", CreateQueueOptions::setSessionRequired)
        .duration("default_ttl_ms", CreateQueueOptions::setDefaultMessageTimeToLive)
        .flag("dead_lettering_on_expiration", CreateQueueOptions::setDeadLetteringOnMessageExpiration)
        .duration("duplicate_window_ms", CreateQueueOptions::setDuplicateDetectionHistoryTimeWindow)
        .int32("max_delivery_count", CreateQueueOptions::setMaxDeliveryCount)
        .flag("enable_batched_operations", CreateQueueOptions::setBatchedOperationsEnabled)
        .status(CreateQueueOptions::setStatus)
        .duration("auto_delete_on_idle_ms", CreateQueueOptions::setAutoDeleteOnIdle)
        .flag("enable_partitioning", CreateQueueOptions::setPartitioningEnabled)
        .text("forward_to", CreateQueueOptions::setForwardTo)
        .text("forward_dead_letters_to", CreateQueueOptions::setForwardDeadLetteredMessagesTo)
        .text("user_metadata", CreateQueueOptions::setUserMetadata)
        .int64("max_message_size_kb", CreateQueueOptions::setMaxMessageSizeInKilobytes)
        .with(
            "authorization_rules",
            (options, rules) -> AuthorizationRules.replace(options.getAuthorizationRules(), rules));

    private static final PropertySetters<QueueProperties> CHANGE = new PropertySetters<QueueProperties>()
        .duration("lock_duration_ms", QueueProperties::setLockDuration)
        .int32("max_size_mb", QueueProperties::setMaxSizeInMegabytes)
        .duration("default_ttl_ms", QueueProperties::setDefaultMessageTimeToLive)
        .flag("dead_lettering_on_expiration", QueueProperties::setDeadLetteringOnMessageExpiration)
        .duration("duplicate_window_ms", QueueProperties::setDuplicateDetectionHistoryTimeWindow)
        .int32("max_delivery_count", QueueProperties::setMaxDeliveryCount)
        .flag("enable_batched_operations", QueueProperties::setBatchedOperationsEnabled)
        .status(QueueProperties::setStatus)
        .duration("auto_delete_on_idle_ms", QueueProperties::setAutoDeleteOnIdle)
        .text("forward_to", QueueProperties::setForwardTo)
        .text("forward_dead_letters_to", QueueProperties::setForwardDeadLetteredMessagesTo)
        .text("user_metadata", QueueProperties::setUserMetadata)
        .int64("max_message_size_kb", QueueProperties::setMaxMessageSizeInKilobytes)
        .with(
            "authorization_rules",
            (queue, rules) -> AuthorizationRules.replace(queue.getAuthorizationRules(), rules));

    private static final PropertyGetters<QueueProperties> SHOWN = new PropertyGetters<QueueProperties>()
        .duration("lock_duration_ms", QueueProperties::getLockDuration)
        .number("max_size_mb", QueueProperties::getMaxSizeInMegabytes)
        .flag("requires_duplicate_detection", QueueProperties::isDuplicateDetectionRequired)
        .flag("requires_session", QueueProperties::isSessionRequired)
        .duration("default_ttl_ms", QueueProperties::getDefaultMessageTimeToLive)
        .flag("dead_lettering_on_expiration", QueueProperties::isDeadLetteringOnMessageExpiration)
        .duration("duplicate_window_ms", QueueProperties::getDuplicateDetectionHistoryTimeWindow)
        .number("max_delivery_count", QueueProperties::getMaxDeliveryCount)
        .flag("enable_batched_operations", QueueProperties::isBatchedOperationsEnabled)
        .status(QueueProperties::getStatus)
        .duration("auto_delete_on_idle_ms", QueueProperties::getAutoDeleteOnIdle)
        .flag("enable_partitioning", QueueProperties::isPartitioningEnabled)
        .path("forward_to", QueueProperties::getForwardTo)
        .path("forward_dead_letters_to", QueueProperties::getForwardDeadLetteredMessagesTo)
        .text("user_metadata", QueueProperties::getUserMetadata)
        .number("max_message_size_kb", QueueProperties::getMaxMessageSizeInKilobytes)
        .with("authorization_rules", queue -> AuthorizationRules.write(queue.getAuthorizationRules()));

    private static final PropertyGetters<QueueRuntimeProperties> RUNTIME =
        new PropertyGetters<QueueRuntimeProperties>()
            .number("active_count", QueueRuntimeProperties::getActiveMessageCount)
            .number("dead_letter_count", QueueRuntimeProperties::getDeadLetterMessageCount)
            .number("scheduled_count", QueueRuntimeProperties::getScheduledMessageCount)
            .number("transfer_count", QueueRuntimeProperties::getTransferMessageCount)
            .number("transfer_dead_letter_count", QueueRuntimeProperties::getTransferDeadLetterMessageCount)
            .number("total_count", QueueRuntimeProperties::getTotalMessageCount)
            .number("size_bytes", QueueRuntimeProperties::getSizeInBytes)
            .instant("created_at_ms", QueueRuntimeProperties::getCreatedAt)
            .instant("updated_at_ms", QueueRuntimeProperties::getUpdatedAt)
            .instant("accessed_at_ms", QueueRuntimeProperties::getAccessedAt);

    @Override
    public ObjectNode create(JsonNode properties) {
        return SHOWN.write(client.createQueue(name, CREATION.create(new CreateQueueOptions(), properties)));
    }

    @Override
    public ObjectNode get() {
        return SHOWN.write(client.getQueue(name));
    }

    @Override
    public void update(JsonNode properties) {
        client.updateQueue(CHANGE.update(client.getQueue(name), properties));
    }

    @Override
    public void delete() {
        client.deleteQueue(name);
    }

    @Override
    public boolean exists() {
        return client.getQueueExists(name);
    }

    @Override
    public ObjectNode runtime() {
        return RUNTIME.write(client.getQueueRuntimeProperties(name));
    }

    /** The SDK lists properties; for each, its class for the rest of what they carry is public. */
    static ObjectNode runtime(QueueProperties listed) {
        return RUNTIME.write(new QueueRuntimeProperties(listed));
    }
}
