package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

const (
	sdkModule  = "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	retryDelay = 100 * time.Millisecond
	tryTimeout = 20 * time.Second
)

var modes = map[string]azservicebus.ReceiveMode{
	"peek-lock":          azservicebus.ReceiveModePeekLock,
	"receive-and-delete": azservicebus.ReceiveModeReceiveAndDelete,
}

var subQueues = map[string]azservicebus.SubQueue{
	"dead-letter":          azservicebus.SubQueueDeadLetter,
	"transfer-dead-letter": azservicebus.SubQueueTransfer,
}

// clients is what the driver holds of the SDK: one client for messages and one for administration, a sender
// for each entity, and the open receivers by their handles.
type clients struct {
	way            *way
	client         *azservicebus.Client
	administration *admin.Client
	senders        map[string]*azservicebus.Sender
	receivers      map[string]*receiver
	receiversCount int
}

func newClients(by *way) *clients {
	return &clients{
		way:       by,
		senders:   map[string]*azservicebus.Sender{},
		receivers: map[string]*receiver{},
	}
}

// tryContext bounds a call: the SDK has no timeout of its own.
func tryContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), tryTimeout)
}

func bounded(call func(context.Context) error) error {
	limit, stop := tryContext()
	defer stop()
	return call(limit)
}

func (held *clients) opened() (*azservicebus.Client, error) {
	if held.client != nil {
		return held.client, nil
	}
	options := &azservicebus.ClientOptions{
		TLSConfig: held.way.tlsConfig,
		RetryOptions: azservicebus.RetryOptions{
			MaxRetries:    1,
			RetryDelay:    retryDelay,
			MaxRetryDelay: retryDelay,
		},
	}
	if held.way.webSocket {
		options.NewWebSocketConn = held.way.dialWebSocket
	}
	var err error
	if held.way.namespace != "" {
		options.CustomEndpoint = held.way.address()
	}
	if held.way.credential != nil {
		held.client, err = azservicebus.NewClient(held.way.named(), held.way.credential, options)
	} else {
		held.client, err = azservicebus.NewClientFromConnectionString(held.way.written(held.way.named()), options)
	}
	return held.client, err
}

func (held *clients) hello(*request) (fields, error) {
	version := ""
	if info, known := debug.ReadBuildInfo(); known {
		for _, module := range info.Deps {
			if module.Path == sdkModule {
				version = strings.TrimPrefix(module.Version, "v")
			}
		}
	}
	return fields{
		"client":            "go",
		"sdk":               "azservicebus " + version,
		"property_types":    propertyTypes,
		"modify_properties": true,
		"peek_cursor":       true,
		"features":          []string{"session_list", "administration"},
	}, nil
}

func (held *clients) send(asked *request) (fields, error) {
	messages := sdkMessages(asked.Messages)
	return held.withSender(asked.Entity, func(sender *azservicebus.Sender) (fields, error) {
		switch asked.How {
		case "single":
			for _, message := range messages {
				send := func(limit context.Context) error { return sender.SendMessage(limit, message, nil) }
				if err := bounded(send); err != nil {
					return nil, err
				}
			}
			return fields{}, nil
		case "list", "batch":
			return fields{}, bounded(func(limit context.Context) error { return sendBatch(limit, sender, messages) })
		}
		return nil, fmt.Errorf("unknown how %q", asked.How)
	})
}

func sendBatch(limit context.Context, sender *azservicebus.Sender, messages []*azservicebus.Message) error {
	batch, err := sender.NewMessageBatch(limit, nil)
	if err != nil {
		return err
	}
	for _, message := range messages {
		if err := batch.AddMessage(message, nil); err != nil {
			return err
		}
	}
	return sender.SendMessageBatch(limit, batch, nil)
}

func (held *clients) fillBatch(asked *request) (fields, error) {
	var options azservicebus.MessageBatchOptions
	if asked.MaxBytes != nil {
		options.MaxBytes = *asked.MaxBytes
	}
	return held.withSender(asked.Entity, func(sender *azservicebus.Sender) (fields, error) {
		var count int32
		err := bounded(func(limit context.Context) error {
			batch, err := sender.NewMessageBatch(limit, &options)
			for err == nil {
				err = batch.AddMessage(&azservicebus.Message{Body: madeBody(asked.BodyBytes)}, nil)
			}
			if !errors.Is(err, azservicebus.ErrMessageTooLarge) || batch.NumMessages() == 0 {
				return err
			}
			count = batch.NumMessages()
			return sender.SendMessageBatch(limit, batch, nil)
		})
		return fields{"count": count}, err
	})
}

func (held *clients) schedule(asked *request) (fields, error) {
	messages := sdkMessages(asked.Messages)
	instant := time.UnixMilli(asked.AtMs).UTC()
	return held.withSender(asked.Entity, func(sender *azservicebus.Sender) (fields, error) {
		limit, stop := tryContext()
		defer stop()
		numbers, err := sender.ScheduleMessages(limit, messages, instant, nil)
		texts := make([]string, len(numbers))
		for i, number := range numbers {
			texts[i] = strconv.FormatInt(number, 10)
		}
		return fields{"sequence_numbers": texts}, err
	})
}

func (held *clients) cancelScheduled(asked *request) (fields, error) {
	return held.withSender(asked.Entity, func(sender *azservicebus.Sender) (fields, error) {
		return fields{}, bounded(func(limit context.Context) error {
			return sender.CancelScheduledMessages(limit, sdkNumbers(asked.SequenceNumbers), nil)
		})
	})
}

// withSender does work with the sender kept for the entity; after an error the sender is forgotten.
func (held *clients) withSender(
	entity string, work func(*azservicebus.Sender) (fields, error),
) (fields, error) {
	sender := held.senders[entity]
	if sender == nil {
		client, err := held.opened()
		if err != nil {
			return nil, err
		}
		sender, err = client.NewSender(entity, nil)
		if err != nil {
			return nil, err
		}
		held.senders[entity] = sender
	}
	result, err := work(sender)
	if err != nil {
		delete(held.senders, entity)
		// The error of the work is the one to tell.
		_ = bounded(sender.Close)
		return nil, err
	}
	return result, nil
}

func (held *clients) openReceiver(asked *request) (fields, error) {
	mode, err := sdkMode(asked)
	if err != nil {
		return nil, err
	}
	options := &azservicebus.ReceiverOptions{ReceiveMode: mode}
	if asked.SubQueue != nil {
		var known bool
		if options.SubQueue, known = subQueues[*asked.SubQueue]; !known {
			return nil, fmt.Errorf("unknown sub_queue %q", *asked.SubQueue)
		}
	}
	client, err := held.opened()
	if err != nil {
		return nil, err
	}
	var made *azservicebus.Receiver
	if asked.Subscription != nil {
		made, err = client.NewReceiverForSubscription(asked.Entity, *asked.Subscription, options)
	} else {
		made, err = client.NewReceiverForQueue(asked.Entity, options)
	}
	if err != nil {
		return nil, err
	}
	return fields{"receiver": held.keep(&receiver{client: made, single: made}, mode)}, nil
}

func sdkMode(asked *request) (azservicebus.ReceiveMode, error) {
	mode, known := modes[asked.Mode]
	if !known {
		return mode, fmt.Errorf("unknown mode %q", asked.Mode)
	}
	return mode, nil
}

// keep gives a new receiver what the driver needs to use it, and returns its handle.
func (held *clients) keep(made *receiver, mode azservicebus.ReceiveMode) string {
	made.locks = mode == azservicebus.ReceiveModePeekLock
	made.messages = map[string]*azservicebus.ReceivedMessage{}
	held.receiversCount++
	name := fmt.Sprintf("r%d", held.receiversCount)
	held.receivers[name] = made
	return name
}

func (held *clients) closeReceiver(asked *request) (fields, error) {
	found, known := held.receivers[asked.Receiver]
	if !known {
		return nil, fmt.Errorf("unknown receiver %q", asked.Receiver)
	}
	delete(held.receivers, asked.Receiver)
	return fields{}, bounded(found.client.Close)
}

// reset closes the clients, and with them every sender and receiver; the next use makes new ones. The SDK's
// client for administration holds nothing but the connections of its HTTP transport.
func (held *clients) reset(asked *request) (fields, error) {
	if err := held.way.reach(asked); err != nil {
		return nil, err
	}
	client := held.client
	held.client = nil
	held.administration = nil
	held.way.closeIdle()
	clear(held.senders)
	clear(held.receivers)
	if client == nil {
		return fields{}, nil
	}
	return fields{}, bounded(client.Close)
}
