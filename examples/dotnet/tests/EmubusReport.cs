// What emubus knows of a test that failed. Copy this file, and EmubusXunit.cs or EmubusNUnit.cs beside it.
// EMUBUS_URL is the address of the control API, http://localhost:5300 without it.
using System.Text.Json;

public sealed class EmubusReport
{
    private static readonly HttpClient Client = new() { Timeout = TimeSpan.FromSeconds(5) };

    private static readonly string Control =
        (Environment.GetEnvironmentVariable("EMUBUS_URL") ?? "http://localhost:5300") + "/emubus/v1";

    private readonly long _since;

    private EmubusReport(long since) => _since = since;

    /// <summary>At the begin of a test.</summary>
    public static async Task<EmubusReport> BeginAsync()
    {
        try
        {
            // By the broker's clock, which tests may have moved.
            using JsonDocument clock = JsonDocument.Parse(await Client.GetStringAsync(Control + "/clock"));
            return new EmubusReport(clock.RootElement.GetProperty("now_ms").GetInt64());
        }
        catch (Exception error) when (error is HttpRequestException or TaskCanceledException)
        {
            return new EmubusReport(0); // the report says that nobody answers
        }
    }

    /// <summary>After a test that failed: sections of lines, or "" if there is nothing to say.</summary>
    public async Task<string> TextAsync()
    {
        try
        {
            string report = await Client.GetStringAsync($"{Control}/report/text?since={_since}");
            return report.Length == 0 ? "" : $"emubus\n{report}";
        }
        catch (Exception error) when (error is HttpRequestException or TaskCanceledException)
        {
            return $"emubus can't be asked what happened: {error.Message}";
        }
    }
}
