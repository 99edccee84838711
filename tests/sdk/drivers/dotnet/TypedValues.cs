using System.Globalization;
using System.Text.Json;
using System.Text.Json.Nodes;

namespace Emubus.Driver;

/// <summary>
/// Typed application properties of the driver protocol, to and from the .NET types that the SDK puts on the wire as
/// the AMQP type of that name. Knows nothing of messages or of the SDK's clients.
/// </summary>
internal static class TypedValues
{
    private static readonly Dictionary<string, Func<JsonNode, object>> Readers = new()
    {
        ["int"] = value => value.GetValue<int>(),
        ["long"] = value => long.Parse(value.GetValue<string>()),
        ["double"] = value => value.GetValue<double>(),
        // A DateTimeOffset goes out as a described type of Microsoft's, a DateTime as a timestamp.
        ["timestamp"] = value => DateTimeOffset.FromUnixTimeMilliseconds(value.GetValue<long>()).UtcDateTime,
        ["uuid"] = value => Guid.Parse(value.GetValue<string>()),
        ["binary"] = value => new MemoryStream(Convert.FromBase64String(value.GetValue<string>())),
        ["decimal"] = value => decimal.Parse(value.GetValue<string>(), CultureInfo.InvariantCulture),
        ["duration"] = value => TimeSpan.FromMilliseconds(value.GetValue<long>()),
        ["date-time-offset"] = value => DateTimeOffset.Parse(value.GetValue<string>(), CultureInfo.InvariantCulture),
        ["uri"] = value => new Uri(value.GetValue<string>()),
    };

    public static IEnumerable<string> Types => Readers.Keys;

    public static Dictionary<string, object?> ReadAll(JsonObject properties) =>
        properties.ToDictionary(each => each.Key, each => Read(each.Value));

    public static JsonObject WriteAll(IEnumerable<KeyValuePair<string, object>> values) =>
        new(values.Select(each => KeyValuePair.Create(each.Key, Write(each.Value))));

    private static object? Read(JsonNode? node)
    {
        switch (node?.GetValueKind())
        {
            case null:
                return null;
            case JsonValueKind.String:
                return node.GetValue<string>();
            case JsonValueKind.True or JsonValueKind.False:
                return node.GetValue<bool>();
        }
        return node is JsonObject typed && Readers.TryGetValue(typed.Needed("type"), out var read)
            ? read(typed["value"]!)
            : throw new RequestException("this SDK can't send a property like " + node.ToJsonString());
    }

    private static JsonNode? Write(object? value) => value switch
    {
        null => null,
        string text => text,
        bool truth => truth,
        int number => Typed("int", number),
        long number => Typed("long", number.ToString()),
        double number => Typed("double", number),
        DateTime instant => Typed("timestamp", new DateTimeOffset(instant).ToUnixTimeMilliseconds()),
        Guid uuid => Typed("uuid", uuid.ToString()),
        byte[] bytes => Typed("binary", Convert.ToBase64String(bytes)),
        ArraySegment<byte> bytes => Typed("binary", Convert.ToBase64String(bytes)),
        ReadOnlyMemory<byte> bytes => Typed("binary", Convert.ToBase64String(bytes.Span)),
        decimal number => Typed("decimal", number.ToString(CultureInfo.InvariantCulture)),
        TimeSpan span => Typed("duration", (long)span.TotalMilliseconds),
        DateTimeOffset instant => Typed("date-time-offset", instant.ToString("yyyy-MM-ddTHH:mm:sszzz")),
        Uri address => Typed("uri", address.OriginalString),
        Stream bytes => Typed("binary", Convert.ToBase64String(BinaryData.FromStream(bytes))),
        _ => Typed("other", Convert.ToString(value, CultureInfo.InvariantCulture)!),
    };

    private static JsonObject Typed(string type, JsonNode value) => new() { ["type"] = type, ["value"] = value };
}
