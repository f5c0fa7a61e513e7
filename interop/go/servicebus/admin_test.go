package servicebus

import (
	"errors"
	"fmt"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// refused asserts the SDK's own error of administration, with the status and the broker's sentence.
func (s *suite) refused(err error, status int, texts ...string) {
	s.Helper()
	var response *azcore.ResponseError
	if !errors.As(err, &response) {
		s.Fatalf("%T: %v", err, err)
	}
	equal(s.T, "status", response.StatusCode, status)
	s.says(err, texts...)
}

func TestAQueueIsAdministered(t *testing.T) {
	s := begin(t)
	name := s.name()
	properties := &admin.QueueProperties{
		LockDuration:                        to.Ptr("PT45S"),
		MaxSizeInMegabytes:                  to.Ptr(int32(2048)),
		RequiresDuplicateDetection:          to.Ptr(true),
		RequiresSession:                     to.Ptr(true),
		DefaultMessageTimeToLive:            to.Ptr("PT1H"),
		DeadLetteringOnMessageExpiration:    to.Ptr(true),
		DuplicateDetectionHistoryTimeWindow: to.Ptr("PT5M"),
		MaxDeliveryCount:                    to.Ptr(int32(7)),
		AutoDeleteOnIdle:                    to.Ptr("P1D"),
		UserMetadata:                        to.Ptr("words"),
		MaxMessageSizeInKilobytes:           to.Ptr(int64(2048)),
	}
	created, err := s.admin.CreateQueue(s.ctx, name, &admin.CreateQueueOptions{Properties: properties})
	s.must(err)
	equal(t, "name", created.QueueName, name)
	got, err := s.admin.GetQueue(s.ctx, name, nil)
	s.must(err)
	equal(t, "lock", *got.LockDuration, "PT45S")
	equal(t, "size", *got.MaxSizeInMegabytes, 2048)
	equal(t, "duplicates", *got.RequiresDuplicateDetection, true)
	equal(t, "sessions", *got.RequiresSession, true)
	equal(t, "time to live", *got.DefaultMessageTimeToLive, "PT1H")
	equal(t, "expiry", *got.DeadLetteringOnMessageExpiration, true)
	equal(t, "window", *got.DuplicateDetectionHistoryTimeWindow, "PT5M")
	equal(t, "deliveries", *got.MaxDeliveryCount, 7)
	equal(t, "idle", *got.AutoDeleteOnIdle, "P1D")
	equal(t, "metadata", *got.UserMetadata, "words")
	equal(t, "message size", *got.MaxMessageSizeInKilobytes, 2048)
	equal(t, "status", *got.Status, admin.EntityStatusActive)
	got.MaxDeliveryCount = to.Ptr(int32(3))
	updated, err := s.admin.UpdateQueue(s.ctx, name, got.QueueProperties, nil)
	s.must(err)
	equal(t, "deliveries", *updated.MaxDeliveryCount, 3)
	_, err = s.admin.DeleteQueue(s.ctx, name, nil)
	s.must(err)
	gone, err := s.admin.GetQueue(s.ctx, name, nil)
	s.must(err)
	equal(t, "deleted queue", gone, nil)
}

func TestAQueueHasRuntimeCounts(t *testing.T) {
	s := begin(t)
	queue := s.queue(nil)
	s.send(queue, "a", "b", "c")
	receiver := s.receiver(queue, nil)
	s.must(receiver.DeadLetterMessage(s.ctx, s.receiveOne(receiver), nil))
	counts := s.counts(queue)
	equal(t, "active", counts.ActiveMessageCount, 2)
	equal(t, "dead", counts.DeadLetterMessageCount, 1)
	equal(t, "total", counts.TotalMessageCount, 3)
	if counts.SizeInBytes < 3 || counts.CreatedAt.IsZero() || counts.UpdatedAt.Before(counts.CreatedAt) {
		t.Fatalf("%+v", counts)
	}
}

func TestQueuesAreListedPageByPage(t *testing.T) {
	s := begin(t)
	wanted := map[string]bool{}
	for range 7 {
		wanted[s.queue(nil)] = true
	}
	pager := s.admin.NewListQueuesPager(&admin.ListQueuesOptions{MaxPageSize: 3})
	for pager.More() {
		page, err := pager.NextPage(s.ctx)
		s.must(err)
		if len(page.Queues) > 3 {
			t.Fatalf("a page has %d queues", len(page.Queues))
		}
		for _, queue := range page.Queues {
			delete(wanted, queue.QueueName)
		}
	}
	equal(t, "queues that are missing", fmt.Sprint(wanted), "map[]")
}

func TestATopicWithItsSubscriptionsIsAdministered(t *testing.T) {
	s := begin(t)
	topic := s.name()
	_, err := s.admin.CreateTopic(s.ctx, topic, &admin.CreateTopicOptions{Properties: &admin.TopicProperties{
		DefaultMessageTimeToLive: to.Ptr("PT2H"), SupportOrdering: to.Ptr(true), UserMetadata: to.Ptr("t"),
	}})
	s.must(err)
	got, err := s.admin.GetTopic(s.ctx, topic, nil)
	s.must(err)
	equal(t, "time to live", *got.DefaultMessageTimeToLive, "PT2H")
	got.UserMetadata = to.Ptr("u")
	updated, err := s.admin.UpdateTopic(s.ctx, topic, got.TopicProperties, nil)
	s.must(err)
	equal(t, "metadata", *updated.UserMetadata, "u")
	_, err = s.admin.CreateSubscription(s.ctx, topic, "all", &admin.CreateSubscriptionOptions{
		Properties: &admin.SubscriptionProperties{LockDuration: to.Ptr("PT40S"), MaxDeliveryCount: to.Ptr(int32(4))},
	})
	s.must(err)
	_, err = s.admin.CreateSubscription(s.ctx, topic, "some", &admin.CreateSubscriptionOptions{
		Properties: &admin.SubscriptionProperties{DefaultRule: &admin.RuleProperties{
			Name: "only-red", Filter: &admin.CorrelationFilter{Subject: to.Ptr("red")},
		}},
	})
	s.must(err)
	subscription, err := s.admin.GetSubscription(s.ctx, topic, "all", nil)
	s.must(err)
	equal(t, "lock", *subscription.LockDuration, "PT40S")
	subscription.MaxDeliveryCount = to.Ptr(int32(5))
	changed, err := s.admin.UpdateSubscription(s.ctx, topic, "all", subscription.SubscriptionProperties, nil)
	s.must(err)
	equal(t, "deliveries", *changed.MaxDeliveryCount, 5)
	var names string
	pager := s.admin.NewListSubscriptionsPager(topic, nil)
	for pager.More() {
		page, err := pager.NextPage(s.ctx)
		s.must(err)
		for _, subscription := range page.Subscriptions {
			names += subscription.SubscriptionName + " "
		}
	}
	equal(t, "subscriptions", names, "all some ")
	s.send(topic, "message")
	counts, err := s.admin.GetTopicRuntimeProperties(s.ctx, topic, nil)
	s.must(err)
	equal(t, "subscriptions", counts.SubscriptionCount, 2)
	equal(t, "SQL filters", counts.SQLFilterCount, 1)
	equal(t, "correlation filters", counts.CorrelationFilterCount, 1)
	runtime, err := s.admin.GetSubscriptionRuntimeProperties(s.ctx, topic, "all", nil)
	s.must(err)
	equal(t, "active", runtime.ActiveMessageCount, 1)
	_, err = s.admin.DeleteSubscription(s.ctx, topic, "all", nil)
	s.must(err)
	_, err = s.admin.DeleteTopic(s.ctx, topic, nil)
	s.must(err)
	gone, err := s.admin.GetTopic(s.ctx, topic, nil)
	s.must(err)
	equal(t, "deleted queue", gone, nil)
}

func TestTheNamespaceIsDescribed(t *testing.T) {
	s := begin(t)
	namespace, err := s.admin.GetNamespaceProperties(s.ctx, nil)
	s.must(err)
	equal(t, "tier", namespace.SKU, "Premium")
	if namespace.Name == "" || namespace.CreatedTime.IsZero() {
		t.Fatalf("%+v", namespace)
	}
}

func TestAdministrationErrorsHaveASentence(t *testing.T) {
	s := begin(t)
	queue := s.queue(nil)
	_, err := s.admin.CreateQueue(s.ctx, queue, nil)
	s.refused(err, 409, queue)
	_, err = s.admin.CreateQueue(s.ctx, s.name(), &admin.CreateQueueOptions{
		Properties: &admin.QueueProperties{LockDuration: to.Ptr("PT10M")},
	})
	s.refused(err, 400, "a lock duration of 600s is outside of")
	_, err = s.admin.DeleteQueue(s.ctx, "nowhere", nil)
	s.refused(err, 404, "nowhere")
	_, err = s.admin.UpdateQueue(s.ctx, "nowhere", admin.QueueProperties{}, nil)
	s.refused(err, 404, "nowhere")
}
