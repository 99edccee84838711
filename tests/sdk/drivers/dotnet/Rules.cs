using System.Text.Json.Nodes;
using Azure.Messaging.ServiceBus.Administration;

namespace Emubus.Driver;

/// <summary>
/// The operations on the rules of a subscription, and rules of the driver protocol to the SDK's rules and back, for the
/// administration too. Owns nothing: the <see cref="Clients"/> own the managers.
/// </summary>
internal sealed class Rules(Clients clients)
{
    private static readonly Dictionary<string, string> CorrelationTexts = new()
    {
        ["correlation_id"] = nameof(CorrelationRuleFilter.CorrelationId),
        ["message_id"] = nameof(CorrelationRuleFilter.MessageId),
        ["to"] = nameof(CorrelationRuleFilter.To),
        ["reply_to"] = nameof(CorrelationRuleFilter.ReplyTo),
        ["subject"] = nameof(CorrelationRuleFilter.Subject),
        ["session_id"] = nameof(CorrelationRuleFilter.SessionId),
        ["reply_to_session_id"] = nameof(CorrelationRuleFilter.ReplyToSessionId),
        ["content_type"] = nameof(CorrelationRuleFilter.ContentType),
    };

    public async Task<JsonObject> Add(JsonObject request)
    {
        await clients.RuleManager(request).CreateRuleAsync(ReadOptions(request.Needed("name"), request));
        return [];
    }

    public async Task<JsonObject> List(JsonObject request)
    {
        var rules = new JsonArray();
        await foreach (RuleProperties rule in clients.RuleManager(request).GetRulesAsync())
        {
            JsonObject shown = Write(rule);
            shown["name"] = rule.Name;
            rules.Add(shown);
        }
        return new JsonObject { ["rules"] = rules };
    }

    public async Task<JsonObject> Remove(JsonObject request)
    {
        await clients.RuleManager(request).DeleteRuleAsync(request.Needed("name"));
        return [];
    }

    /// <summary>The SDK's form of a <c>filter</c> and <c>action</c>.</summary>
    public static CreateRuleOptions ReadOptions(string name, JsonObject node) => new()
    {
        Name = name,
        Filter = ReadFilter(node["filter"]?.AsObject() ?? []),
        Action = ReadAction(node.Text("action")),
    };

    public static SqlRuleAction? ReadAction(string? text) => text is null ? null : new SqlRuleAction(text);

    public static RuleFilter ReadFilter(JsonObject node) => node switch
    {
        _ when node.Text("sql") is { } text => new SqlRuleFilter(text),
        _ when node["correlation"] is JsonObject wanted => ReadCorrelation(wanted),
        _ when node["true"] is not null => new TrueRuleFilter(),
        _ when node["false"] is not null => new FalseRuleFilter(),
        _ => throw new RequestException("unknown filter " + node.ToJsonString()),
    };

    private static CorrelationRuleFilter ReadCorrelation(JsonObject node)
    {
        var filter = new CorrelationRuleFilter();
        foreach (var (name, member) in CorrelationTexts)
        {
            if (node.Text(name) is { } text)
            {
                typeof(CorrelationRuleFilter).GetProperty(member)!.SetValue(filter, text);
            }
        }
        foreach (var (name, value) in TypedValues.ReadAll(node["properties"]?.AsObject() ?? []))
        {
            filter.ApplicationProperties[name] = value;
        }
        return filter;
    }

    /// <summary>The protocol's form of a rule, without its name.</summary>
    public static JsonObject Write(RuleProperties rule) => new()
    {
        ["filter"] = rule.Filter switch
        {
            // The classes for everything and nothing are subclasses of that for SQL.
            TrueRuleFilter => new JsonObject { ["true"] = true },
            FalseRuleFilter => new JsonObject { ["false"] = true },
            SqlRuleFilter sql => new JsonObject { ["sql"] = sql.SqlExpression },
            var filter => new JsonObject { ["correlation"] = WriteCorrelation((CorrelationRuleFilter)filter) },
        },
        ["action"] = (rule.Action as SqlRuleAction)?.SqlExpression,
    };

    private static JsonObject WriteCorrelation(CorrelationRuleFilter filter)
    {
        var node = new JsonObject();
        foreach (var (name, member) in CorrelationTexts)
        {
            if (typeof(CorrelationRuleFilter).GetProperty(member)!.GetValue(filter) is string text)
            {
                node[name] = text;
            }
        }
        if (filter.ApplicationProperties.Count > 0)
        {
            node["properties"] = TypedValues.WriteAll(filter.ApplicationProperties);
        }
        return node;
    }
}
