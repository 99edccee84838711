// The app host of .NET Aspire. Not run by a test of this repository: it needs Docker.
var builder = DistributedApplication.CreateBuilder(args);

var servicebus = builder.AddAzureServiceBus("servicebus")
    .RunAsEmulator(emulator => emulator.WithImageRegistry(null).WithImage("emubus", "latest"));
foreach (var sql in builder.Resources.Where(each => each.Name == "servicebus-mssql").ToList()) builder.Resources.Remove(sql);

servicebus.AddServiceBusQueue("orders");
servicebus.AddServiceBusTopic("prices").AddServiceBusSubscription("shop");

// Your app: builder.AddProject<Projects.App>("app")
builder.AddExecutable("app", "dotnet", "../app", "run").WithReference(servicebus).WaitFor(servicebus);

builder.Build().Run();
