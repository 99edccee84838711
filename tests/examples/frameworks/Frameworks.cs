// The parts of xunit.v3 and NUnit that examples/dotnet/tests uses: their packages can't be had everywhere. Compiling
// against these shows that the helpers are whole; that the frameworks call them so is their documentation's word.
namespace Xunit
{
    public interface IAsyncLifetime : IAsyncDisposable
    {
        ValueTask InitializeAsync();
    }

    public enum TestResult { Passed, Failed, Skipped, NotRun }

    public sealed record TestResultState(TestResult Result);

    public interface ITestOutputHelper
    {
        void WriteLine(string message);
    }

    public sealed record TestContext(TestResultState? TestState, ITestOutputHelper? TestOutputHelper)
    {
        public static TestContext Current { get; set; } = new(null, null);
    }
}

namespace NUnit.Framework.Interfaces
{
    public interface ITest { }

    public enum TestStatus { Inconclusive, Skipped, Passed, Warning, Failed }

    public sealed record ResultState(TestStatus Status);
}

namespace NUnit.Framework
{
    using NUnit.Framework.Interfaces;

    [Flags]
    public enum ActionTargets { Default = 0, Test = 1, Suite = 2 }

    public interface ITestAction
    {
        ActionTargets Targets { get; }

        void BeforeTest(ITest test);

        void AfterTest(ITest test);
    }

    public sealed record ResultAdapter(ResultState Outcome);

    public sealed record TestContext(ResultAdapter Result)
    {
        public static TestContext CurrentContext { get; set; } = new(new ResultAdapter(new(TestStatus.Inconclusive)));

        public static TextWriter Out => Console.Out;
    }
}
