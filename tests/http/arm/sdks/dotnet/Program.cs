// The management SDK of .NET: URL TOKEN FOLDER. Prints a line of JSON for each step: its name, and what the SDK has read.
// SSL_CERT_FILE names the CA. The steps are those of ../../test_other_sdks.py, over the SDK's generic resources.
using System.Text.Json;
using System.Text.Json.Nodes;
using Azure;
using Azure.Core;
using Azure.ResourceManager;
using Azure.ResourceManager.Resources;
using Azure.ResourceManager.Resources.Models;

const string Subscription = "00000000-0000-0000-0000-000000000001", Group = "rg-net", Namespace = "bus-net";
const string Provider = $"/subscriptions/{Subscription}/resourceGroups/{Group}/providers";
const string Bus = $"{Provider}/Microsoft.ServiceBus/namespaces/{Namespace}";
var (url, folder) = (args[0], args[2]);
var options = new ArmClientOptions { Environment = new ArmEnvironment(new Uri(url), url) };
foreach (var type in new[] { "namespaces", "queues", "topics", "topics/subscriptions", "topics/subscriptions/rules" })
    options.SetApiVersion($"Microsoft.ServiceBus/namespaces{(type == "namespaces" ? "" : $"/{type}")}", "2024-01-01");
options.SetApiVersion("Microsoft.ServiceBus/namespaces/authorizationRules", "2024-01-01");
options.SetApiVersion("Microsoft.Resources/deployments", "2021-04-01");
var client = new ArmClient(new Fixed(args[1]), Subscription, options);
var resources = client.GetGenericResources();
var groups = client.GetSubscriptionResource(new ResourceIdentifier($"/subscriptions/{Subscription}")).GetResourceGroups();

void Say(string step, JsonNode? value) => Console.WriteLine(new JsonArray(step, value).ToJsonString());

async Task<GenericResource> Put(string id, string properties, AzureLocation? location = null)
{
    var data = new GenericResourceData(location ?? new AzureLocation("westeurope"))
    {
        Properties = BinaryData.FromString(properties),
    };
    if (id == Bus)
    {
        data.Sku = new ResourcesSku { Name = "Standard" };
        data.Tags.Add("c", "d");
    }
    return (await resources.CreateOrUpdateAsync(WaitUntil.Completed, new ResourceIdentifier(id), data)).Value;
}

JsonNode Read(GenericResource resource) => JsonNode.Parse(resource.Data.Properties)!;

async Task<RequestFailedException?> Refusal(Func<Task> work)
{
    try { await work(); }
    catch (RequestFailedException error) { return error; }
    return null;
}

JsonArray Shown(RequestFailedException? error) => [error?.Status, error?.ErrorCode];

var group = (await groups.CreateOrUpdateAsync(
    WaitUntil.Completed, Group, new ResourceGroupData("westeurope") { Tags = { ["a"] = "b" } })).Value.Data;
Say("group", new JsonArray(group.Name, group.Location.Name, JsonSerializer.SerializeToNode(group.Tags)));
var made = await Put(Bus, "{}");
Say("namespace", new JsonArray(
    made.Data.Name, made.Data.Sku.Name, JsonSerializer.SerializeToNode(made.Data.Tags), Read(made)["provisioningState"]!.DeepClone()));
var rule = await Put($"{Bus}/authorizationRules/app", """{"rights": ["Send"]}""");
Say("authorization rule", Read(rule)["rights"]!.DeepClone());
string Queue(int count) => $$"""{"lockDuration": "PT45S", "maxDeliveryCount": {{count}}, "requiresSession": true}""";
await Put($"{Bus}/queues/q", Queue(4));
var queue = Read(await Put($"{Bus}/queues/q", Queue(9)));
Say("queue", new JsonArray(new[] { "lockDuration", "maxDeliveryCount", "requiresSession", "status" }
    .Select(each => queue[each]!.DeepClone()).ToArray()));
await Put($"{Bus}/topics/t", """{"supportOrdering": true}""");
await Put($"{Bus}/topics/t/subscriptions/s", """{"maxDeliveryCount": 3}""");
var sql = Read(await Put($"{Bus}/topics/t/subscriptions/s/rules/sql", """
    {"filterType": "SqlFilter", "sqlFilter": {"sqlExpression": "a > 3"}, "action": {"sqlExpression": "SET seen = TRUE"}}
    """));
var equal = Read(await Put($"{Bus}/topics/t/subscriptions/s/rules/equal", """
    {"filterType": "CorrelationFilter", "correlationFilter": {"label": "l", "properties": {"k": "v"}}}
    """))["correlationFilter"]!;
Say("rules", new JsonArray(
    sql["sqlFilter"]!["sqlExpression"]!.DeepClone(),
    sql["action"]!["sqlExpression"]!.DeepClone(),
    equal["label"]!.DeepClone(),
    equal["properties"]!.DeepClone()));
var bad = await Refusal(() => Put($"{Bus}/queues/bad", """{"lockDuration": "PT10M"}"""));
Say("a bad value", new JsonArray(bad?.Status, bad?.ErrorCode, bad?.Message.Contains("LockDuration")));
Say("nowhere", Shown(await Refusal(() => resources.GetAsync(new ResourceIdentifier($"{Bus}/queues/nowhere")))));

async Task<GenericResource> Deploy(string name, string file)
{
    var properties = new JsonObject
    {
        ["mode"] = "Incremental",
        ["template"] = JsonNode.Parse(File.ReadAllText(Path.Combine(folder, file))),
        ["parameters"] = new JsonObject { ["namespace"] = new JsonObject { ["value"] = Namespace } },
    };
    return await Put($"{Provider}/Microsoft.Resources/deployments/{name}", properties.ToJsonString());
}

foreach (var round in new[] { "deployment", "the same again" })
{
    var done = Read(await Deploy("d", "template.json"));
    Say(round, new JsonArray(
        done["provisioningState"]!.DeepClone(), done["outputs"]!["queue"]!["value"]!.DeepClone()));
}
var failed = await Refusal(() => Deploy("b", "broken.json"));
Say("a deployment that fails", failed?.Message.Contains("queue bad: SubCode=40000. The supplied lock time"));

async Task Delete(string id) =>
    await (await resources.GetAsync(new ResourceIdentifier(id))).Value.DeleteAsync(WaitUntil.Completed);

await Delete($"{Bus}/topics/t/subscriptions/s/rules/equal");
await Delete($"{Bus}/topics/t/subscriptions/s");
await Delete($"{Bus}/topics/t");
await Delete(Bus);
Say("gone", Shown(await Refusal(() => resources.GetAsync(new ResourceIdentifier(Bus)))));
await (await groups.GetAsync(Group)).Value.DeleteAsync(WaitUntil.Completed);
Say("groups", (await groups.ExistsAsync(Group)).Value);

/// <summary>A token that somebody else has got.</summary>
internal sealed class Fixed(string token) : TokenCredential
{
    public override AccessToken GetToken(TokenRequestContext context, CancellationToken cancellation) =>
        new(token, DateTimeOffset.UtcNow.AddHours(1));

    public override ValueTask<AccessToken> GetTokenAsync(TokenRequestContext context, CancellationToken cancellation) =>
        new(GetToken(context, cancellation));
}
