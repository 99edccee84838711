using System.Text.Json.Nodes;
using Azure.Messaging.ServiceBus;

namespace Emubus.Driver;

/// <summary>
/// One receiver of the SDK and the handles of the messages it locked. Owns the receiver, and the client that was made
/// for it alone, if there is one.
/// </summary>
internal sealed class Receiver(ServiceBusReceiver receiver, ServiceBusClient? own = null)
{
    private readonly Dictionary<string, ServiceBusReceivedMessage> _messages = [];
    private int _handlesCount;

    private ServiceBusSessionReceiver Session =>
        receiver as ServiceBusSessionReceiver ?? throw new RequestException("not a receiver of a message session");

    public async Task Close()
    {
        _messages.Clear();
        await receiver.CloseAsync();
        if (own is not null)
        {
            await own.DisposeAsync();
        }
    }

    public async Task<JsonObject> Receive(JsonObject request) =>
        Locked(await receiver.ReceiveMessagesAsync(
            request.Int("max"), TimeSpan.FromMilliseconds(request.Int("wait_ms"))));

    public async Task<JsonObject> ReceiveDeferred(JsonObject request) =>
        Locked(await receiver.ReceiveDeferredMessagesAsync(request.Numbers("sequence_numbers")));

    public async Task<JsonObject> Peek(JsonObject request)
    {
        long? from = request.Text("from_sequence_number") is { } text ? long.Parse(text) : null;
        var peeked = await receiver.PeekMessagesAsync(request.Int("max"), from);
        return Shown(peeked.Select(message => Messages.Write(message, null, isPeeked: true)));
    }

    public async Task<JsonObject> RenewLock(JsonObject request)
    {
        ServiceBusReceivedMessage message = Find(request);
        await receiver.RenewMessageLockAsync(message);
        return new JsonObject { ["locked_until_ms"] = Json.Millis(message.LockedUntil) };
    }

    public async Task<JsonObject> Settle(JsonObject request, Receiver? from)
    {
        ServiceBusReceivedMessage message = (from ?? this).Find(request);
        // Null says that nothing is to be modified; the SDK takes an empty dictionary for a change.
        var changes = request["properties"] is JsonObject given ? TypedValues.ReadAll(given) : null;
        string? reason = request.Text("reason"), description = request.Text("description");
        await (request.Text("action") switch
        {
            "complete" => receiver.CompleteMessageAsync(message),
            "abandon" => receiver.AbandonMessageAsync(message, changes),
            "defer" => receiver.DeferMessageAsync(message, changes),
            "dead-letter" when reason is null && description is null =>
                receiver.DeadLetterMessageAsync(message, changes),
            "dead-letter" when changes is null => receiver.DeadLetterMessageAsync(message, reason, description),
            "dead-letter" => receiver.DeadLetterMessageAsync(message, changes, reason, description),
            var action => throw new RequestException("unknown action " + action),
        });
        (from ?? this)._messages.Remove(request.Needed("message"));
        return [];
    }

    public async Task<JsonObject> RenewSession()
    {
        await Session.RenewSessionLockAsync();
        return new JsonObject { ["locked_until_ms"] = Json.Millis(Session.SessionLockedUntil) };
    }

    public async Task<JsonObject> GetSessionState()
    {
        BinaryData? state = await Session.GetSessionStateAsync();
        return new JsonObject { ["state_base64"] = state is null ? null : Convert.ToBase64String(state) };
    }

    public async Task<JsonObject> SetSessionState(JsonObject request)
    {
        string? text = request.Text("state_base64");
        await Session.SetSessionStateAsync(text is null ? null : BinaryData.FromBytes(Convert.FromBase64String(text)));
        return [];
    }

    private ServiceBusReceivedMessage Find(JsonObject request) =>
        _messages.TryGetValue(request.Needed("message"), out var message)
            ? message
            : throw new RequestException("unknown message " + request.Text("message"));

    private JsonObject Locked(IEnumerable<ServiceBusReceivedMessage> received)
    {
        return Shown(received.Select(message => Messages.Write(message, HandleOf(message), isPeeked: false)));
    }

    private string? HandleOf(ServiceBusReceivedMessage message)
    {
        if (receiver.ReceiveMode == ServiceBusReceiveMode.ReceiveAndDelete)
        {
            return null;
        }
        string handle = $"m{++_handlesCount}";
        _messages[handle] = message;
        return handle;
    }

    private static JsonObject Shown(IEnumerable<JsonObject> messages) => new() { ["messages"] = Json.Array(messages) };
}
