using System.Text.Json.Nodes;
using System.Transactions;
using Azure;
using Azure.Messaging.ServiceBus;
using Microsoft.Azure.Amqp;

namespace Emubus.Driver;

/// <summary>
/// Exceptions of the SDK, and of what it is built on, to the kinds of error of the driver protocol. Knows reasons, AMQP
/// conditions, HTTP statuses and exception classes, not operations.
/// </summary>
internal static class Failures
{
    private static readonly Dictionary<ServiceBusFailureReason, string> KindByReason = new()
    {
        [ServiceBusFailureReason.MessagingEntityNotFound] = "not-found",
        [ServiceBusFailureReason.MessageSizeExceeded] = "message-size",
        [ServiceBusFailureReason.MessageLockLost] = "lock-lost",
        [ServiceBusFailureReason.SessionLockLost] = "session-lock-lost",
        [ServiceBusFailureReason.SessionCannotBeLocked] = "session-cannot-be-locked",
        [ServiceBusFailureReason.ServiceTimeout] = "timeout",
        [ServiceBusFailureReason.QuotaExceeded] = "quota",
        [ServiceBusFailureReason.ServiceBusy] = "busy",
        [ServiceBusFailureReason.MessagingEntityDisabled] = "disabled",
        [ServiceBusFailureReason.MessageNotFound] = "message-not-found",
        [ServiceBusFailureReason.MessagingEntityAlreadyExists] = "exists",
    };

    private static readonly Dictionary<string, string> KindByCondition = new()
    {
        ["amqp:not-found"] = "not-found",
        ["amqp:link:message-size-exceeded"] = "message-size",
        ["com.microsoft:message-lock-lost"] = "lock-lost",
        ["com.microsoft:session-lock-lost"] = "session-lock-lost",
        ["com.microsoft:session-cannot-be-locked"] = "session-cannot-be-locked",
        ["com.microsoft:timeout"] = "timeout",
        ["amqp:unauthorized-access"] = "unauthorized",
        ["amqp:resource-limit-exceeded"] = "quota",
        ["com.microsoft:server-busy"] = "busy",
        ["com.microsoft:entity-disabled"] = "disabled",
        ["com.microsoft:message-not-found"] = "message-not-found",
        ["amqp:not-allowed"] = "not-allowed",
        ["com.microsoft:entity-already-exists"] = "exists",
        ["com.microsoft:argument-error"] = "argument",
        ["com.microsoft:argument-out-of-range"] = "argument",
        ["amqp:transaction:unknown-id"] = "transaction",
        ["amqp:transaction:rollback"] = "transaction",
    };

    private static readonly Dictionary<int, string> KindByStatus = new()
    {
        [400] = "argument",
        [401] = "unauthorized",
        [403] = "quota",
        [404] = "not-found",
        [409] = "exists",
        [503] = "busy",
    };

    /// <summary>The <c>error</c> object of an answer: the first exception that tells the kind, or the outermost.</summary>
    public static JsonObject Write(Exception error)
    {
        Exception shown = Causes(error).FirstOrDefault(cause => KindOf(cause) is not null) ?? error;
        return new JsonObject
        {
            ["kind"] = KindOf(shown) ?? "other",
            ["type"] = shown.GetType().Name,
            ["code"] = CodeOf(shown) ?? Causes(error).Select(CodeOf).FirstOrDefault(code => code is not null),
            ["message"] = string.Join(": ", Causes(shown).Select(cause => cause.Message)),
        };
    }

    private static IEnumerable<Exception> Causes(Exception error)
    {
        for (Exception? cause = error; cause is not null; cause = cause.InnerException)
        {
            yield return cause;
        }
    }

    private static string? KindOf(Exception error) => error switch
    {
        RequestException refusal => refusal.Kind,
        ServiceBusException failure => KindByReason.GetValueOrDefault(failure.Reason),
        AmqpException { Error.Condition: var condition } => KindByCondition.GetValueOrDefault(condition.Value),
        RequestFailedException failure => KindByStatus.GetValueOrDefault(failure.Status),
        UnauthorizedAccessException => "unauthorized",
        // Of these three the SDK makes one of the server's conditions and keeps the text alone; its own checks name the
        // argument.
        ArgumentException { ParamName: null } => "argument",
        NotSupportedException => "other", // whatever the server has said, the SDK does not go on
        ObjectDisposedException => null,
        InvalidOperationException => "not-allowed",
        TimeoutException => "timeout",
        TransactionException => "transaction", // whatever ended it stands in the cause
        _ => null,
    };

    private static string? CodeOf(Exception error) => error switch
    {
        ServiceBusException failure => failure.Reason.ToString(),
        AmqpException { Error.Condition: var condition } => condition.Value,
        RequestFailedException failure => failure.Status.ToString(),
        _ => null,
    };
}
