// Sends a message to queue.1 and receives it: go run .
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const local = "Endpoint=sb://localhost:5672;SharedAccessKeyName=RootManageSharedAccessKey;" +
	"SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"

func main() {
	connectionString := os.Getenv("SERVICEBUS_CONNECTION_STRING")
	if connectionString == "" {
		connectionString = local
	}
	if err := hello(connectionString); err != nil {
		log.Fatal(err)
	}
}

func hello(connectionString string) error {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	client, err := azservicebus.NewClientFromConnectionString(connectionString, nil)
	if err != nil {
		return err
	}
	defer client.Close(ctx)
	sender, err := client.NewSender("queue.1", nil)
	if err != nil {
		return err
	}
	if err := sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("hello")}, nil); err != nil {
		return err
	}
	receiver, err := client.NewReceiverForQueue("queue.1", nil)
	if err != nil {
		return err
	}
	messages, err := receiver.ReceiveMessages(ctx, 1, nil)
	if err != nil {
		return err
	}
	for _, message := range messages {
		fmt.Printf("received: %s\n", message.Body)
		if err := receiver.CompleteMessage(ctx, message, nil); err != nil {
			return err
		}
	}
	return nil
}
