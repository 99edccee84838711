using System.Text.Json.Nodes;
using Azure.Messaging.ServiceBus;

namespace Emubus.Driver;

/// <summary>
/// The operations on a sender to a queue or topic. Knows the SDK's send and schedule calls, not where
/// senders and transactions are kept. Owns nothing: the <see cref="Clients"/> own the senders.
/// </summary>
internal sealed class Sending(Clients clients, Transactions transactions)
{
    public Task<JsonObject> Send(JsonObject request) => WithSender(request, async sender =>
    {
        List<ServiceBusMessage> messages = Messages.ReadAll(request);
        switch (request.Text("how"))
        {
            case "single":
                foreach (ServiceBusMessage message in messages)
                {
                    await sender.SendMessageAsync(message);
                }
                break;
            case "list":
                await sender.SendMessagesAsync(messages);
                break;
            case "batch":
                using (ServiceBusMessageBatch batch = await sender.CreateMessageBatchAsync())
                {
                    if (!messages.All(batch.TryAddMessage))
                    {
                        throw new RequestException("no room in the batch", "message-size");
                    }
                    await sender.SendMessagesAsync(batch);
                }
                break;
            case var how:
                throw new RequestException("unknown how " + how);
        }
        return [];
    });

    public Task<JsonObject> FillBatch(JsonObject request) => WithSender(request, async sender =>
    {
        var options = new CreateMessageBatchOptions { MaxSizeInBytes = request.Long("max_bytes") };
        using ServiceBusMessageBatch batch = await sender.CreateMessageBatchAsync(options);
        while (batch.TryAddMessage(Messages.Made(request.Int("body_bytes"))))
        {
        }
        if (batch.Count == 0)
        {
            throw new RequestException("no room in an empty batch", "message-size");
        }
        int count = batch.Count; // the SDK empties a batch that was sent
        await sender.SendMessagesAsync(batch);
        return new JsonObject { ["count"] = count };
    });

    public Task<JsonObject> Schedule(JsonObject request) => WithSender(request, async sender =>
    {
        DateTimeOffset instant = DateTimeOffset.FromUnixTimeMilliseconds(request.Long("at_ms") ?? 0);
        var numbers = await sender.ScheduleMessagesAsync(Messages.ReadAll(request), instant);
        return new JsonObject { ["sequence_numbers"] = Json.Array(numbers.Select(number => number.ToString())) };
    });

    public Task<JsonObject> CancelScheduled(JsonObject request) => WithSender(request, async sender =>
    {
        await sender.CancelScheduledMessagesAsync(request.Numbers("sequence_numbers"));
        return [];
    });

    private async Task<JsonObject> WithSender(JsonObject request, Func<ServiceBusSender, Task<JsonObject>> work)
    {
        string entity = request.Needed("entity");
        try
        {
            return await transactions.Within(request, () => work(clients.Sender(entity)));
        }
        catch
        {
            await clients.ForgetSender(entity);
            throw;
        }
    }
}
