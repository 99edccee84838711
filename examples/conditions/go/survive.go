// Sends an order and processes it once, whatever the service does meanwhile; with `fragile` it hopes for the best.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const (
	queue = "queue.1"
	tries = 60
	pause = time.Second
)

// send tries until the order is accepted. The id is the order's: a second try after a lost outcome is no second order.
func send(client *azservicebus.Client, order string) error {
	for left := tries; left > 0; left-- {
		if sendOnce(client, &azservicebus.Message{Body: []byte("an order"), MessageID: &order}) == nil {
			return nil
		}
		time.Sleep(pause) // also after "not found", which the SDK does not try again, and after a deadline
	}
	return errors.New(order + " was not accepted")
}

func sendOnce(client *azservicebus.Client, message *azservicebus.Message) error {
	limit, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	sender, err := client.NewSender(queue, nil)
	if err != nil {
		return err
	}
	defer sender.Close(limit)
	return sender.SendMessage(limit, message, nil)
}

// process ends when two receives in a row find nothing: one alone may be empty although there are messages.
func process(client *azservicebus.Client) (map[string]bool, error) {
	done := map[string]bool{} // in a program: a table, written in one transaction with the work
	receiver, err := client.NewReceiverForQueue(queue, nil)
	if err != nil {
		return nil, err
	}
	for empty := 0; empty < 2; {
		limit, stop := context.WithTimeout(context.Background(), 2*time.Second)
		messages, err := receiver.ReceiveMessages(limit, 10, nil)
		stop()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			time.Sleep(pause)
			continue
		}
		empty++
		for _, message := range messages {
			empty = 0
			done[message.MessageID] = true // the work, unless it is done already
			err := receiver.CompleteMessage(context.Background(), message, nil)
			var failed *azservicebus.Error
			if err != nil && !(errors.As(err, &failed) && failed.Code == azservicebus.CodeLockLost) {
				return nil, err
			} // a message whose lock is lost comes again, and is known
		}
	}
	return done, nil
}

func main() {
	client, err := azservicebus.NewClientFromConnectionString(os.Getenv("SERVICEBUS_CONNECTION_STRING"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(context.Background())
	if len(os.Args) > 1 { // one try, and no id of the order's
		if err := sendOnce(client, &azservicebus.Message{Body: []byte("an order")}); err != nil {
			log.Fatal(err)
		}
		return
	}
	if err := send(client, "order 7"); err != nil {
		log.Fatal(err)
	}
	done, err := process(client)
	if err != nil {
		log.Fatal(err)
	}
	for order := range done {
		fmt.Println("done:", order)
	}
}
