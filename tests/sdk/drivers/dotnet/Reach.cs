using System.Net.Sockets;
using System.Text.Json.Nodes;
using Azure.Core;
using Azure.Core.Pipeline;
using Azure.Identity;
using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

namespace Emubus.Driver;

/// <summary>
/// How the clients reach their server: what the driver was started with, and what a <c>reset</c> says in place of its
/// key, host and address. Makes clients and owns none.
/// </summary>
internal sealed class Reach(Arguments arguments)
{
    private TokenCredential? _credential;
    private string? _namespace;
    private string? _address;

    /// <summary>What the next clients have, until the next call.</summary>
    public void Set(JsonObject request)
    {
        _credential = request["credential"] is JsonObject asked ? Made(asked) : null;
        _namespace = request.Text("namespace");
        _address = request.Text("address");
    }

    public ServiceBusClient DataClient(ServiceBusClientOptions options)
    {
        options.TransportType = arguments.WebSocket
            ? ServiceBusTransportType.AmqpWebSockets
            : ServiceBusTransportType.AmqpTcp;
        // Without the emulator's word, for TLS, the SDK takes the host alone of a connection string.
        if (_credential is not null || !arguments.IsForEmulator)
        {
            options.CustomEndpointAddress = new Uri("sb://" + Address);
        }
        return _credential is null
            ? new ServiceBusClient(arguments.With(_namespace ?? Address), options)
            : new ServiceBusClient(_namespace ?? new Uri("sb://" + Address).Host, _credential, options);
    }

    /// <summary>
    /// A client that connects to the host that it names, whatever the namespace is. With a credential the SDK takes the
    /// host alone, and has no option for the port: its HTTP client has.
    /// </summary>
    public ServiceBusAdministrationClient AdministrationClient(ServiceBusAdministrationClientOptions options)
    {
        if (_credential is null)
        {
            return new ServiceBusAdministrationClient(arguments.With(Address), options);
        }
        var endpoint = new Uri("sb://" + Address);
        options.Transport = new HttpClientTransport(new HttpClient(new SocketsHttpHandler
        {
            ConnectCallback = async (_, cancelled) =>
            {
                var client = new TcpClient();
                await client.ConnectAsync(endpoint.Host, endpoint.Port, cancelled);
                return client.GetStream();
            },
        }));
        return new ServiceBusAdministrationClient(endpoint.Host, _credential, options);
    }

    private string Address => _address ?? arguments.Address;

    private static TokenCredential Made(JsonObject asked) => asked.Text("kind") switch
    {
        "default" => new DefaultAzureCredential(),
        "managed-identity" => new ManagedIdentityCredential(
            asked.Text("client_id") is { } id
                ? ManagedIdentityId.FromUserAssignedClientId(id)
                : ManagedIdentityId.SystemAssigned),
        "client-secret" => new ClientSecretCredential(
            asked.Needed("tenant_id"),
            asked.Needed("client_id"),
            asked.Needed("secret"),
            new ClientSecretCredentialOptions { DisableInstanceDiscovery = true }),
        "workload-identity" => new WorkloadIdentityCredential(new WorkloadIdentityCredentialOptions
        {
            DisableInstanceDiscovery = true,
            TenantId = asked.Needed("tenant_id"),
            ClientId = asked.Needed("client_id"),
            TokenFilePath = asked.Needed("token_file"),
        }),
        var kind => throw new RequestException("unknown credential " + kind),
    };
}
