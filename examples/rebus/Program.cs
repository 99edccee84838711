// Rebus with Rebus.AzureServiceBus 10. Not run by a test of this repository.
// Rebus creates its queue over the administration client, which uses the same port.
using Rebus.Activation;
using Rebus.Config;

const string ConnectionString =
    "Endpoint=sb://localhost:5672;SharedAccessKeyName=RootManageSharedAccessKey;"
    + "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true";

using var activator = new BuiltinHandlerActivator();
activator.Handle<string>(async text => await Console.Out.WriteLineAsync($"received: {text}"));
using var bus = Configure.With(activator)
    .Transport(transport => transport.UseAzureServiceBus(ConnectionString, "orders"))
    .Start();
await bus.SendLocal("hello");
Console.ReadLine();
