// The app host of .NET Aspire with a plain container. Not run by a test of this repository: it needs Docker.
var builder = DistributedApplication.CreateBuilder(args);

var servicebus = builder.AddContainer("servicebus", "emubus", "latest")
    .WithEnvironment("EMUBUS_DURABILITY", "none")
    .WithEnvironment("EMUBUS_QUEUES", "orders,steps?sessions")
    .WithEndpoint(targetPort: 5672, scheme: "tcp", name: "amqp")
    .WithHttpEndpoint(targetPort: 5300, name: "http")
    .WithHttpHealthCheck("/health", endpointName: "http");

var amqp = servicebus.GetEndpoint("amqp");
var connectionString = ReferenceExpression.Create(
    $"Endpoint=sb://{amqp.Property(EndpointProperty.Host)}:{amqp.Property(EndpointProperty.Port)};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true");

// Your app: builder.AddProject<Projects.App>("app")
builder.AddExecutable("app", "dotnet", "../app", "run")
    .WithEnvironment("SERVICEBUS_CONNECTION_STRING", connectionString)
    .WaitFor(servicebus);

builder.Build().Run();
