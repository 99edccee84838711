package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const bodyTextBytesMax = 1024

var stateTexts = map[azservicebus.MessageState]string{
	azservicebus.MessageStateActive:    "active",
	azservicebus.MessageStateDeferred:  "deferred",
	azservicebus.MessageStateScheduled: "scheduled",
}

// messageIn is a message of a send request.
type messageIn struct {
	Body             string           `json:"body"`
	BodyBase64       []byte           `json:"body_base64"`
	BodySize         *int             `json:"body_size"`
	MessageID        *string          `json:"message_id"`
	Subject          *string          `json:"subject"`
	SessionID        *string          `json:"session_id"`
	PartitionKey     *string          `json:"partition_key"`
	CorrelationID    *string          `json:"correlation_id"`
	ContentType      *string          `json:"content_type"`
	ReplyTo          *string          `json:"reply_to"`
	ReplyToSessionID *string          `json:"reply_to_session_id"`
	To               *string          `json:"to"`
	TTLMs            *int64           `json:"ttl_ms"`
	ScheduledAtMs    *int64           `json:"scheduled_at_ms"`
	Properties       map[string]typed `json:"properties"`
}

func (given *messageIn) body() []byte {
	if given.BodySize != nil {
		return madeBody(*given.BodySize)
	}
	if given.BodyBase64 != nil {
		return given.BodyBase64
	}
	return []byte(given.Body)
}

func madeBody(bytesCount int) []byte {
	body := make([]byte, bytesCount)
	for i := range body {
		body[i] = byte(i*31 + 7)
	}
	return body
}

func (given *messageIn) sdkMessage() *azservicebus.Message {
	message := &azservicebus.Message{
		ApplicationProperties: sdkProperties(given.Properties),
		Body:                  given.body(),
		ContentType:           given.ContentType,
		CorrelationID:         given.CorrelationID,
		MessageID:             given.MessageID,
		PartitionKey:          given.PartitionKey,
		ReplyTo:               given.ReplyTo,
		ReplyToSessionID:      given.ReplyToSessionID,
		SessionID:             given.SessionID,
		Subject:               given.Subject,
		To:                    given.To,
	}
	if given.TTLMs != nil {
		duration := time.Duration(*given.TTLMs) * time.Millisecond
		message.TimeToLive = &duration
	}
	if given.ScheduledAtMs != nil {
		instant := time.UnixMilli(*given.ScheduledAtMs).UTC()
		message.ScheduledEnqueueTime = &instant
	}
	return message
}

func sdkMessages(given []messageIn) []*azservicebus.Message {
	messages := make([]*azservicebus.Message, len(given))
	for i := range given {
		messages[i] = given[i].sdkMessage()
	}
	return messages
}

// shownMessage returns the protocol's form of a received or peeked message; handle may be nil.
func shownMessage(message *azservicebus.ReceivedMessage, handle *string) fields {
	shown := fields{
		"handle":                  handle,
		"subject":                 message.Subject,
		"session_id":              message.SessionID,
		"partition_key":           message.PartitionKey,
		"correlation_id":          message.CorrelationID,
		"content_type":            message.ContentType,
		"reply_to":                message.ReplyTo,
		"reply_to_session_id":     message.ReplyToSessionID,
		"to":                      message.To,
		"enqueued_at_ms":          millis(message.EnqueuedTime),
		"locked_until_ms":         millis(message.LockedUntil),
		"scheduled_at_ms":         millis(message.ScheduledEnqueueTime),
		"state":                   stateTexts[message.State],
		"dead_letter_reason":      message.DeadLetterReason,
		"dead_letter_description": message.DeadLetterErrorDescription,
		"dead_letter_source":      message.DeadLetterSource,
		"properties":              shownProperties(message.ApplicationProperties),
		// The SDK counts the delivery at hand too, the wire only the earlier ones.
		"delivery_count": int64(message.DeliveryCount) - 1,
	}
	if message.MessageID != "" {
		shown["message_id"] = message.MessageID
	}
	if message.SequenceNumber != nil {
		shown["sequence_number"] = strconv.FormatInt(*message.SequenceNumber, 10)
	}
	// The SDK shows a message without a time to live as one of zero that expires when it is enqueued.
	if message.TimeToLive != nil && *message.TimeToLive != 0 {
		shown["ttl_ms"] = message.TimeToLive.Milliseconds()
		shown["expires_at_ms"] = millis(message.ExpiresAt)
	}
	body := bytes.Join(message.RawAMQPMessage.Body.Data, nil)
	digest := sha256.Sum256(body)
	shown["body_size"] = len(body)
	shown["body_sha256"] = hex.EncodeToString(digest[:])
	if len(body) <= bodyTextBytesMax && utf8.Valid(body) {
		shown["body"] = string(body)
	}
	return shown
}

func millis(instant *time.Time) *int64 {
	if instant == nil {
		return nil
	}
	value := instant.UnixMilli()
	return &value
}
