using System.Text.Json.Nodes;
using Azure.Messaging.ServiceBus;

namespace Emubus.Driver;

/// <summary>
/// The operation that runs a processor of the SDK until it has handled so many messages. Knows both kinds of processor
/// and their events. Owns the processor, from its start to its end.
/// </summary>
internal sealed class Processing(Clients clients)
{
    private static readonly TimeSpan SessionIdleTimeout = TimeSpan.FromMilliseconds(300);

    public async Task<JsonObject> Run(JsonObject request)
    {
        var run = new Processed(request);
        string entity = request.Needed("entity");
        int concurrent = request.Int("concurrent");
        if (!request.Flag("sessions"))
        {
            var options = new ServiceBusProcessorOptions { MaxConcurrentCalls = concurrent };
            await using ServiceBusProcessor processor = clients.Client.CreateProcessor(entity, options);
            processor.ProcessMessageAsync += args => run.Handle(args.Message);
            processor.ProcessErrorAsync += run.Fail;
            await run.Between(() => processor.StartProcessingAsync(), () => processor.StopProcessingAsync());
            return run.Answer;
        }
        var ofSessions = new ServiceBusSessionProcessorOptions
        {
            MaxConcurrentSessions = concurrent,
            SessionIdleTimeout = SessionIdleTimeout,
        };
        await using ServiceBusSessionProcessor sessions = clients.Client.CreateSessionProcessor(entity, ofSessions);
        sessions.ProcessMessageAsync += async args =>
        {
            BinaryData? state = await args.GetSessionStateAsync();
            await args.SetSessionStateAsync(BinaryData.FromString(state + args.Message.Body.ToString()));
            await run.Handle(args.Message);
        };
        sessions.ProcessErrorAsync += run.Fail;
        await run.Between(() => sessions.StartProcessingAsync(), () => sessions.StopProcessingAsync());
        return run.Answer;
    }

    /// <summary>What one processor has handled, and what has failed in it.</summary>
    private sealed class Processed(JsonObject request)
    {
        private readonly JsonArray _handled = [];
        private readonly JsonArray _errors = [];
        private readonly List<string> _failing =
            [.. (request["failing"]?.AsArray() ?? []).Select(body => body!.GetValue<string>())];
        private readonly TaskCompletionSource _all = new(TaskCreationOptions.RunContinuationsAsynchronously);

        public JsonObject Answer => new() { ["handled"] = _handled, ["errors"] = _errors };

        public Task Handle(ServiceBusReceivedMessage message)
        {
            string body = message.Body.ToString();
            lock (_handled)
            {
                _handled.Add(new JsonObject
                {
                    ["body"] = body,
                    ["session_id"] = message.SessionId,
                    ["delivery_count"] = message.DeliveryCount - 1,
                });
                if (_handled.Count >= request.Int("count"))
                {
                    _all.TrySetResult();
                }
                if (_failing.Remove(body))
                {
                    throw new RequestException("the handler fails for " + body);
                }
            }
            return Task.CompletedTask;
        }

        public Task Fail(ProcessErrorEventArgs args)
        {
            lock (_handled)
            {
                _errors.Add(args.ErrorSource.ToString());
            }
            return Task.CompletedTask;
        }

        public async Task Between(Func<Task> start, Func<Task> stop)
        {
            await start();
            await Task.WhenAny(_all.Task, Task.Delay(request.Int("wait_ms")));
            await stop();
        }
    }
}
