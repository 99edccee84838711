package main

import (
	"context"
	"errors"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

type adminQueue struct {
	client *admin.Client
	name   string
}

func (of adminQueue) create(limit context.Context, asked given) (fields, error) {
	var properties admin.QueueProperties
	if err := queueProperties.set(&properties, asked); err != nil {
		return nil, err
	}
	made, err := of.client.CreateQueue(limit, of.name, &admin.CreateQueueOptions{Properties: &properties})
	return queueProperties.shown(&made.QueueProperties), err
}

func (of adminQueue) get(limit context.Context) (fields, error) {
	got, err := present(of.client.GetQueue(limit, of.name, nil))
	if err != nil {
		return nil, err
	}
	return queueProperties.shown(&got.QueueProperties), nil
}

func (of adminQueue) update(limit context.Context, asked given) error {
	got, err := present(of.client.GetQueue(limit, of.name, nil))
	if err != nil {
		return err
	}
	if err := queueProperties.set(&got.QueueProperties, asked); err != nil {
		return err
	}
	_, err = of.client.UpdateQueue(limit, of.name, got.QueueProperties, nil)
	return err
}

func (of adminQueue) remove(limit context.Context) error {
	_, err := of.client.DeleteQueue(limit, of.name, nil)
	return err
}

func (of adminQueue) runtime(limit context.Context) (fields, error) {
	got, err := present(of.client.GetQueueRuntimeProperties(limit, of.name, nil))
	if err != nil {
		return nil, err
	}
	return shownQueueRuntime(&got.QueueRuntimeProperties), nil
}

func shownQueueRuntime(of *admin.QueueRuntimeProperties) fields {
	return fields{
		"active_count":               of.ActiveMessageCount,
		"dead_letter_count":          of.DeadLetterMessageCount,
		"scheduled_count":            of.ScheduledMessageCount,
		"transfer_count":             of.TransferMessageCount,
		"transfer_dead_letter_count": of.TransferDeadLetterMessageCount,
		"total_count":                of.TotalMessageCount,
		"size_bytes":                 of.SizeInBytes,
		"created_at_ms":              of.CreatedAt.UnixMilli(),
		"updated_at_ms":              of.UpdatedAt.UnixMilli(),
		"accessed_at_ms":             of.AccessedAt.UnixMilli(),
	}
}

type adminTopic struct {
	client *admin.Client
	name   string
}

func (of adminTopic) create(limit context.Context, asked given) (fields, error) {
	var properties admin.TopicProperties
	if err := topicProperties.set(&properties, asked); err != nil {
		return nil, err
	}
	made, err := of.client.CreateTopic(limit, of.name, &admin.CreateTopicOptions{Properties: &properties})
	return topicProperties.shown(&made.TopicProperties), err
}

func (of adminTopic) get(limit context.Context) (fields, error) {
	got, err := present(of.client.GetTopic(limit, of.name, nil))
	if err != nil {
		return nil, err
	}
	return topicProperties.shown(&got.TopicProperties), nil
}

func (of adminTopic) update(limit context.Context, asked given) error {
	got, err := present(of.client.GetTopic(limit, of.name, nil))
	if err != nil {
		return err
	}
	if err := topicProperties.set(&got.TopicProperties, asked); err != nil {
		return err
	}
	_, err = of.client.UpdateTopic(limit, of.name, got.TopicProperties, nil)
	return err
}

func (of adminTopic) remove(limit context.Context) error {
	_, err := of.client.DeleteTopic(limit, of.name, nil)
	return err
}

func (of adminTopic) runtime(limit context.Context) (fields, error) {
	got, err := present(of.client.GetTopicRuntimeProperties(limit, of.name, nil))
	if err != nil {
		return nil, err
	}
	return shownTopicRuntime(&got.TopicRuntimeProperties), nil
}

func shownTopicRuntime(of *admin.TopicRuntimeProperties) fields {
	return fields{
		"scheduled_count":    of.ScheduledMessageCount,
		"subscription_count": of.SubscriptionCount,
		"size_bytes":         of.SizeInBytes,
		"created_at_ms":      of.CreatedAt.UnixMilli(),
		"updated_at_ms":      of.UpdatedAt.UnixMilli(),
		"accessed_at_ms":     of.AccessedAt.UnixMilli(),
	}
}

type adminSubscription struct {
	client *admin.Client
	topic  string
	name   string
}

func (of adminSubscription) create(limit context.Context, asked given) (fields, error) {
	var properties admin.SubscriptionProperties
	if err := subscriptionProperties.set(&properties, asked); err != nil {
		return nil, err
	}
	options := &admin.CreateSubscriptionOptions{Properties: &properties}
	made, err := of.client.CreateSubscription(limit, of.topic, of.name, options)
	return subscriptionProperties.shown(&made.SubscriptionProperties), err
}

func (of adminSubscription) get(limit context.Context) (fields, error) {
	got, err := present(of.client.GetSubscription(limit, of.topic, of.name, nil))
	if err != nil {
		return nil, err
	}
	return subscriptionProperties.shown(&got.SubscriptionProperties), nil
}

func (of adminSubscription) update(limit context.Context, asked given) error {
	got, err := present(of.client.GetSubscription(limit, of.topic, of.name, nil))
	if err != nil {
		return err
	}
	if err := subscriptionProperties.set(&got.SubscriptionProperties, asked); err != nil {
		return err
	}
	_, err = of.client.UpdateSubscription(limit, of.topic, of.name, got.SubscriptionProperties, nil)
	return err
}

func (of adminSubscription) remove(limit context.Context) error {
	_, err := of.client.DeleteSubscription(limit, of.topic, of.name, nil)
	return err
}

func (of adminSubscription) runtime(limit context.Context) (fields, error) {
	got, err := present(of.client.GetSubscriptionRuntimeProperties(limit, of.topic, of.name, nil))
	if err != nil {
		return nil, err
	}
	return shownSubscriptionRuntime(&got.SubscriptionRuntimeProperties), nil
}

func shownSubscriptionRuntime(of *admin.SubscriptionRuntimeProperties) fields {
	return fields{
		"active_count":               of.ActiveMessageCount,
		"dead_letter_count":          of.DeadLetterMessageCount,
		"transfer_count":             of.TransferMessageCount,
		"transfer_dead_letter_count": of.TransferDeadLetterMessageCount,
		"total_count":                of.TotalMessageCount,
		"created_at_ms":              of.CreatedAt.UnixMilli(),
		"updated_at_ms":              of.UpdatedAt.UnixMilli(),
		"accessed_at_ms":             of.AccessedAt.UnixMilli(),
	}
}

type adminRule struct {
	client       *admin.Client
	topic        string
	subscription string
	name         string
}

func (of adminRule) create(limit context.Context, asked given) (fields, error) {
	var properties admin.RuleProperties
	if err := ruleProperties.set(&properties, asked); err != nil {
		return nil, err
	}
	made, err := of.client.CreateRule(limit, of.topic, of.subscription, &admin.CreateRuleOptions{
		Name:   &of.name,
		Filter: properties.Filter,
		Action: properties.Action,
	})
	return ruleProperties.shown(&made.RuleProperties), err
}

func (of adminRule) get(limit context.Context) (fields, error) {
	got, err := present(of.client.GetRule(limit, of.topic, of.subscription, of.name, nil))
	if err != nil {
		return nil, err
	}
	return ruleProperties.shown(&got.RuleProperties), nil
}

func (of adminRule) update(limit context.Context, asked given) error {
	got, err := present(of.client.GetRule(limit, of.topic, of.subscription, of.name, nil))
	if err != nil {
		return err
	}
	if err := ruleProperties.set(&got.RuleProperties, asked); err != nil {
		return err
	}
	_, err = of.client.UpdateRule(limit, of.topic, of.subscription, got.RuleProperties)
	return err
}

func (of adminRule) remove(limit context.Context) error {
	_, err := of.client.DeleteRule(limit, of.topic, of.subscription, of.name, nil)
	return err
}

func (of adminRule) runtime(context.Context) (fields, error) {
	return nil, errors.New("rules have no runtime properties")
}
