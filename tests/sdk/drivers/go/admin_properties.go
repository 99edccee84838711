package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// foreverMs is where the protocol lets a duration be endless: ten million days.
const foreverMs = 10_000_000 * 24 * 60 * 60 * 1000

// property is where a property of the protocol is in the SDK's struct P. Without show, the SDK takes it
// only; set is given JSON that may be null.
type property[P any] struct {
	set  func(of *P, value json.RawMessage) error
	show func(of *P) any
}

type table[P any] map[string]property[P]

func (known table[P]) set(of *P, asked given) error {
	for name, value := range asked {
		found, isKnown := known[name]
		if !isKnown {
			if bytes.Equal(value, []byte("null")) {
				continue
			}
			return fmt.Errorf("this SDK has no property %q here", name)
		}
		if err := found.set(of, value); err != nil {
			return fmt.Errorf("property %s: %w", name, err)
		}
	}
	return nil
}

func (known table[P]) shown(of *P) fields {
	shown := fields{}
	for name, found := range known {
		if found.show != nil {
			shown[name] = found.show(of)
		}
	}
	return shown
}

// same is a property that the SDK has in the protocol's form. Null is nil, so the SDK leaves it out.
func same[P, V any](at func(*P) **V) property[P] {
	return property[P]{
		set:  func(of *P, value json.RawMessage) error { return json.Unmarshal(value, at(of)) },
		show: func(of *P) any { return *at(of) },
	}
}

// duration is a property that the SDK wants and shows as text in ISO 8601.
func duration[P any](at func(*P) **string) property[P] {
	return property[P]{
		set: func(of *P, value json.RawMessage) error {
			durationMs, err := read[*int64](value)
			if err != nil || durationMs == nil {
				*at(of) = nil
				return err
			}
			text := "PT" + strconv.FormatFloat(float64(*durationMs)/1000, 'f', -1, 64) + "S"
			*at(of) = &text
			return nil
		},
		show: func(of *P) any {
			text := *at(of)
			if text == nil {
				return nil
			}
			durationMs, err := readDuration(*text)
			if err != nil {
				return *text
			}
			if durationMs > foreverMs {
				return nil
			}
			return durationMs
		},
	}
}

var durationText = regexp.MustCompile(
	`^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,9}))?S)?)?$`,
)

func readDuration(text string) (int64, error) {
	found := durationText.FindStringSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("not a duration: %q", text)
	}
	var parts [4]int64
	for i := range parts {
		if digits := found[i+1]; digits != "" {
			var err error
			if parts[i], err = strconv.ParseInt(digits, 10, 64); err != nil {
				return 0, err
			}
		}
	}
	// The fraction's first three digits.
	thousandths, err := strconv.ParseInt((found[5] + "000")[:3], 10, 64)
	return (((parts[0]*24+parts[1])*60+parts[2])*60+parts[3])*1000 + thousandths, err
}

// target is a property that names another entity, of which the service may show the address.
func target[P any](at func(*P) **string) property[P] {
	naming := same(at)
	naming.show = func(of *P) any {
		address := *at(of)
		if address == nil {
			return nil
		}
		return (*address)[strings.LastIndex(*address, "/")+1:]
	}
	return naming
}

// authorizationRule is one of a queue's or topic's rules of access in the protocol's form.
type authorizationRule struct {
	Name         *string             `json:"name"`
	Rights       []admin.AccessRight `json:"rights"`
	PrimaryKey   *string             `json:"primary_key"`
	SecondaryKey *string             `json:"secondary_key"`
}

func authorization[P any](at func(*P) *sdkRules) property[P] {
	return property[P]{
		set: func(of *P, value json.RawMessage) error {
			rules, err := read[[]authorizationRule](value)
			*at(of) = nil
			for _, rule := range rules {
				*at(of) = append(*at(of), admin.AuthorizationRule{
					AccessRights: rule.Rights,
					KeyName:      rule.Name,
					PrimaryKey:   rule.PrimaryKey,
					SecondaryKey: rule.SecondaryKey,
				})
			}
			return err
		},
		show: func(of *P) any {
			shown := []authorizationRule{}
			for _, rule := range *at(of) {
				shown = append(shown, authorizationRule{
					Name:         rule.KeyName,
					Rights:       slices.Sorted(slices.Values(rule.AccessRights)),
					PrimaryKey:   rule.PrimaryKey,
					SecondaryKey: rule.SecondaryKey,
				})
			}
			return shown
		},
	}
}

type (
	sdkQueue        = admin.QueueProperties
	sdkTopic        = admin.TopicProperties
	sdkSubscription = admin.SubscriptionProperties
	sdkStatus       = admin.EntityStatus
	sdkRules        = []admin.AuthorizationRule
)

var queueProperties = table[sdkQueue]{
	"lock_duration_ms":             duration(func(of *sdkQueue) **string { return &of.LockDuration }),
	"max_size_mb":                  same(func(of *sdkQueue) **int32 { return &of.MaxSizeInMegabytes }),
	"requires_duplicate_detection": same(func(of *sdkQueue) **bool { return &of.RequiresDuplicateDetection }),
	"requires_session":             same(func(of *sdkQueue) **bool { return &of.RequiresSession }),
	"default_ttl_ms":               duration(func(of *sdkQueue) **string { return &of.DefaultMessageTimeToLive }),
	"dead_lettering_on_expiration": same(func(of *sdkQueue) **bool { return &of.DeadLetteringOnMessageExpiration }),
	"duplicate_window_ms":          duration(func(of *sdkQueue) **string { return &of.DuplicateDetectionHistoryTimeWindow }),
	"max_delivery_count":           same(func(of *sdkQueue) **int32 { return &of.MaxDeliveryCount }),
	"enable_batched_operations":    same(func(of *sdkQueue) **bool { return &of.EnableBatchedOperations }),
	"status":                       same(func(of *sdkQueue) **sdkStatus { return &of.Status }),
	"auto_delete_on_idle_ms":       duration(func(of *sdkQueue) **string { return &of.AutoDeleteOnIdle }),
	"enable_partitioning":          same(func(of *sdkQueue) **bool { return &of.EnablePartitioning }),
	"forward_to":                   target(func(of *sdkQueue) **string { return &of.ForwardTo }),
	"forward_dead_letters_to":      target(func(of *sdkQueue) **string { return &of.ForwardDeadLetteredMessagesTo }),
	"user_metadata":                same(func(of *sdkQueue) **string { return &of.UserMetadata }),
	"authorization_rules":          authorization(func(of *sdkQueue) *sdkRules { return &of.AuthorizationRules }),
	"max_message_size_kb":          same(func(of *sdkQueue) **int64 { return &of.MaxMessageSizeInKilobytes }),
}

var topicProperties = table[sdkTopic]{
	"max_size_mb":                  same(func(of *sdkTopic) **int32 { return &of.MaxSizeInMegabytes }),
	"requires_duplicate_detection": same(func(of *sdkTopic) **bool { return &of.RequiresDuplicateDetection }),
	"default_ttl_ms":               duration(func(of *sdkTopic) **string { return &of.DefaultMessageTimeToLive }),
	"duplicate_window_ms":          duration(func(of *sdkTopic) **string { return &of.DuplicateDetectionHistoryTimeWindow }),
	"enable_batched_operations":    same(func(of *sdkTopic) **bool { return &of.EnableBatchedOperations }),
	"status":                       same(func(of *sdkTopic) **sdkStatus { return &of.Status }),
	"auto_delete_on_idle_ms":       duration(func(of *sdkTopic) **string { return &of.AutoDeleteOnIdle }),
	"enable_partitioning":          same(func(of *sdkTopic) **bool { return &of.EnablePartitioning }),
	"supports_ordering":            same(func(of *sdkTopic) **bool { return &of.SupportOrdering }),
	"user_metadata":                same(func(of *sdkTopic) **string { return &of.UserMetadata }),
	"authorization_rules":          authorization(func(of *sdkTopic) *sdkRules { return &of.AuthorizationRules }),
	"max_message_size_kb":          same(func(of *sdkTopic) **int64 { return &of.MaxMessageSizeInKilobytes }),
}

var subscriptionProperties = table[sdkSubscription]{
	"lock_duration_ms":             duration(func(of *sdkSubscription) **string { return &of.LockDuration }),
	"requires_session":             same(func(of *sdkSubscription) **bool { return &of.RequiresSession }),
	"default_ttl_ms":               duration(func(of *sdkSubscription) **string { return &of.DefaultMessageTimeToLive }),
	"dead_lettering_on_expiration": same(func(of *sdkSubscription) **bool { return &of.DeadLetteringOnMessageExpiration }),
	"dead_lettering_on_filter_error": same(func(of *sdkSubscription) **bool {
		return &of.EnableDeadLetteringOnFilterEvaluationExceptions
	}),
	"max_delivery_count":        same(func(of *sdkSubscription) **int32 { return &of.MaxDeliveryCount }),
	"status":                    same(func(of *sdkSubscription) **sdkStatus { return &of.Status }),
	"auto_delete_on_idle_ms":    duration(func(of *sdkSubscription) **string { return &of.AutoDeleteOnIdle }),
	"forward_to":                target(func(of *sdkSubscription) **string { return &of.ForwardTo }),
	"forward_dead_letters_to":   target(func(of *sdkSubscription) **string { return &of.ForwardDeadLetteredMessagesTo }),
	"enable_batched_operations": same(func(of *sdkSubscription) **bool { return &of.EnableBatchedOperations }),
	"user_metadata":             same(func(of *sdkSubscription) **string { return &of.UserMetadata }),
	"default_rule":              {set: setDefaultRule},
}
