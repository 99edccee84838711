package main

import (
	"context"
	"errors"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// sessionError is an error of a receiver of a message session: there, a lost lock is that of the session.
type sessionError struct {
	cause error
}

func (failed sessionError) Error() string { return failed.cause.Error() }

func (failed sessionError) Unwrap() error { return failed.cause }

func (held *clients) acceptSession(asked *request) (fields, error) {
	mode, err := sdkMode(asked)
	if err != nil {
		return nil, err
	}
	client, err := held.opened()
	if err != nil {
		return nil, err
	}
	// Of the next session, the SDK tells the server to wait for what is left of the context's time.
	wait := tryTimeout
	if asked.SessionID == nil {
		wait = time.Duration(asked.WaitMs) * time.Millisecond
	}
	limit, stop := context.WithTimeout(context.Background(), wait)
	defer stop()
	accepted, err := accept(limit, client, asked, &azservicebus.SessionReceiverOptions{ReceiveMode: mode})
	if err != nil {
		return nil, err
	}
	return fields{
		"receiver":        held.keep(&receiver{client: accepted, session: accepted}, mode),
		"session_id":      accepted.SessionID(),
		"locked_until_ms": accepted.LockedUntil().UnixMilli(),
	}, nil
}

func accept(
	limit context.Context,
	client *azservicebus.Client,
	asked *request,
	options *azservicebus.SessionReceiverOptions,
) (*azservicebus.SessionReceiver, error) {
	topic, subscription, id := asked.Entity, asked.Subscription, asked.SessionID
	switch {
	case subscription != nil && id != nil:
		return client.AcceptSessionForSubscription(limit, topic, *subscription, *id, options)
	case subscription != nil:
		return client.AcceptNextSessionForSubscription(limit, topic, *subscription, options)
	case id != nil:
		return client.AcceptSessionForQueue(limit, asked.Entity, *id, options)
	}
	return client.AcceptNextSessionForQueue(limit, asked.Entity, options)
}

func (held *clients) listSessions(asked *request) (fields, error) {
	client, err := held.opened()
	if err != nil {
		return nil, err
	}
	var options azservicebus.ListSessionsOptions
	if asked.UpdatedAfterMs != nil {
		instant := time.UnixMilli(*asked.UpdatedAfterMs).UTC()
		options.SessionStateUpdatedAfter = &instant
	}
	pager := client.NewListSessionsForQueuePager(asked.Entity, &options)
	if asked.Subscription != nil {
		pager = client.NewListSessionsForSubscriptionPager(asked.Entity, *asked.Subscription, &options)
	}
	ids := []string{}
	for pager.More() {
		err := bounded(func(limit context.Context) error {
			page, err := pager.NextPage(limit)
			ids = append(ids, page.Sessions...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return fields{"session_ids": ids}, nil
}

func onSession(
	operation func(context.Context, *azservicebus.SessionReceiver, *request) (fields, error),
) func(*clients, *request) (fields, error) {
	return onReceiver(func(held *receiver, asked *request) (fields, error) {
		if held.session == nil {
			return nil, errors.New("not a receiver of a message session")
		}
		limit, stop := tryContext()
		defer stop()
		return operation(limit, held.session, asked)
	})
}

func renewSession(limit context.Context, session *azservicebus.SessionReceiver, _ *request) (fields, error) {
	if err := session.RenewSessionLock(limit, nil); err != nil {
		return nil, err
	}
	return fields{"locked_until_ms": session.LockedUntil().UnixMilli()}, nil
}

func getSessionState(limit context.Context, session *azservicebus.SessionReceiver, _ *request) (fields, error) {
	state, err := session.GetSessionState(limit, nil)
	// No state is nil, and null in the answer; bytes are written as base64.
	return fields{"state_base64": state}, err
}

func setSessionState(limit context.Context, session *azservicebus.SessionReceiver, asked *request) (fields, error) {
	return fields{}, session.SetSessionState(limit, asked.StateBase64, nil)
}
