// go mod init orders, go mod tidy, then go test. Not run by a test of this repository; tried by hand with Docker.
// A generic container: the module for Service Bus also starts an SQL Server.
package orders

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

func started(t *testing.T, ctx context.Context) string {
	container, err := testcontainers.Run(ctx, "emubus:latest",
		testcontainers.WithExposedPorts("5672/tcp", "5300/tcp"),
		testcontainers.WithEnv(map[string]string{
			"EMUBUS_DURABILITY": "none",
			"EMUBUS_QUEUES":     "orders,steps?sessions",
		}),
		testcontainers.WithWaitStrategy(wait.ForHTTP("/health").WithPort("5300/tcp")),
	)
	testcontainers.CleanupContainer(t, container)
	if err != nil {
		t.Fatal(err)
	}
	address, err := container.PortEndpoint(ctx, "5672/tcp", "sb")
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("Endpoint=%s;SharedAccessKeyName=RootManageSharedAccessKey;"+
		"SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true", address)
}

func TestAnOrderArrives(t *testing.T) {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	client, err := azservicebus.NewClientFromConnectionString(started(t, ctx), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(ctx)
	sender, err := client.NewSender("orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("order 7")}, nil); err != nil {
		t.Fatal(err)
	}
	receiver, err := client.NewReceiverForQueue("orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := receiver.ReceiveMessages(ctx, 1, nil)
	if err != nil || string(messages[0].Body) != "order 7" {
		t.Fatal(messages, err)
	}
}
