using System.Runtime.InteropServices;

namespace Emubus.Driver;

/// <summary>
/// What the driver was started with: the options, each one word, and the connection string behind them. Knows their
/// form, not what the clients make of them.
/// </summary>
/// <param name="ConnectionString">For the SDK, as it came.</param>
/// <param name="WebSocket">Whether the data client speaks AMQP through a WebSocket.</param>
internal sealed partial record Arguments(string ConnectionString, bool WebSocket)
{
    public static Arguments Read(string[] words)
    {
        bool webSocket = false;
        foreach (string word in words[..^1])
        {
            string value = word[(word.IndexOf('=') + 1)..];
            if (word.StartsWith("ca="))
            {
                Trust(value);
            }
            else if (word is "transport=amqp" or "transport=websocket")
            {
                webSocket = value == "websocket";
            }
            else
            {
                throw new RequestException("unknown argument " + word);
            }
        }
        return new Arguments(words[^1], webSocket);
    }

    /// <summary>Whether the SDK speaks without TLS, and takes the port of the connection string.</summary>
    public bool IsForEmulator =>
        Parts.TryGetValue("UseDevelopmentEmulator", out string? emulator) && bool.Parse(emulator);

    /// <summary>Host and port of the connection string.</summary>
    public string Address => new Uri(Parts["Endpoint"]).Authority;

    /// <summary>The connection string with another host, or host and port.</summary>
    public string With(string host) => ConnectionString.Replace(Parts["Endpoint"], "sb://" + host);

    private Dictionary<string, string> Parts =>
        ConnectionString.Split(';').Select(part => part.Split('=', 2)).Where(part => part.Length == 2)
            .ToDictionary(part => part[0].Trim(), part => part[1].Trim(), StringComparer.OrdinalIgnoreCase);

    /// <summary>
    /// Says which CA .NET trusts, as a user does it in the environment of a program. .NET's own call for that changes a
    /// copy, which its TLS does not read, and the SDK's callback for certificates is not asked by WebSockets.
    /// </summary>
    private static void Trust(string file)
    {
        if (SetEnvironment("SSL_CERT_FILE", file, 1) != 0)
        {
            throw new RequestException("SSL_CERT_FILE can't be set");
        }
    }

    [LibraryImport("libc", EntryPoint = "setenv", StringMarshalling = StringMarshalling.Utf8)]
    private static partial int SetEnvironment(string name, string value, int overwrite);
}
