package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// sdkReceiver is what the SDK's two kinds of receiver have in common.
type sdkReceiver interface {
	ReceiveMessages(
		context.Context, int, *azservicebus.ReceiveMessagesOptions,
	) ([]*azservicebus.ReceivedMessage, error)
	ReceiveDeferredMessages(
		context.Context, []int64, *azservicebus.ReceiveDeferredMessagesOptions,
	) ([]*azservicebus.ReceivedMessage, error)
	PeekMessages(context.Context, int, *azservicebus.PeekMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	CompleteMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.CompleteMessageOptions) error
	AbandonMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.AbandonMessageOptions) error
	DeferMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.DeferMessageOptions) error
	DeadLetterMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.DeadLetterOptions) error
	Close(context.Context) error
}

// receiver is one receiver of the SDK with the handles of the messages it locked. Of single and session,
// the one is set that is the client in its own type.
type receiver struct {
	client       sdkReceiver
	single       *azservicebus.Receiver
	session      *azservicebus.SessionReceiver
	locks        bool
	messages     map[string]*azservicebus.ReceivedMessage
	handlesCount int
}

func (held *receiver) receive(asked *request) (fields, error) {
	wait, stop := context.WithTimeout(context.Background(), time.Duration(asked.WaitMs)*time.Millisecond)
	defer stop()
	received, err := held.client.ReceiveMessages(wait, asked.Max, nil)
	// The end of the wait is the SDK's way of saying that there was no message.
	if err != nil && !(wait.Err() != nil && errors.Is(err, wait.Err())) {
		return nil, err
	}
	return held.locked(received), nil
}

func (held *receiver) receiveDeferred(asked *request) (fields, error) {
	limit, stop := tryContext()
	defer stop()
	received, err := held.client.ReceiveDeferredMessages(limit, sdkNumbers(asked.SequenceNumbers), nil)
	if err != nil {
		return nil, err
	}
	return held.locked(received), nil
}

func (held *receiver) peek(asked *request) (fields, error) {
	limit, stop := tryContext()
	defer stop()
	var options azservicebus.PeekMessagesOptions
	if asked.FromSequenceNumber != nil {
		number := int64(*asked.FromSequenceNumber)
		options.FromSequenceNumber = &number
	}
	peeked, err := held.client.PeekMessages(limit, asked.Max, &options)
	if err != nil {
		return nil, err
	}
	shown := make([]fields, len(peeked))
	for i, message := range peeked {
		shown[i] = shownMessage(message, nil)
	}
	return fields{"messages": shown}, nil
}

func (held *receiver) renewLock(asked *request) (fields, error) {
	message, err := held.find(asked)
	if err != nil {
		return nil, err
	}
	if held.single == nil {
		return nil, errors.New("the messages of a message session have no lock of their own")
	}
	limit, stop := tryContext()
	defer stop()
	if err := held.single.RenewMessageLock(limit, message, nil); err != nil {
		return nil, err
	}
	return fields{"locked_until_ms": millis(message.LockedUntil)}, nil
}

func (held *receiver) settle(asked *request) (fields, error) {
	message, err := held.find(asked)
	if err != nil {
		return nil, err
	}
	limit, stop := tryContext()
	defer stop()
	changes := sdkProperties(asked.Properties)
	switch asked.Action {
	case "complete":
		err = held.client.CompleteMessage(limit, message, nil)
	case "abandon":
		err = held.client.AbandonMessage(limit, message, &azservicebus.AbandonMessageOptions{
			PropertiesToModify: changes,
		})
	case "defer":
		err = held.client.DeferMessage(limit, message, &azservicebus.DeferMessageOptions{
			PropertiesToModify: changes,
		})
	case "dead-letter":
		err = held.client.DeadLetterMessage(limit, message, &azservicebus.DeadLetterOptions{
			ErrorDescription:   asked.Description,
			Reason:             asked.Reason,
			PropertiesToModify: changes,
		})
	default:
		err = fmt.Errorf("unknown action %q", asked.Action)
	}
	if err != nil {
		return nil, err
	}
	delete(held.messages, asked.Message)
	return fields{}, nil
}

func (held *receiver) find(asked *request) (*azservicebus.ReceivedMessage, error) {
	message, known := held.messages[asked.Message]
	if !known {
		return nil, fmt.Errorf("unknown message %q", asked.Message)
	}
	return message, nil
}

// locked shows received messages, each with a new handle if the receiver locks.
func (held *receiver) locked(received []*azservicebus.ReceivedMessage) fields {
	shown := make([]fields, len(received))
	for i, message := range received {
		var handle *string
		if held.locks {
			held.handlesCount++
			name := fmt.Sprintf("m%d", held.handlesCount)
			held.messages[name] = message
			handle = &name
		}
		shown[i] = shownMessage(message, handle)
	}
	return fields{"messages": shown}
}
