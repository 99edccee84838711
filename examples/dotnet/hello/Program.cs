// Sends a message to queue.1 and receives it: dotnet run.
using Azure.Messaging.ServiceBus;

string connectionString = Environment.GetEnvironmentVariable("SERVICEBUS_CONNECTION_STRING")
    ?? "Endpoint=sb://localhost:5672;SharedAccessKeyName=RootManageSharedAccessKey;"
    + "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true";

await using var client = new ServiceBusClient(connectionString);
await using ServiceBusSender sender = client.CreateSender("queue.1");
await sender.SendMessageAsync(new ServiceBusMessage("hello"));

await using ServiceBusReceiver receiver = client.CreateReceiver("queue.1");
ServiceBusReceivedMessage? message = await receiver.ReceiveMessageAsync(TimeSpan.FromSeconds(5));
if (message is not null)
{
    Console.WriteLine($"received: {message.Body}");
    await receiver.CompleteMessageAsync(message);
}
