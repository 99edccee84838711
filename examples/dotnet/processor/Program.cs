// Processes the messages of queue.1, eight at a time, until Enter is pressed: dotnet run.
// Not run by a test of this repository.
using Azure.Messaging.ServiceBus;

string connectionString = Environment.GetEnvironmentVariable("SERVICEBUS_CONNECTION_STRING")
    ?? "Endpoint=sb://localhost:5672;SharedAccessKeyName=RootManageSharedAccessKey;"
    + "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true";

await using var client = new ServiceBusClient(connectionString);
await using ServiceBusProcessor processor = client.CreateProcessor(
    "queue.1", new ServiceBusProcessorOptions { MaxConcurrentCalls = 8, AutoCompleteMessages = false });
processor.ProcessMessageAsync += async args =>
{
    Console.WriteLine($"received: {args.Message.Body}");
    await args.CompleteMessageAsync(args.Message);
};
processor.ProcessErrorAsync += args =>
{
    Console.Error.WriteLine(args.Exception);
    return Task.CompletedTask;
};
await processor.StartProcessingAsync();
Console.ReadLine();
await processor.StopProcessingAsync();
