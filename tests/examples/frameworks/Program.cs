// Calls the helpers of examples/dotnet/tests as the frameworks do, after a test that fails and after one that passes.
using Azure.Messaging.ServiceBus;
using NUnit.Framework.Interfaces;
using Xunit;

string connectionString = Environment.GetEnvironmentVariable("SERVICEBUS_CONNECTION_STRING")!;

async Task Misspell()
{
    var options = new ServiceBusClientOptions { RetryOptions = { MaxRetries = 0 } };
    await using var client = new ServiceBusClient(connectionString, options);
    try
    {
        await client.CreateSender("quee.1").SendMessageAsync(new ServiceBusMessage("x"));
    }
    catch (ServiceBusException)
    {
        return;
    }
    throw new InvalidOperationException("it was sent");
}

foreach (bool fails in new[] { false, true })
{
    Console.WriteLine($"xunit: {(fails ? "failed" : "passed")}");
    var test = new OrdersTest();
    await test.InitializeAsync();
    await Misspell();
    var state = new TestResultState(fails ? TestResult.Failed : TestResult.Passed);
    Xunit.TestContext.Current = new(state, new Printed());
    await test.DisposeAsync();

    Console.WriteLine($"nunit: {(fails ? "failed" : "passed")}");
    var reports = new EmubusReportsAttribute();
    var named = new Named();
    reports.BeforeTest(named);
    await Misspell();
    var status = fails ? TestStatus.Failed : TestStatus.Passed;
    NUnit.Framework.TestContext.CurrentContext = new(new(new(status)));
    reports.AfterTest(named);
}

internal sealed class OrdersTest : EmubusTest;

internal sealed class Named : ITest;

internal sealed class Printed : ITestOutputHelper
{
    public void WriteLine(string message) => Console.WriteLine(message);
}
