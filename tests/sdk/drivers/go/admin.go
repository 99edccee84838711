package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// given are the properties of a request, by the protocol's names.
type given map[string]json.RawMessage

// adminRequest holds the arguments of the operations of administration.
type adminRequest struct {
	Queue        *string `json:"queue"`
	Topic        *string `json:"topic"`
	Subscription *string `json:"subscription"`
	Rule         *string `json:"rule"`
	Kind         string  `json:"kind"`
	Properties   given   `json:"properties"`
}

// administered is one entity or rule with what the SDK can do to it.
type administered interface {
	create(context.Context, given) (fields, error)
	get(context.Context) (fields, error)
	// update sets what is given on the SDK's object as a get returns it, and sends that.
	update(context.Context, given) error
	remove(context.Context) error
	runtime(context.Context) (fields, error)
}

// absentError stands for the SDK's way of saying that there is no such entity: nothing, and no error.
type absentError struct{}

func (absentError) Error() string { return "the SDK answers that there is no such entity" }

func present[T any](got *T, err error) (*T, error) {
	if got == nil && err == nil {
		return nil, absentError{}
	}
	return got, err
}

var adminOperations = map[string]func(*clients, *adminRequest) (fields, error){
	"admin_create":       onEntity(adminCreate),
	"admin_get":          onEntity(adminGet),
	"admin_update":       onEntity(adminUpdate),
	"admin_delete":       onEntity(adminDelete),
	"admin_exists":       onEntity(adminExists),
	"admin_runtime":      onEntity(adminRuntime),
	"admin_list":         (*clients).adminList,
	"admin_runtime_list": (*clients).adminRuntimeList,
	"admin_namespace":    (*clients).adminNamespace,
}

func (held *clients) administrator() (*admin.Client, error) {
	if held.administration != nil {
		return held.administration, nil
	}
	options := &admin.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport: held.way.httpClient,
		Retry:     policy.RetryOptions{MaxRetries: -1},
	}}
	var err error
	// It connects to the host that it names, whatever the namespace is.
	if held.way.credential != nil {
		held.administration, err = admin.NewClient(held.way.address(), held.way.credential, options)
	} else {
		held.administration, err = admin.NewClientFromConnectionString(held.way.written(held.way.address()), options)
	}
	return held.administration, err
}

func onEntity(
	operation func(context.Context, administered, *adminRequest) (fields, error),
) func(*clients, *adminRequest) (fields, error) {
	return func(held *clients, asked *adminRequest) (fields, error) {
		client, err := held.administrator()
		if err != nil {
			return nil, err
		}
		entity, err := named(client, asked)
		if err != nil {
			return nil, err
		}
		limit, stop := tryContext()
		defer stop()
		return operation(limit, entity, asked)
	}
}

func named(client *admin.Client, asked *adminRequest) (administered, error) {
	queue, topic, subscription, rule := asked.Queue, asked.Topic, asked.Subscription, asked.Rule
	switch {
	case queue != nil:
		return adminQueue{client, *queue}, nil
	case topic == nil:
		return nil, errors.New("neither a queue nor a topic is named")
	case subscription == nil:
		return adminTopic{client, *topic}, nil
	case rule == nil:
		return adminSubscription{client, *topic, *subscription}, nil
	}
	return adminRule{client, *topic, *subscription, *rule}, nil
}

func adminCreate(limit context.Context, entity administered, asked *adminRequest) (fields, error) {
	made, err := entity.create(limit, asked.Properties)
	return fields{"properties": made}, err
}

func adminGet(limit context.Context, entity administered, _ *adminRequest) (fields, error) {
	got, err := entity.get(limit)
	return fields{"properties": got}, err
}

func adminUpdate(limit context.Context, entity administered, asked *adminRequest) (fields, error) {
	if err := entity.update(limit, asked.Properties); err != nil {
		return nil, err
	}
	return adminGet(limit, entity, asked)
}

func adminDelete(limit context.Context, entity administered, _ *adminRequest) (fields, error) {
	return fields{}, entity.remove(limit)
}

// adminExists asks by a get: the SDK has no call for it.
func adminExists(limit context.Context, entity administered, _ *adminRequest) (fields, error) {
	_, err := entity.get(limit)
	if errors.As(err, &absentError{}) {
		return fields{"exists": false}, nil
	}
	return fields{"exists": true}, err
}

func adminRuntime(limit context.Context, entity administered, _ *adminRequest) (fields, error) {
	got, err := entity.runtime(limit)
	return fields{"runtime": got}, err
}

func (held *clients) adminNamespace(*adminRequest) (fields, error) {
	client, err := held.administrator()
	if err != nil {
		return nil, err
	}
	limit, stop := tryContext()
	defer stop()
	got, err := client.GetNamespaceProperties(limit, nil)
	return fields{"name": got.Name, "sku": got.SKU, "messaging_units": got.MessagingUnits}, err
}

// inside returns the topic and the subscription of a request, "" for those that are not named.
func (asked *adminRequest) inside() (topic, subscription string) {
	if asked.Topic != nil {
		topic = *asked.Topic
	}
	if asked.Subscription != nil {
		subscription = *asked.Subscription
	}
	return topic, subscription
}

func (held *clients) adminList(asked *adminRequest) (fields, error) {
	client, err := held.administrator()
	if err != nil {
		return nil, err
	}
	names := []string{}
	topic, subscription := asked.inside()
	switch asked.Kind {
	case "queues":
		err = everyPage(client.NewListQueuesPager(nil), func(page admin.ListQueuesResponse) {
			for _, item := range page.Queues {
				names = append(names, item.QueueName)
			}
		})
	case "topics":
		err = everyPage(client.NewListTopicsPager(nil), func(page admin.ListTopicsResponse) {
			for _, item := range page.Topics {
				names = append(names, item.TopicName)
			}
		})
	case "subscriptions":
		err = everyPage(client.NewListSubscriptionsPager(topic, nil), func(page admin.ListSubscriptionsResponse) {
			for _, item := range page.Subscriptions {
				names = append(names, item.SubscriptionName)
			}
		})
	case "rules":
		err = everyPage(client.NewListRulesPager(topic, subscription, nil), func(page admin.ListRulesResponse) {
			for _, item := range page.Rules {
				names = append(names, item.Name)
			}
		})
	default:
		err = fmt.Errorf("unknown kind %q", asked.Kind)
	}
	return fields{"names": names}, err
}

func (held *clients) adminRuntimeList(asked *adminRequest) (fields, error) {
	client, err := held.administrator()
	if err != nil {
		return nil, err
	}
	shown := fields{}
	topic, _ := asked.inside()
	switch asked.Kind {
	case "queues":
		pager := client.NewListQueuesRuntimePropertiesPager(nil)
		err = everyPage(pager, func(page admin.ListQueuesRuntimePropertiesResponse) {
			for _, item := range page.QueueRuntimeProperties {
				shown[item.QueueName] = shownQueueRuntime(&item.QueueRuntimeProperties)
			}
		})
	case "topics":
		pager := client.NewListTopicsRuntimePropertiesPager(nil)
		err = everyPage(pager, func(page admin.ListTopicsRuntimePropertiesResponse) {
			for _, item := range page.TopicRuntimeProperties {
				shown[item.TopicName] = shownTopicRuntime(&item.TopicRuntimeProperties)
			}
		})
	case "subscriptions":
		pager := client.NewListSubscriptionsRuntimePropertiesPager(topic, nil)
		err = everyPage(pager, func(page admin.ListSubscriptionsRuntimePropertiesResponse) {
			for _, item := range page.SubscriptionRuntimeProperties {
				shown[item.SubscriptionName] = shownSubscriptionRuntime(&item.SubscriptionRuntimeProperties)
			}
		})
	default:
		err = fmt.Errorf("unknown kind %q", asked.Kind)
	}
	return fields{"runtime": shown}, err
}

func everyPage[T any](pager *runtime.Pager[T], take func(T)) error {
	for pager.More() {
		err := bounded(func(limit context.Context) error {
			page, err := pager.NextPage(limit)
			if err == nil {
				take(page)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
