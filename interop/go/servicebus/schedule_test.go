package servicebus

import (
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func TestAScheduledMessageArrivesWhenDue(t *testing.T) {
	s := begin(t)
	queue := s.queue(nil)
	when := time.Now().Add(2 * time.Second)
	numbers, err := s.sender(queue).ScheduleMessages(s.ctx, []*azservicebus.Message{{Body: []byte("later")}}, when, nil)
	s.must(err)
	equal(t, "numbers", len(numbers), 1)
	receiver := s.receiver(queue, nil)
	message := s.receiveOne(receiver)
	equal(t, "body", string(message.Body), "later")
	if message.EnqueuedTime.Before(when.Truncate(time.Millisecond)) {
		t.Fatalf("the message was enqueued at %s, before %s", message.EnqueuedTime, when)
	}
	s.must(receiver.CompleteMessage(s.ctx, message, nil))
}

func TestAScheduledMessageIsCancelled(t *testing.T) {
	s := begin(t)
	queue := s.queue(nil)
	sender := s.sender(queue)
	messages := []*azservicebus.Message{{Body: []byte("a")}, {Body: []byte("b")}, {Body: []byte("c")}}
	numbers, err := sender.ScheduleMessages(s.ctx, messages, time.Now().Add(time.Hour), nil)
	s.must(err)
	equal(t, "scheduled", s.counts(queue).ScheduledMessageCount, 3)
	s.must(sender.CancelScheduledMessages(s.ctx, numbers[:2], nil))
	equal(t, "scheduled", s.counts(queue).ScheduledMessageCount, 1)
	peeked := s.peek(s.receiver(queue, nil), 1)[0]
	equal(t, "body", string(peeked.Body), "c")
	equal(t, "state", peeked.State, azservicebus.MessageStateScheduled)
	equal(t, "number", *peeked.SequenceNumber, numbers[2])
}

func TestAMessageWithAScheduledTimeIsScheduled(t *testing.T) {
	s := begin(t)
	queue := s.queue(nil)
	when := time.Now().Add(time.Hour).Truncate(time.Millisecond).UTC()
	message := &azservicebus.Message{Body: []byte("x"), ScheduledEnqueueTime: &when}
	s.must(s.sender(queue).SendMessage(s.ctx, message, nil))
	peeked := s.peek(s.receiver(queue, nil), 1)[0]
	equal(t, "state", peeked.State, azservicebus.MessageStateScheduled)
	equal(t, "time", peeked.ScheduledEnqueueTime.UTC(), when)
}

func TestADuplicateIsDropped(t *testing.T) {
	s := begin(t)
	queue := s.queue(&admin.QueueProperties{
		RequiresDuplicateDetection:          to.Ptr(true),
		DuplicateDetectionHistoryTimeWindow: to.Ptr("PT10M"),
	})
	sender := s.sender(queue)
	for _, id := range []string{"one", "one", "two"} {
		s.must(sender.SendMessage(s.ctx, &azservicebus.Message{Body: []byte(id), MessageID: &id}, nil))
	}
	batch, err := sender.NewMessageBatch(s.ctx, nil)
	s.must(err)
	for _, id := range []string{"two", "three"} {
		s.must(batch.AddMessage(&azservicebus.Message{Body: []byte(id), MessageID: &id}, nil))
	}
	s.must(sender.SendMessageBatch(s.ctx, batch, nil))
	equal(t, "messages", bodies(s.receive(s.receiver(queue, nil), 3)), "one two three")
	equal(t, "count", s.counts(queue).TotalMessageCount, 3)
}
