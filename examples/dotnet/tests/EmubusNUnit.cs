// For NUnit: [EmubusReports] before a class of tests, or [assembly: EmubusReports].
using NUnit.Framework;
using NUnit.Framework.Interfaces;

[AttributeUsage(AttributeTargets.Class | AttributeTargets.Assembly)]
public sealed class EmubusReportsAttribute : Attribute, ITestAction
{
    private readonly System.Runtime.CompilerServices.ConditionalWeakTable<ITest, EmubusReport> _reports = new();

    public ActionTargets Targets => ActionTargets.Test;

    public void BeforeTest(ITest test) => _reports.AddOrUpdate(test, EmubusReport.BeginAsync().GetAwaiter().GetResult());

    public void AfterTest(ITest test)
    {
        if (TestContext.CurrentContext.Result.Outcome.Status == TestStatus.Failed
            && _reports.TryGetValue(test, out EmubusReport? report))
        {
            TestContext.Out.WriteLine(report.TextAsync().GetAwaiter().GetResult());
        }
    }
}
