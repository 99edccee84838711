using System.Text.Json.Nodes;
using Azure.Messaging.ServiceBus.Administration;

namespace Emubus.Driver;

/// <summary>One entity or rule, with what the SDK can do to it.</summary>
internal abstract record Administered
{
    public abstract Task<JsonObject> Create(JsonObject given);

    public abstract Task<JsonObject> Get();

    /// <summary>Sets what is given on the SDK's object as a get returns it, and sends that.</summary>
    public abstract Task Update(JsonObject given);

    public abstract Task Delete();

    public abstract Task<bool> Exists();

    public abstract Task<JsonObject> Runtime();
}

internal sealed record AdministeredQueue(ServiceBusAdministrationClient Client, string Name) : Administered
{
    public override async Task<JsonObject> Create(JsonObject given)
    {
        var options = new CreateQueueOptions(Name);
        Properties.Set(options, given);
        return Properties.Shown((await Client.CreateQueueAsync(options)).Value);
    }

    public override async Task<JsonObject> Get() => Properties.Shown((await Client.GetQueueAsync(Name)).Value);

    public override async Task Update(JsonObject given)
    {
        QueueProperties queue = await Client.GetQueueAsync(Name);
        Properties.Set(queue, given);
        await Client.UpdateQueueAsync(queue);
    }

    public override Task Delete() => Client.DeleteQueueAsync(Name);

    public override async Task<bool> Exists() => await Client.QueueExistsAsync(Name);

    public override async Task<JsonObject> Runtime() =>
        Properties.Runtime((await Client.GetQueueRuntimePropertiesAsync(Name)).Value);
}

internal sealed record AdministeredTopic(ServiceBusAdministrationClient Client, string Name) : Administered
{
    public override async Task<JsonObject> Create(JsonObject given)
    {
        var options = new CreateTopicOptions(Name);
        Properties.Set(options, given);
        return Properties.Shown((await Client.CreateTopicAsync(options)).Value);
    }

    public override async Task<JsonObject> Get() => Properties.Shown((await Client.GetTopicAsync(Name)).Value);

    public override async Task Update(JsonObject given)
    {
        TopicProperties topic = await Client.GetTopicAsync(Name);
        Properties.Set(topic, given);
        await Client.UpdateTopicAsync(topic);
    }

    public override Task Delete() => Client.DeleteTopicAsync(Name);

    public override async Task<bool> Exists() => await Client.TopicExistsAsync(Name);

    public override async Task<JsonObject> Runtime() =>
        Properties.Runtime((await Client.GetTopicRuntimePropertiesAsync(Name)).Value);
}

internal sealed record AdministeredSubscription(ServiceBusAdministrationClient Client, string Topic, string Name)
    : Administered
{
    public override async Task<JsonObject> Create(JsonObject given)
    {
        var options = new CreateSubscriptionOptions(Topic, Name);
        var rule = given["default_rule"]?.AsObject();
        given.Remove("default_rule");
        Properties.Set(options, given);
        SubscriptionProperties made = rule is null
            ? await Client.CreateSubscriptionAsync(options)
            : await Client.CreateSubscriptionAsync(options, Rules.ReadOptions(rule.Needed("name"), rule));
        return Properties.Shown(made);
    }

    public override async Task<JsonObject> Get() =>
        Properties.Shown((await Client.GetSubscriptionAsync(Topic, Name)).Value);

    public override async Task Update(JsonObject given)
    {
        SubscriptionProperties subscription = await Client.GetSubscriptionAsync(Topic, Name);
        Properties.Set(subscription, given);
        await Client.UpdateSubscriptionAsync(subscription);
    }

    public override Task Delete() => Client.DeleteSubscriptionAsync(Topic, Name);

    public override async Task<bool> Exists() => await Client.SubscriptionExistsAsync(Topic, Name);

    public override async Task<JsonObject> Runtime() =>
        Properties.Runtime((await Client.GetSubscriptionRuntimePropertiesAsync(Topic, Name)).Value);
}

internal sealed record AdministeredRule(
    ServiceBusAdministrationClient Client, string Topic, string Subscription, string Name) : Administered
{
    public override async Task<JsonObject> Create(JsonObject given) =>
        Rules.Write((await Client.CreateRuleAsync(Topic, Subscription, Rules.ReadOptions(Name, given))).Value);

    public override async Task<JsonObject> Get() =>
        Rules.Write((await Client.GetRuleAsync(Topic, Subscription, Name)).Value);

    public override async Task Update(JsonObject given)
    {
        RuleProperties rule = await Client.GetRuleAsync(Topic, Subscription, Name);
        if (given["filter"] is JsonObject filter)
        {
            rule.Filter = Rules.ReadFilter(filter);
        }
        if (given.ContainsKey("action"))
        {
            rule.Action = Rules.ReadAction(given.Text("action"));
        }
        await Client.UpdateRuleAsync(Topic, Subscription, rule);
    }

    public override Task Delete() => Client.DeleteRuleAsync(Topic, Subscription, Name);

    public override async Task<bool> Exists() => await Client.RuleExistsAsync(Topic, Subscription, Name);

    public override Task<JsonObject> Runtime() => throw new RequestException("a rule has no runtime properties");
}
