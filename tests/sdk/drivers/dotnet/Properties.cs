using System.Reflection;
using System.Text.Json.Nodes;
using Azure.Messaging.ServiceBus.Administration;

namespace Emubus.Driver;

/// <summary>
/// The properties of an entity by their names in the driver protocol and in the SDK's classes, which have each its own
/// of them. Knows how the protocol writes values, not calls.
/// </summary>
internal static class Properties
{
    private static readonly TimeSpan EndlessMin = TimeSpan.FromDays(10_000_000);

    private static readonly Dictionary<string, string> Names = new()
    {
        ["lock_duration_ms"] = "LockDuration",
        ["max_delivery_count"] = "MaxDeliveryCount",
        ["max_size_mb"] = "MaxSizeInMegabytes",
        ["max_message_size_kb"] = "MaxMessageSizeInKilobytes",
        ["requires_session"] = "RequiresSession",
        ["dead_lettering_on_expiration"] = "DeadLetteringOnMessageExpiration",
        ["dead_lettering_on_filter_error"] = "EnableDeadLetteringOnFilterEvaluationExceptions",
        ["requires_duplicate_detection"] = "RequiresDuplicateDetection",
        ["enable_partitioning"] = "EnablePartitioning",
        ["duplicate_window_ms"] = "DuplicateDetectionHistoryTimeWindow",
        ["supports_ordering"] = "SupportOrdering",
        ["enable_batched_operations"] = "EnableBatchedOperations",
        ["default_ttl_ms"] = "DefaultMessageTimeToLive",
        ["auto_delete_on_idle_ms"] = "AutoDeleteOnIdle",
        ["status"] = "Status",
        ["forward_to"] = "ForwardTo",
        ["forward_dead_letters_to"] = "ForwardDeadLetteredMessagesTo",
        ["user_metadata"] = "UserMetadata",
        ["authorization_rules"] = "AuthorizationRules",
    };

    private static readonly Dictionary<string, string> RuntimeNames = new()
    {
        ["active_count"] = "ActiveMessageCount",
        ["dead_letter_count"] = "DeadLetterMessageCount",
        ["scheduled_count"] = "ScheduledMessageCount",
        ["transfer_count"] = "TransferMessageCount",
        ["transfer_dead_letter_count"] = "TransferDeadLetterMessageCount",
        ["total_count"] = "TotalMessageCount",
        ["subscription_count"] = "SubscriptionCount",
        ["size_bytes"] = "SizeInBytes",
        ["created_at_ms"] = "CreatedAt",
        ["updated_at_ms"] = "UpdatedAt",
        ["accessed_at_ms"] = "AccessedAt",
    };

    /// <summary>Sets what is given; what the SDK's class lacks, or shows only, can't be.</summary>
    public static void Set(object entity, JsonObject given)
    {
        foreach (var (name, value) in given)
        {
            PropertyInfo? property = Names.TryGetValue(name, out var member) ? entity.GetType().GetProperty(member) : null;
            if (property?.GetValue(entity) is AuthorizationRules rules)
            {
                rules.Clear();
                rules.AddRange((value?.AsArray() ?? []).Select(each => ReadRule(each!.AsObject())));
                continue;
            }
            if (property?.SetMethod?.IsPublic != true)
            {
                throw new RequestException($"this SDK sets no {name} of a {entity.GetType().Name}");
            }
            try
            {
                property.SetValue(entity, Read(property.PropertyType, value));
            }
            catch (TargetInvocationException refused) when (refused.InnerException is not null)
            {
                throw refused.InnerException;
            }
        }
    }

    public static JsonObject Shown(object entity) => Written(entity, Names);

    public static JsonObject Runtime(object runtime) => Written(runtime, RuntimeNames);

    private static JsonObject Written(object source, Dictionary<string, string> names)
    {
        var shown = new JsonObject();
        foreach (var (name, member) in names)
        {
            if (source.GetType().GetProperty(member)?.GetValue(source) is { } value)
            {
                shown[name] = Write(name, value);
            }
        }
        return shown;
    }

    private static object? Read(Type type, JsonNode? value)
    {
        if (type == typeof(TimeSpan))
        {
            return value is null ? TimeSpan.MaxValue : TimeSpan.FromMilliseconds(value.GetValue<long>());
        }
        return value switch
        {
            null when type == typeof(string) => "", // some take no null
            null => null,
            _ when type == typeof(EntityStatus) => new EntityStatus(value.GetValue<string>()),
            _ when type == typeof(string) => value.GetValue<string>(),
            _ when type == typeof(bool) => value.GetValue<bool>(),
            _ when type == typeof(int) => value.GetValue<int>(),
            _ => value.GetValue<long>(),
        };
    }

    private static JsonNode? Write(string name, object value) => value switch
    {
        TimeSpan endless when endless > EndlessMin => null,
        TimeSpan span => (long)span.TotalMilliseconds,
        DateTimeOffset instant => instant.ToUnixTimeMilliseconds(),
        AuthorizationRules rules => Json.Array(rules.OfType<SharedAccessAuthorizationRule>().Select(WriteRule)),
        // The SDK shows an address, of which the entity's name is the last part.
        string path when name.StartsWith("forward_") => path.Split('/')[^1],
        string text => text.Length == 0 ? null : text,
        bool flag => flag,
        int number => number,
        long number => number,
        _ => value.ToString(),
    };

    private static SharedAccessAuthorizationRule ReadRule(JsonObject node)
    {
        IEnumerable<AccessRights> rights = (node["rights"]?.AsArray() ?? [])
            .Select(right => Enum.Parse<AccessRights>(right!.GetValue<string>()));
        return (node.Text("primary_key"), node.Text("secondary_key")) switch
        {
            ({ } primary, { } secondary) =>
                new SharedAccessAuthorizationRule(node.Needed("name"), primary, secondary, rights),
            ({ } primary, null) => new SharedAccessAuthorizationRule(node.Needed("name"), primary, rights),
            _ => new SharedAccessAuthorizationRule(node.Needed("name"), rights),
        };
    }

    private static JsonObject WriteRule(SharedAccessAuthorizationRule rule) => new()
    {
        ["name"] = rule.KeyName,
        ["rights"] = Json.Array(rule.Rights.Select(right => right.ToString()).Order(StringComparer.Ordinal)),
        ["primary_key"] = rule.PrimaryKey,
        ["secondary_key"] = rule.SecondaryKey,
    };
}
