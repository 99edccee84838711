package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// filterIn is a filter in the protocol's form: exactly one of these.
type filterIn struct {
	SQL         *string        `json:"sql"`
	Correlation *correlationIn `json:"correlation"`
	True        bool           `json:"true"`
	False       bool           `json:"false"`
}

type correlationIn struct {
	CorrelationID    *string          `json:"correlation_id"`
	MessageID        *string          `json:"message_id"`
	To               *string          `json:"to"`
	ReplyTo          *string          `json:"reply_to"`
	Subject          *string          `json:"subject"`
	SessionID        *string          `json:"session_id"`
	ReplyToSessionID *string          `json:"reply_to_session_id"`
	ContentType      *string          `json:"content_type"`
	Properties       map[string]typed `json:"properties"`
}

var ruleProperties = table[admin.RuleProperties]{
	"filter": {setFilter, shownFilter},
	"action": {setAction, shownAction},
}

func setFilter(of *admin.RuleProperties, value json.RawMessage) error {
	asked, err := read[*filterIn](value)
	of.Filter = nil
	switch {
	case err != nil || asked == nil:
		return err
	case asked.SQL != nil:
		of.Filter = &admin.SQLFilter{Expression: *asked.SQL}
	case asked.Correlation != nil:
		of.Filter = asked.Correlation.sdkFilter()
	case asked.True:
		of.Filter = &admin.TrueFilter{}
	case asked.False:
		of.Filter = &admin.FalseFilter{}
	default:
		return errors.New("the filter has no condition")
	}
	return nil
}

func (asked *correlationIn) sdkFilter() *admin.CorrelationFilter {
	return &admin.CorrelationFilter{
		ApplicationProperties: sdkProperties(asked.Properties),
		ContentType:           asked.ContentType,
		CorrelationID:         asked.CorrelationID,
		MessageID:             asked.MessageID,
		ReplyTo:               asked.ReplyTo,
		ReplyToSessionID:      asked.ReplyToSessionID,
		SessionID:             asked.SessionID,
		Subject:               asked.Subject,
		To:                    asked.To,
	}
}

func setAction(of *admin.RuleProperties, value json.RawMessage) error {
	expression, err := read[*string](value)
	of.Action = nil
	if expression != nil {
		of.Action = &admin.SQLAction{Expression: *expression}
	}
	return err
}

func shownFilter(of *admin.RuleProperties) any {
	switch filter := of.Filter.(type) {
	case nil:
		return nil
	case *admin.SQLFilter:
		return fields{"sql": filter.Expression}
	case *admin.TrueFilter:
		return fields{"true": true}
	case *admin.FalseFilter:
		return fields{"false": true}
	case *admin.CorrelationFilter:
		return fields{"correlation": shownCorrelation(filter)}
	}
	return fields{"other": fmt.Sprintf("%T", of.Filter)}
}

func shownCorrelation(filter *admin.CorrelationFilter) fields {
	shown := fields{}
	for name, value := range map[string]*string{
		"correlation_id":      filter.CorrelationID,
		"message_id":          filter.MessageID,
		"to":                  filter.To,
		"reply_to":            filter.ReplyTo,
		"subject":             filter.Subject,
		"session_id":          filter.SessionID,
		"reply_to_session_id": filter.ReplyToSessionID,
		"content_type":        filter.ContentType,
	} {
		if value != nil {
			shown[name] = *value
		}
	}
	if len(filter.ApplicationProperties) != 0 {
		shown["properties"] = shownProperties(filter.ApplicationProperties)
	}
	return shown
}

func shownAction(of *admin.RuleProperties) any {
	switch action := of.Action.(type) {
	case nil:
		return nil
	case *admin.SQLAction:
		return action.Expression
	}
	return fmt.Sprintf("%T", of.Action)
}

// setDefaultRule sets the rule that a subscription is created with instead of the one that takes everything.
func setDefaultRule(of *admin.SubscriptionProperties, value json.RawMessage) error {
	asked, err := read[given](value)
	of.DefaultRule = nil
	if err != nil || asked == nil {
		return err
	}
	rule := &admin.RuleProperties{}
	if name, named := asked["name"]; named {
		if err := json.Unmarshal(name, &rule.Name); err != nil {
			return err
		}
		delete(asked, "name")
	}
	of.DefaultRule = rule
	return ruleProperties.set(rule, asked)
}
