// NServiceBus with NServiceBus.Transport.AzureServiceBus 5. Not run by a test of this repository.
// The installers create queues and topics over the administration client, for which NServiceBus takes port 5300.
using NServiceBus;

const string ConnectionString =
    "Endpoint=sb://localhost:5672;SharedAccessKeyName=RootManageSharedAccessKey;"
    + "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true";

var configuration = new EndpointConfiguration("orders");
configuration.UseSerialization<SystemJsonSerializer>();
configuration.UseTransport(new AzureServiceBusTransport(ConnectionString, TopicTopology.Default));
configuration.EnableInstallers();

var endpoint = await Endpoint.Start(configuration);
Console.ReadLine();
await endpoint.Stop();
