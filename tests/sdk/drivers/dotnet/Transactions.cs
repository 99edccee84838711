using System.Text.Json.Nodes;
using System.Transactions;

namespace Emubus.Driver;

/// <summary>
/// The open transactions by their ids. The SDK takes part in the transaction of the scope around a call and declares
/// it to the server with the first; it is ended by .NET, which asks the SDK.
/// </summary>
internal sealed class Transactions
{
    private readonly Dictionary<string, CommittableTransaction> _open = [];
    private int _count;

    public JsonObject Begin()
    {
        string id = $"t{++_count}";
        // The server's clock, not the machine's, ends a transaction that takes too long.
        _open[id] = new CommittableTransaction(TransactionManager.MaximumTimeout);
        return new JsonObject { ["transaction"] = id };
    }

    public JsonObject End(JsonObject request)
    {
        using CommittableTransaction transaction = Find(request);
        _open.Remove(request.Needed("transaction"));
        if (request.Flag("commit"))
        {
            transaction.Commit();
        }
        else
        {
            transaction.Rollback();
        }
        return [];
    }

    /// <summary>Runs calls as a part of the transaction that a request names, if it names one.</summary>
    public async Task<JsonObject> Within(JsonObject request, Func<Task<JsonObject>> calls)
    {
        if (request.Text("transaction") is null)
        {
            return await calls();
        }
        using var scope = new TransactionScope(Find(request), TransactionScopeAsyncFlowOption.Enabled);
        try
        {
            return await calls();
        }
        finally
        {
            scope.Complete(); // a call that failed does not decide how the transaction ends
        }
    }

    /// <summary>Leaves them to the server, which rolls back what a client that has gone did not end.</summary>
    public void Forget() => _open.Clear();

    private CommittableTransaction Find(JsonObject request) =>
        _open.TryGetValue(request.Needed("transaction"), out var transaction)
            ? transaction
            : throw new RequestException("unknown transaction " + request.Text("transaction"));
}
