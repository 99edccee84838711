// Creates a queue, shows its message count and deletes it: dotnet run. From 7.20.1 the client uses plain HTTP and this port.
// Not run by a test of this repository.
using Azure.Messaging.ServiceBus.Administration;

string connectionString = Environment.GetEnvironmentVariable("SERVICEBUS_ADMIN_CONNECTION_STRING")
    ?? "Endpoint=sb://localhost:5300;SharedAccessKeyName=RootManageSharedAccessKey;"
    + "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true";

var administration = new ServiceBusAdministrationClient(connectionString);
await administration.CreateQueueAsync(new CreateQueueOptions("orders") { EnablePartitioning = true });
QueueRuntimeProperties properties = await administration.GetQueueRuntimePropertiesAsync("orders");
Console.WriteLine($"{properties.Name}: {properties.ActiveMessageCount} messages");
await administration.DeleteQueueAsync("orders");
