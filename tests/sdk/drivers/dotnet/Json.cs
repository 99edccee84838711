using System.Text.Json.Nodes;

namespace Emubus.Driver;

/// <summary>A request that the driver itself can't translate; kind <c>other</c> unless it says more.</summary>
internal sealed class RequestException(string message, string kind = "other") : Exception(message)
{
    public string Kind { get; } = kind;
}

/// <summary>Reads of requests, where an absent key and null are the same.</summary>
internal static class Json
{
    public static string? Text(this JsonObject node, string name) => node[name]?.GetValue<string>();

    public static string Needed(this JsonObject node, string name) =>
        node.Text(name) ?? throw new RequestException($"the request has no {name}");

    public static long? Long(this JsonObject node, string name) => node[name]?.GetValue<long>();

    public static int Int(this JsonObject node, string name) => (int)(node.Long(name) ?? 0);

    public static bool Flag(this JsonObject node, string name) => node[name]?.GetValue<bool>() ?? false;

    public static IEnumerable<JsonObject> Objects(this JsonObject node, string name) =>
        (node[name]?.AsArray() ?? []).Select(each => each!.AsObject());

    /// <summary>The numbers that an array of decimal strings stands for.</summary>
    public static long[] Numbers(this JsonObject node, string name) =>
        [.. (node[name]?.AsArray() ?? []).Select(each => long.Parse(each!.GetValue<string>()))];

    public static JsonArray Array(IEnumerable<string> texts) => [.. texts.Select(text => (JsonNode)text)];

    public static JsonArray Array(IEnumerable<JsonObject> objects) => [.. objects];

    /// <summary>Unix milliseconds; null for the instant that the SDK shows where there is none.</summary>
    public static long? Millis(DateTimeOffset instant) =>
        instant == default || instant == DateTimeOffset.MaxValue ? null : instant.ToUnixTimeMilliseconds();
}
