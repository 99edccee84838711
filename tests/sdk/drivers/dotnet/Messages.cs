using System.Security.Cryptography;
using System.Text;
using System.Text.Json.Nodes;
using Azure.Messaging.ServiceBus;

namespace Emubus.Driver;

/// <summary>
/// Messages of the driver protocol to the SDK's messages and back. Knows the shapes of both, not
/// receivers, so the handle of a received message is given by the caller.
/// </summary>
internal static class Messages
{
    private const int BodyTextBytesMax = 1024;
    private static readonly Encoding Strict = new UTF8Encoding(false, throwOnInvalidBytes: true);

    private static readonly Dictionary<string, Action<ServiceBusMessage, string>> TextSetters = new()
    {
        ["message_id"] = (message, text) => message.MessageId = text,
        ["subject"] = (message, text) => message.Subject = text,
        ["session_id"] = (message, text) => message.SessionId = text,
        ["partition_key"] = (message, text) => message.PartitionKey = text,
        ["correlation_id"] = (message, text) => message.CorrelationId = text,
        ["content_type"] = (message, text) => message.ContentType = text,
        ["reply_to"] = (message, text) => message.ReplyTo = text,
        ["reply_to_session_id"] = (message, text) => message.ReplyToSessionId = text,
        ["to"] = (message, text) => message.To = text,
    };

    public static List<ServiceBusMessage> ReadAll(JsonObject request) => [.. request.Objects("messages").Select(Read)];

    /// <summary>A message with a made body of that size.</summary>
    public static ServiceBusMessage Made(int bytesCount) => new(MadeBody(bytesCount));

    private static ServiceBusMessage Read(JsonObject node)
    {
        var message = new ServiceBusMessage(ReadBody(node));
        foreach (var (name, set) in TextSetters)
        {
            if (node.Text(name) is { } text)
            {
                set(message, text);
            }
        }
        if (node.Long("ttl_ms") is { } millis)
        {
            message.TimeToLive = TimeSpan.FromMilliseconds(millis);
        }
        if (node.Long("scheduled_at_ms") is { } instant)
        {
            message.ScheduledEnqueueTime = DateTimeOffset.FromUnixTimeMilliseconds(instant);
        }
        foreach (var (name, value) in TypedValues.ReadAll(node["properties"]?.AsObject() ?? []))
        {
            message.ApplicationProperties[name] = value;
        }
        foreach (var (name, value) in node["annotations"]?.AsObject() ?? [])
        {
            message.GetRawAmqpMessage().MessageAnnotations[name] = value!.GetValue<string>();
        }
        return message;
    }

    private static byte[] ReadBody(JsonObject node)
    {
        if (node.Long("body_size") is { } size)
        {
            return MadeBody((int)size);
        }
        return node.Text("body_base64") is { } encoded
            ? Convert.FromBase64String(encoded)
            : Encoding.UTF8.GetBytes(node.Text("body") ?? "");
    }

    private static byte[] MadeBody(int bytesCount)
    {
        byte[] body = new byte[bytesCount];
        for (int i = 0; i < bytesCount; i++)
        {
            body[i] = (byte)(i * 31 + 7);
        }
        return body;
    }

    /// <summary>The protocol's form of a received or peeked message.</summary>
    public static JsonObject Write(ServiceBusReceivedMessage message, string? handle, bool isPeeked)
    {
        var node = new JsonObject
        {
            ["handle"] = handle,
            ["message_id"] = message.MessageId,
            ["subject"] = message.Subject,
            ["session_id"] = message.SessionId,
            ["partition_key"] = message.PartitionKey,
            ["correlation_id"] = message.CorrelationId,
            ["content_type"] = message.ContentType,
            ["reply_to"] = message.ReplyTo,
            ["reply_to_session_id"] = message.ReplyToSessionId,
            ["to"] = message.To,
            ["ttl_ms"] = message.TimeToLive == TimeSpan.MaxValue ? null : (long)message.TimeToLive.TotalMilliseconds,
            ["sequence_number"] = message.SequenceNumber.ToString(),
            ["enqueued_at_ms"] = Json.Millis(message.EnqueuedTime),
            ["expires_at_ms"] = Json.Millis(message.ExpiresAt),
            ["locked_until_ms"] = isPeeked ? null : Json.Millis(message.LockedUntil),
            ["scheduled_at_ms"] = Json.Millis(message.ScheduledEnqueueTime),
            // Of a received message, not of a peeked one, the SDK counts the delivery itself.
            ["delivery_count"] = message.DeliveryCount - (isPeeked ? 0 : 1),
            ["state"] = message.State.ToString().ToLowerInvariant(),
            ["dead_letter_reason"] = message.DeadLetterReason,
            ["dead_letter_description"] = message.DeadLetterErrorDescription,
            ["dead_letter_source"] = message.DeadLetterSource,
            ["properties"] = TypedValues.WriteAll(message.ApplicationProperties),
        };
        // Of a body that isn't data (an AMQP value or sequence) the SDK has no bytes.
        if (message.GetRawAmqpMessage().Body.TryGetData(out _))
        {
            WriteBody(node, message.Body.ToMemory().Span);
        }
        return node;
    }

    private static void WriteBody(JsonObject node, ReadOnlySpan<byte> body)
    {
        node["body"] = BodyText(body);
        node["body_size"] = body.Length;
        node["body_sha256"] = Convert.ToHexStringLower(SHA256.HashData(body));
    }

    private static string? BodyText(ReadOnlySpan<byte> body)
    {
        try
        {
            return body.Length > BodyTextBytesMax ? null : Strict.GetString(body);
        }
        catch (DecoderFallbackException)
        {
            return null;
        }
    }
}
