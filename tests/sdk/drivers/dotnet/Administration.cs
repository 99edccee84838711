using System.Text.Json.Nodes;
using Azure;
using Azure.Messaging.ServiceBus.Administration;

namespace Emubus.Driver;

/// <summary>
/// The operations of administration. Owns the client, which the first of them makes, not what the
/// properties of an entity are.
/// </summary>
internal sealed class Administration
{
    private readonly Reach _reach;
    private ServiceBusAdministrationClient? _client;

    public Administration(Reach reach)
    {
        _reach = reach;
        Operations = new()
        {
            ["admin_create"] = async request => Answer("properties", await Named(request).Create(Given(request))),
            ["admin_get"] = async request => Answer("properties", await Named(request).Get()),
            ["admin_update"] = async request =>
            {
                await Named(request).Update(Given(request));
                return Answer("properties", await Named(request).Get());
            },
            ["admin_delete"] = async request =>
            {
                await Named(request).Delete();
                return [];
            },
            ["admin_exists"] = async request => Answer("exists", await Named(request).Exists()),
            ["admin_runtime"] = async request => Answer("runtime", await Named(request).Runtime()),
            ["admin_list"] = async request => Answer("names", await ListNames(request)),
            ["admin_runtime_list"] = async request => Answer("runtime", await ListRuntime(request)),
            ["admin_namespace"] = async _ => await ShowNamespace(),
        };
    }

    public Dictionary<string, Func<JsonObject, Task<JsonObject>>> Operations { get; }

    private ServiceBusAdministrationClient Client => _client ??= NewClient();

    /// <summary>The client holds nothing that would have to be closed.</summary>
    public void Forget() => _client = null;

    private ServiceBusAdministrationClient NewClient()
    {
        var options = new ServiceBusAdministrationClientOptions();
        options.Retry.MaxRetries = 0;
        return _reach.AdministrationClient(options);
    }

    private Administered Named(JsonObject request)
    {
        string? queue = request.Text("queue"), topic = request.Text("topic");
        return (queue, topic, request.Text("subscription"), request.Text("rule")) switch
        {
            ({ } name, _, _, _) => new AdministeredQueue(Client, name),
            (_, null, _, _) => throw new RequestException("neither a queue nor a topic is named"),
            (_, { } name, null, _) => new AdministeredTopic(Client, name),
            (_, { } of, { } name, null) => new AdministeredSubscription(Client, of, name),
            (_, { } of, { } within, { } name) => new AdministeredRule(Client, of, within, name),
        };
    }

    private async Task<JsonArray> ListNames(JsonObject request) => request.Text("kind") switch
    {
        "queues" => await Names(Client.GetQueuesAsync(), each => each.Name),
        "topics" => await Names(Client.GetTopicsAsync(), each => each.Name),
        "subscriptions" => await Names(
            Client.GetSubscriptionsAsync(request.Needed("topic")), each => each.SubscriptionName),
        "rules" => await Names(
            Client.GetRulesAsync(request.Needed("topic"), request.Needed("subscription")), each => each.Name),
        var kind => throw new RequestException("unknown kind " + kind),
    };

    private async Task<JsonObject> ListRuntime(JsonObject request) => request.Text("kind") switch
    {
        "queues" => await Runtimes(Client.GetQueuesRuntimePropertiesAsync(), each => each.Name),
        "topics" => await Runtimes(Client.GetTopicsRuntimePropertiesAsync(), each => each.Name),
        "subscriptions" => await Runtimes(
            Client.GetSubscriptionsRuntimePropertiesAsync(request.Needed("topic")), each => each.SubscriptionName),
        var kind => throw new RequestException("unknown kind " + kind),
    };

    private async Task<JsonObject> ShowNamespace()
    {
        NamespaceProperties shown = await Client.GetNamespacePropertiesAsync();
        return new JsonObject
        {
            ["name"] = shown.Name,
            ["sku"] = shown.MessagingSku.ToString(),
            ["messaging_units"] = shown.MessagingUnits == 0 ? null : shown.MessagingUnits,
        };
    }

    private static async Task<JsonArray> Names<T>(AsyncPageable<T> listed, Func<T, string> name)
        where T : notnull
    {
        var names = new JsonArray();
        await foreach (T each in listed)
        {
            names.Add(name(each));
        }
        return names;
    }

    private static async Task<JsonObject> Runtimes<T>(AsyncPageable<T> listed, Func<T, string> name)
        where T : notnull
    {
        var runtimes = new JsonObject();
        await foreach (T each in listed)
        {
            runtimes[name(each)] = Properties.Runtime(each);
        }
        return runtimes;
    }

    private static JsonObject Given(JsonObject request) => request["properties"]?.AsObject() ?? [];

    private static JsonObject Answer(string key, JsonNode value) => new() { [key] = value };
}
