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
	reported.httpClient = &http.Client{Transport: &http.Transport{TLSClientConfig: reported.tlsConfig}}
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

func (by *way) closeIdle() {
	by.httpClient.CloseIdleConnections()
}
