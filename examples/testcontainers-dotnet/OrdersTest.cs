// dotnet test. Not run by a test of this repository: it needs Docker.
// A generic container: the module Testcontainers.ServiceBus also starts an SQL Server.
using Azure.Messaging.ServiceBus;
using DotNet.Testcontainers.Builders;
using DotNet.Testcontainers.Containers;
using Xunit;

public sealed class OrdersTest : IAsyncLifetime
{
    private readonly IContainer _emubus = new ContainerBuilder()
        .WithImage("emubus:latest")
        .WithPortBinding(5672, true)
        .WithPortBinding(5300, true)
        .WithEnvironment("EMUBUS_DURABILITY", "none")
        .WithEnvironment("EMUBUS_QUEUES", "orders,steps?sessions")
        .WithWaitStrategy(Wait.ForUnixContainer()
            .UntilHttpRequestIsSucceeded(request => request.ForPort(5300).ForPath("/health")))
        .Build();

    private string ConnectionString =>
        $"Endpoint=sb://{_emubus.Hostname}:{_emubus.GetMappedPublicPort(5672)};"
        + "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true";

    public Task InitializeAsync() => _emubus.StartAsync();

    public Task DisposeAsync() => _emubus.DisposeAsync().AsTask();

    [Fact]
    public async Task AnOrderArrives()
    {
        await using var client = new ServiceBusClient(ConnectionString);
        await client.CreateSender("orders").SendMessageAsync(new ServiceBusMessage("order 7"));
        ServiceBusReceiver receiver = client.CreateReceiver("orders");
        ServiceBusReceivedMessage message = await receiver.ReceiveMessageAsync(TimeSpan.FromSeconds(5));
        Assert.Equal("order 7", message.Body.ToString());
        await receiver.CompleteMessageAsync(message);
    }
}
