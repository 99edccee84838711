package emubus.driver;

import com.azure.core.amqp.AmqpTransportType;
import com.azure.core.credential.TokenCredential;
import com.azure.core.http.policy.PortPolicy;
import com.azure.identity.ClientSecretCredentialBuilder;
import com.azure.identity.DefaultAzureCredentialBuilder;
import com.azure.identity.ManagedIdentityCredentialBuilder;
import com.azure.identity.WorkloadIdentityCredentialBuilder;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.fasterxml.jackson.databind.JsonNode;
import java.net.URI;

/**
 * How the clients reach their server: what the driver was started with, and what a {@code reset} says in place of its
 * key, host and address. Makes builders and owns no client.
 */
final class Reach {
    private final Arguments arguments;
    private final Trust trust;
    private TokenCredential credential;
    private String namespace;
    private String address;

    Reach(Arguments arguments, Trust trust) {
        this.arguments = arguments;
        this.trust = trust;
    }

    /** What the next clients have, until the next call. */
    void set(JsonNode request) {
        credential = request.hasNonNull("credential") ? made(request.get("credential")) : null;
        namespace = request.path("namespace").textValue();
        address = request.path("address").textValue();
    }

    ServiceBusClientBuilder dataBuilder() {
        if (!arguments.plainAmqp()) {
            trust.install();
        }
        ServiceBusClientBuilder builder = new ServiceBusClientBuilder()
            .transportType(arguments.webSocket() ? AmqpTransportType.AMQP_WEB_SOCKETS : AmqpTransportType.AMQP);
        if (credential != null) {
            return builder
                .credential(namespace == null ? uri().getHost() : namespace, credential)
                .customEndpointAddress(uri().toString());
        }
        // The port of the connection string is used with each transport.
        return namespace == null
            ? builder.connectionString(arguments.with(address()))
            : builder.connectionString(arguments.with(namespace)).customEndpointAddress(uri().toString());
    }

    /** A client for administration connects to the host that it names, whatever the namespace is. */
    ServiceBusAdministrationClientBuilder administrationBuilder() {
        trust.install();
        ServiceBusAdministrationClientBuilder builder = new ServiceBusAdministrationClientBuilder();
        if (credential == null) {
            builder.connectionString(arguments.with(address()));
        } else {
            builder.credential(uri().getHost(), credential);
        }
        // The SDK takes nothing but the host from a connection string, and asks port 443 of it.
        return builder.addPolicy(new PortPolicy(uri().getPort(), true));
    }

    private String address() {
        return address == null ? arguments.address() : address;
    }

    private URI uri() {
        return URI.create("https://" + address());
    }

    private TokenCredential made(JsonNode asked) {
        trust.install();
        String tenant = asked.path("tenant_id").textValue();
        String client = asked.path("client_id").textValue();
        String kind = asked.path("kind").asText();
        return switch (kind) {
            case "default" -> new DefaultAzureCredentialBuilder().build();
            case "managed-identity" -> new ManagedIdentityCredentialBuilder().clientId(client).build();
            case "client-secret" -> new ClientSecretCredentialBuilder()
                .tenantId(tenant)
                .clientId(client)
                .clientSecret(asked.path("secret").textValue())
                .disableInstanceDiscovery()
                .build();
            case "workload-identity" -> new WorkloadIdentityCredentialBuilder()
                .tenantId(tenant)
                .clientId(client)
                .tokenFilePath(asked.path("token_file").textValue())
                .disableInstanceDiscovery()
                .build();
            default -> throw new IllegalArgumentException("unknown credential " + kind);
        };
    }
}
