// MassTransit 8 with package MassTransit.Azure.ServiceBus.Core. Not run by a test of this repository.
// MassTransit creates its queues and topics: one connection string serves AMQP and administration, since each port accepts both.
using MassTransit;
using Microsoft.Extensions.Hosting;

const string ConnectionString =
    "Endpoint=sb://localhost:5672;SharedAccessKeyName=RootManageSharedAccessKey;"
    + "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true";

var builder = Host.CreateApplicationBuilder(args);
builder.Services.AddMassTransit(bus =>
{
    bus.AddConsumer<OrderConsumer>();
    bus.UsingAzureServiceBus((context, configuration) =>
    {
        configuration.Host(ConnectionString);
        configuration.ConfigureEndpoints(context);
    });
});
await builder.Build().RunAsync();

public record Order(int Number);

public class OrderConsumer : IConsumer<Order>
{
    public Task Consume(ConsumeContext<Order> context)
    {
        Console.WriteLine($"order {context.Message.Number}");
        return Task.CompletedTask;
    }
}
