package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/coder/websocket"
)

const usage = "usage: driver [ca=FILE] [transport=amqp|websocket] CONNECTION_STRING"

var transports = map[string]bool{"amqp": false, "websocket": true}

// way is how the server is reached, as the driver's arguments say; nothing is connected by it before a client
// is used. tlsConfig is nil when no CA is given.
type way struct {
	connectionString string
	emulator         bool
	webSocket        bool
	tlsConfig        *tls.Config
	httpClient       *http.Client
	reached
}

// reached is what the last reset says in place of the key, the host and the address of the connection string.
type reached struct {
	credential azcore.TokenCredential
	namespace  string
	endpoint   string
}

func (by *way) reach(asked *request) error {
	var next reached
	if asked.Credential != nil {
		made, err := by.credentialOf(asked.Credential)
		if err != nil {
			return err
		}
		next.credential = made
	}
	if asked.Namespace != nil {
		next.namespace = *asked.Namespace
	}
	if asked.Address != nil {
		next.endpoint = *asked.Address
	}
	by.reached = next
	return nil
}

// shown is the credential of a request.
type shown struct {
	Kind      string `json:"kind"`
	TenantID  string `json:"tenant_id"`
	ClientID  string `json:"client_id"`
	Secret    string `json:"secret"`
	TokenFile string `json:"token_file"`
}

func (by *way) credentialOf(asked *shown) (azcore.TokenCredential, error) {
	directory := azcore.ClientOptions{Transport: by.httpClient}
	switch asked.Kind {
	case "default":
		return azidentity.NewDefaultAzureCredential(nil)
	case "managed-identity":
		var options azidentity.ManagedIdentityCredentialOptions
		if asked.ClientID != "" {
			options.ID = azidentity.ClientID(asked.ClientID)
		}
		return azidentity.NewManagedIdentityCredential(&options)
	case "client-secret":
		options := &azidentity.ClientSecretCredentialOptions{ClientOptions: directory, DisableInstanceDiscovery: true}
		return azidentity.NewClientSecretCredential(asked.TenantID, asked.ClientID, asked.Secret, options)
	case "workload-identity":
		return azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
			ClientOptions:            directory,
			DisableInstanceDiscovery: true,
			TenantID:                 asked.TenantID,
			ClientID:                 asked.ClientID,
			TokenFilePath:            asked.TokenFile,
		})
	}
	return nil, fmt.Errorf("unknown credential %q", asked.Kind)
}

// address is the host and the port to which the clients connect.
func (by *way) address() string {
	if by.endpoint != "" {
		return by.endpoint
	}
	return strings.TrimSuffix(strings.TrimPrefix(by.part("Endpoint"), "sb://"), "/")
}

// named is the host that the data client names.
func (by *way) named() string {
	if by.namespace != "" {
		return by.namespace
	}
	return by.address()
}

// written is the connection string with another host.
func (by *way) written(host string) string {
	parts := strings.Split(by.connectionString, ";")
	for i, part := range parts {
		if key, _, _ := strings.Cut(part, "="); strings.EqualFold(key, "Endpoint") {
			parts[i] = key + "=sb://" + host
		}
	}
	return strings.Join(parts, ";")
}

// readArguments returns an error that tells how the driver is started if they are not understood.
func readArguments(arguments []string) (*way, error) {
	if len(arguments) == 0 {
		return nil, errors.New(usage)
	}
	reported := &way{connectionString: arguments[len(arguments)-1]}
	caFile := ""
	for _, argument := range arguments[:len(arguments)-1] {
		name, value, _ := strings.Cut(argument, "=")
		known := name == "ca"
		switch name {
		case "ca":
			caFile = value
		case "transport":
			reported.webSocket, known = transports[value]
		}
		if !known {
			return nil, fmt.Errorf("unknown argument %q; %s", argument, usage)
		}
	}
	if caFile != "" {
		var err error
		if reported.tlsConfig, err = trusting(caFile); err != nil {
			return nil, err
		}
	}
	// As the SDK reads it; what it does not take for a boolean is its error when a client is made.
	reported.emulator, _ = strconv.ParseBool(reported.part("UseDevelopmentEmulator"))
	reported.httpClient = &http.Client{Transport: &http.Transport{
		TLSClientConfig: reported.tlsConfig, DialContext: reported.dial,
	}}
	return reported, nil
}

func trusting(caFile string) (*tls.Config, error) {
	certificates, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(certificates) {
		return nil, fmt.Errorf("no certificate in %s", caFile)
	}
	// The SDK looks in the certificate for "host:port" as it stands in the connection string: the server has such names.
	return &tls.Config{RootCAs: pool}, nil
}

// part returns the value that the connection string has for a key, "" when there is none.
func (by *way) part(wanted string) string {
	for part := range strings.SplitSeq(by.connectionString, ";") {
		if key, value, _ := strings.Cut(part, "="); strings.EqualFold(key, wanted) {
			return value
		}
	}
	return ""
}

// dialWebSocket opens what the SDK runs AMQP in. The SDK's address is always one for TLS.
func (by *way) dialWebSocket(
	limit context.Context, args azservicebus.NewWebSocketConnArgs,
) (net.Conn, error) {
	address := args.Host
	if by.emulator {
		address = "ws" + strings.TrimPrefix(address, "wss")
	}
	options := &websocket.DialOptions{HTTPClient: by.httpClient, Subprotocols: []string{"amqp"}}
	opened, _, err := websocket.Dial(limit, address, options)
	if err != nil {
		return nil, err
	}
	// The limit is that of the call that needed the connection; the connection outlives it.
	return websocket.NetConn(context.Background(), opened, websocket.MessageBinary), nil
}

// dial connects to the address where the SDK names a namespace: a WebSocket has no option for that.
func (by *way) dial(limit context.Context, network, address string) (net.Conn, error) {
	if host, _, err := net.SplitHostPort(address); err == nil && host == by.namespace {
		address = by.address()
	}
	return (&net.Dialer{}).DialContext(limit, network, address)
}

func (by *way) closeIdle() {
	by.httpClient.CloseIdleConnections()
}
