using System.Text.Json.Nodes;
using Azure.Messaging.ServiceBus;

namespace Emubus.Driver;

/// <summary>
/// What the driver holds of the SDK: one client, which is one connection, a sender for each entity, a rule manager for
/// each subscription and the open receivers by their handles. Owns them all; <see cref="Reset"/> closes everything, and
/// the next use starts with a new client.
/// </summary>
internal sealed class Clients(Reach reach)
{
    private static readonly TimeSpan TryTimeout = TimeSpan.FromSeconds(20);

    private readonly Dictionary<string, ServiceBusSender> _senders = [];
    private readonly Dictionary<(string, string), ServiceBusRuleManager> _ruleManagers = [];
    private readonly Dictionary<string, Receiver> _receivers = [];
    private ServiceBusClient? _client;
    private bool _crossEntity;
    private int _receiversCount;

    public ServiceBusClient Client => _client ??= NewClient(1, TryTimeout);

    private ServiceBusClient NewClient(int retriesMax, TimeSpan tryTimeout)
    {
        return reach.DataClient(new ServiceBusClientOptions
        {
            EnableCrossEntityTransactions = _crossEntity,
            RetryOptions = new ServiceBusRetryOptions
            {
                Mode = ServiceBusRetryMode.Fixed,
                MaxRetries = retriesMax,
                Delay = TimeSpan.FromMilliseconds(100),
                TryTimeout = tryTimeout,
            },
        });
    }

    /// <summary>The sender to a queue or topic; the same one until it is forgotten.</summary>
    public ServiceBusSender Sender(string entity)
    {
        if (!_senders.TryGetValue(entity, out var sender))
        {
            sender = _senders[entity] = Client.CreateSender(entity);
        }
        return sender;
    }

    public async Task ForgetSender(string entity)
    {
        if (_senders.Remove(entity, out var sender))
        {
            await sender.DisposeAsync();
        }
    }

    /// <summary>The rule manager of the subscription that a request names.</summary>
    public ServiceBusRuleManager RuleManager(JsonObject request)
    {
        var key = (request.Needed("entity"), request.Needed("subscription"));
        if (!_ruleManagers.TryGetValue(key, out var manager))
        {
            manager = _ruleManagers[key] = Client.CreateRuleManager(key.Item1, key.Item2);
        }
        return manager;
    }

    public JsonObject OpenReceiver(JsonObject request)
    {
        var options = new ServiceBusReceiverOptions
        {
            ReceiveMode = ModeOf(request),
            PrefetchCount = request.Int("prefetch"),
            SubQueue = request.Text("sub_queue") switch
            {
                null => SubQueue.None,
                "dead-letter" => SubQueue.DeadLetter,
                "transfer-dead-letter" => SubQueue.TransferDeadLetter,
                var name => throw new RequestException("unknown sub_queue " + name),
            },
        };
        string entity = request.Needed("entity");
        var receiver = request.Text("subscription") is { } subscription
            ? Client.CreateReceiver(entity, subscription, options)
            : Client.CreateReceiver(entity, options);
        return new JsonObject { ["receiver"] = Keep(new Receiver(receiver)) };
    }

    /// <summary>
    /// The SDK tells the server its try timeout for how long to wait, so waiting for the next message session needs a
    /// client of its own, which is closed with the receiver. One with a name isn't waited for.
    /// </summary>
    public async Task<JsonObject> AcceptSession(JsonObject request)
    {
        var options = new ServiceBusSessionReceiverOptions
        {
            ReceiveMode = ModeOf(request),
            EnableNonExclusiveSession = request.Flag("shared"),
            SessionLockToken = request.Text("session_lock_token") is { } token ? Guid.Parse(token) : null,
        };
        string entity = request.Needed("entity");
        string? subscription = request.Text("subscription"), id = request.Text("session_id");
        ServiceBusClient? own = id is null ? NewClient(0, TimeSpan.FromMilliseconds(request.Int("wait_ms"))) : null;
        ServiceBusClient client = own ?? Client;
        ServiceBusSessionReceiver accepted;
        try
        {
            accepted = await ((subscription, id) switch
            {
                (null, null) => client.AcceptNextSessionAsync(entity, options),
                (null, _) => client.AcceptSessionAsync(entity, id, options),
                (_, null) => client.AcceptNextSessionAsync(entity, subscription, options),
                _ => client.AcceptSessionAsync(entity, subscription, id, options),
            });
        }
        catch
        {
            if (own is not null)
            {
                await own.DisposeAsync();
            }
            throw;
        }
        return new JsonObject
        {
            ["receiver"] = Keep(new Receiver(accepted, own)),
            ["session_id"] = accepted.SessionId,
            ["locked_until_ms"] = Json.Millis(accepted.SessionLockedUntil),
            ["session_lock_token"] = accepted.IsSessionExclusive ? null : accepted.SessionLockToken,
        };
    }

    public async Task<JsonObject> ListSessions(JsonObject request)
    {
        string entity = request.Needed("entity");
        string? subscription = request.Text("subscription");
        DateTimeOffset? after = request.Long("updated_after_ms") is { } millis
            ? DateTimeOffset.FromUnixTimeMilliseconds(millis)
            : null;
        var listed = (subscription, after) switch
        {
            (null, null) => Client.GetMessageSessionsAsync(entity),
            (null, { } instant) => Client.GetMessageSessionsAsync(entity, instant),
            (_, null) => Client.GetMessageSessionsAsync(entity, subscription),
            (_, { } instant) => Client.GetMessageSessionsAsync(entity, subscription, instant),
        };
        var ids = new JsonArray();
        await foreach (string id in listed)
        {
            ids.Add(id);
        }
        return new JsonObject { ["session_ids"] = ids };
    }

    public Receiver Receiver(JsonObject request) =>
        _receivers.TryGetValue(request.Needed("receiver"), out var receiver)
            ? receiver
            : throw new RequestException("unknown receiver " + request.Text("receiver"));

    /// <summary>The receiver that has received the message of a request, where it is not the one that settles it.</summary>
    public Receiver? From(JsonObject request) =>
        request.Text("received_by") is { } handle ? _receivers[handle] : null;

    public async Task<JsonObject> CloseReceiver(JsonObject request)
    {
        Receiver receiver = Receiver(request);
        _receivers.Remove(request.Needed("receiver"));
        await receiver.Close();
        return [];
    }

    /// <summary>Closes every sender and receiver and the client.</summary>
    public async Task Reset(bool crossEntityNext)
    {
        Func<Task>[] closings =
        [
            .. _receivers.Values.Select(receiver => (Func<Task>)receiver.Close),
            .. _senders.Values.Select(sender => (Func<Task>)(() => sender.CloseAsync())),
            .. _ruleManagers.Values.Select(manager => (Func<Task>)(() => manager.CloseAsync())),
            .. _client is { } client ? [() => client.DisposeAsync().AsTask()] : Array.Empty<Func<Task>>(),
        ];
        _receivers.Clear();
        _senders.Clear();
        _ruleManagers.Clear();
        _client = null;
        _crossEntity = crossEntityNext;
        foreach (var close in closings)
        {
            await close();
        }
    }

    private string Keep(Receiver receiver)
    {
        string handle = $"r{++_receiversCount}";
        _receivers[handle] = receiver;
        return handle;
    }

    private static ServiceBusReceiveMode ModeOf(JsonObject request) => request.Text("mode") switch
    {
        "peek-lock" => ServiceBusReceiveMode.PeekLock,
        "receive-and-delete" => ServiceBusReceiveMode.ReceiveAndDelete,
        var name => throw new RequestException("unknown mode " + name),
    };
}
