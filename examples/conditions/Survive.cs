// Sends an order and processes it once, whatever the service does meanwhile; with `fragile` it hopes for the best.
using Azure.Messaging.ServiceBus;

const string Queue = "queue.1";
const int Tries = 60;
TimeSpan pause = TimeSpan.FromSeconds(1);
string connectionString = Environment.GetEnvironmentVariable("SERVICEBUS_CONNECTION_STRING")!;
await using var client = new ServiceBusClient(connectionString);

if (args.Contains("fragile")) // one try, and no id of the order's
{
    await client.CreateSender(Queue).SendMessageAsync(new ServiceBusMessage("an order"));
    return;
}

await Send("order 7");
Console.WriteLine("done: " + string.Join(" ", await Process()));

// The id is the order's: a second try after a lost outcome is no second order.
async Task Send(string order)
{
    for (int left = Tries; left > 0; left--)
    {
        await using ServiceBusSender sender = client.CreateSender(Queue);
        try
        {
            await sender.SendMessageAsync(new ServiceBusMessage("an order") { MessageId = order });
            return;
        }
        catch (ServiceBusException) // also MessagingEntityNotFound, which the SDK does not try again
        {
            await Task.Delay(pause);
        }
    }
    throw new InvalidOperationException($"{order} was not accepted");
}

// Until two receives in a row find nothing: one alone may be empty although there are messages.
async Task<HashSet<string>> Process()
{
    var done = new HashSet<string>(); // in a program: a table, written in one transaction with the work
    for (int empty = 0; empty < 2;)
    {
        await using ServiceBusReceiver receiver = client.CreateReceiver(Queue);
        try
        {
            var messages = await receiver.ReceiveMessagesAsync(10, TimeSpan.FromSeconds(2));
            empty = messages.Count > 0 ? 0 : empty + 1;
            foreach (ServiceBusReceivedMessage message in messages)
            {
                done.Add(message.MessageId); // the work, unless it is done already
                try
                {
                    await receiver.CompleteMessageAsync(message);
                }
                catch (ServiceBusException error) when (error.Reason == ServiceBusFailureReason.MessageLockLost)
                {
                    // it comes again, and is known
                }
            }
        }
        catch (ServiceBusException)
        {
            await Task.Delay(pause);
        }
    }
    return done;
}
