using System.Text;
using System.Text.Encodings.Web;
using System.Text.Json;
using System.Text.Json.Nodes;
using Azure.Core.Diagnostics;
using Azure.Messaging.ServiceBus;

namespace Emubus.Driver;

/// <summary>
/// The driver around Azure's .NET SDK: one request per line in, one answer per line out, as PROTOCOL.md in tests/sdk/
/// says. Knows the operations and nothing of the wire. Owns the <see cref="Clients"/> and the
/// <see cref="Administration"/>.
/// </summary>
internal sealed class Program
{
    private static readonly string[] Features =
        ["session_list", "rules", "transactions", "administration", "processors", "shared_sessions"];

    private static readonly JsonSerializerOptions Plain = new() { Encoder = JavaScriptEncoder.UnsafeRelaxedJsonEscaping };

    private readonly Reach _reach;
    private readonly Clients _clients;
    private readonly Administration _administration;
    private readonly Transactions _transactions = new();
    private readonly Dictionary<string, Func<JsonObject, Task<JsonObject>>> _operations;

    private Program(Arguments arguments)
    {
        _reach = new Reach(arguments);
        _clients = new Clients(_reach);
        _administration = new Administration(_reach);
        var sending = new Sending(_clients, _transactions);
        var rules = new Rules(_clients);
        var processing = new Processing(_clients);
        _operations = new()
        {
            ["hello"] = _ => Task.FromResult(Hello()),
            ["send"] = sending.Send,
            ["fill_batch"] = sending.FillBatch,
            ["schedule"] = sending.Schedule,
            ["cancel_scheduled"] = sending.CancelScheduled,
            ["receiver_open"] = request => Task.FromResult(_clients.OpenReceiver(request)),
            ["receiver_close"] = _clients.CloseReceiver,
            ["receive"] = request => _clients.Receiver(request).Receive(request),
            ["receive_deferred"] = request => _clients.Receiver(request).ReceiveDeferred(request),
            ["peek"] = request => _clients.Receiver(request).Peek(request),
            ["settle"] = request => _transactions.Within(request, () => _clients.Receiver(request).Settle(request, _clients.From(request))),
            ["renew_lock"] = request => _clients.Receiver(request).RenewLock(request),
            ["session_accept"] = _clients.AcceptSession,
            ["session_renew"] = request => _clients.Receiver(request).RenewSession(),
            ["session_get_state"] = request => _clients.Receiver(request).GetSessionState(),
            ["session_set_state"] = request => _clients.Receiver(request).SetSessionState(request),
            ["session_list"] = _clients.ListSessions,
            ["process"] = processing.Run,
            ["rule_add"] = rules.Add,
            ["rule_list"] = rules.List,
            ["rule_remove"] = rules.Remove,
            ["transaction_begin"] = _ => Task.FromResult(_transactions.Begin()),
            ["transaction_end"] = request => Task.FromResult(_transactions.End(request)),
            ["reset"] = Reset,
            ["close"] = Reset,
        };
        foreach (var (name, operation) in _administration.Operations)
        {
            _operations[name] = operation;
        }
    }

    /// <summary>Reads requests until the end of stdin or <c>close</c>; status 2 after a line that is not JSON.</summary>
    private static async Task<int> Main(string[] arguments)
    {
        using Stream input = Console.OpenStandardInput();
        using Stream output = Console.OpenStandardOutput();
        // Whatever a library prints belongs to the log: stdout is the protocol's.
        Console.SetOut(Console.Error);
        using var log = new AzureEventSourceListener(
            (_, text) => Console.Error.WriteLine(text), System.Diagnostics.Tracing.EventLevel.Warning);
        return await new Program(Arguments.Read(arguments)).Serve(new StreamReader(input, new UTF8Encoding(false)), output);
    }

    private async Task<int> Serve(StreamReader requests, Stream answers)
    {
        while (await requests.ReadLineAsync() is { } line)
        {
            JsonObject request;
            try
            {
                request = JsonNode.Parse(line)!.AsObject();
            }
            catch (Exception error) when (error is JsonException or InvalidOperationException)
            {
                Console.Error.WriteLine("not a request: " + error.Message);
                return 2;
            }
            JsonObject answer = await Answer(request);
            await answers.WriteAsync(Encoding.UTF8.GetBytes(answer.ToJsonString(Plain) + "\n"));
            await answers.FlushAsync();
            if (request.Text("op") == "close")
            {
                return 0;
            }
        }
        return 0;
    }

    private async Task<JsonObject> Answer(JsonObject request)
    {
        var answer = new JsonObject { ["id"] = request["id"]?.DeepClone() };
        try
        {
            string name = request.Text("op") ?? "";
            if (!_operations.TryGetValue(name, out var operation))
            {
                throw new RequestException("unknown op " + name);
            }
            JsonObject result = await operation(request);
            answer["ok"] = true;
            answer["result"] = result;
        }
        catch (Exception error)
        {
            answer["ok"] = false;
            answer["error"] = Failures.Write(error);
        }
        return answer;
    }

    private static JsonObject Hello()
    {
        var sdk = typeof(ServiceBusClient).Assembly.GetName();
        return new JsonObject
        {
            ["client"] = "dotnet",
            ["sdk"] = $"{sdk.Name} {sdk.Version!.ToString(3)}",
            ["property_types"] = Json.Array(TypedValues.Types),
            ["features"] = Json.Array(Features),
        };
    }

    private async Task<JsonObject> Reset(JsonObject request)
    {
        _transactions.Forget();
        _administration.Forget();
        await _clients.Reset(request.Flag("cross_entity"));
        _reach.Set(request);
        return [];
    }
}
