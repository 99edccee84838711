// For xunit.v3: public sealed class OrdersTest : EmubusTest { … }. xunit 2 does not tell a class whether its test has
// failed; there write what EmubusReport says in a catch of your own.
using Xunit;

public abstract class EmubusTest : IAsyncLifetime
{
    private EmubusReport? _report;

    public virtual async ValueTask InitializeAsync() => _report = await EmubusReport.BeginAsync();

    public virtual async ValueTask DisposeAsync()
    {
        GC.SuppressFinalize(this);
        if (TestContext.Current.TestState?.Result == TestResult.Failed && _report is not null)
        {
            TestContext.Current.TestOutputHelper?.WriteLine(await _report.TextAsync());
        }
    }
}
