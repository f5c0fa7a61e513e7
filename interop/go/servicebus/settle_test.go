package servicebus

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

var deadLetters = &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}

func TestAnAbandonedMessageReturnsWithItsChanges(t *testing.T) {
	s := begin(t)
	queue := s.queue(nil)
	s.send(queue, "again")
	receiver := s.receiver(queue, nil)
	changes := map[string]any{"attempt": "first"}
	s.must(receiver.AbandonMessage(s.ctx, s.receiveOne(receiver), &azservicebus.AbandonMessageOptions{PropertiesToModify: changes}))
	message := s.receiveOne(receiver)
	equal(t, "delivery count", message.DeliveryCount, 2)
	equal(t, "property", message.ApplicationProperties["attempt"], any("first"))
	s.must(receiver.CompleteMessage(s.ctx, message, nil))
	s.isEmpty(queue)
}

func TestADeferredMessageIsReceivedByItsNumber(t *testing.T) {
	s := begin(t)
	queue := s.queue(nil)
	s.send(queue, "later", "now")
	receiver := s.receiver(queue, nil)
	messages := s.receive(receiver, 2)
	changes := map[string]any{"why": "not yet"}
	s.must(receiver.DeferMessage(s.ctx, messages[0], &azservicebus.DeferMessageOptions{PropertiesToModify: changes}))
	s.must(receiver.CompleteMessage(s.ctx, messages[1], nil))
	peeked := s.peek(receiver, 1)[0]
	equal(t, "state", peeked.State, azservicebus.MessageStateDeferred)
	deferred, err := receiver.ReceiveDeferredMessages(s.ctx, []int64{*messages[0].SequenceNumber}, nil)
	s.must(err)
	equal(t, "body", bodies(deferred), "later")
	equal(t, "property", deferred[0].ApplicationProperties["why"], any("not yet"))
	s.must(receiver.RenewMessageLock(s.ctx, deferred[0], nil))
	s.must(receiver.CompleteMessage(s.ctx, deferred[0], nil))
	s.isEmpty(queue)
}

func TestADeadLetterKeepsItsDetails(t *testing.T) {
	s := begin(t)
	queue := s.queue(nil)
	s.send(queue, "poison")
	receiver := s.receiver(queue, nil)
	s.must(receiver.DeadLetterMessage(s.ctx, s.receiveOne(receiver), &azservicebus.DeadLetterOptions{
		Reason:             to.Ptr("the reason"),
		ErrorDescription:   to.Ptr("the description"),
		PropertiesToModify: map[string]any{"seen": int64(1)},
	}))
	dead := s.receiver(queue, deadLetters)
	message := s.receiveOne(dead)
	equal(t, "body", string(message.Body), "poison")
	equal(t, "reason", *message.DeadLetterReason, "the reason")
	equal(t, "description", *message.DeadLetterErrorDescription, "the description")
	equal(t, "property", message.ApplicationProperties["seen"], any(int64(1)))
	s.must(dead.CompleteMessage(s.ctx, message, nil))
	equal(t, "dead letters", s.counts(queue).DeadLetterMessageCount, 0)
}

func TestADeferredMessageCanBeDeadLettered(t *testing.T) {
	s := begin(t)
	queue := s.queue(nil)
	s.send(queue, "poison")
	receiver := s.receiver(queue, nil)
	message := s.receiveOne(receiver)
	s.must(receiver.DeferMessage(s.ctx, message, nil))
	deferred, err := receiver.ReceiveDeferredMessages(s.ctx, []int64{*message.SequenceNumber}, nil)
	s.must(err)
	s.must(receiver.DeadLetterMessage(s.ctx, deferred[0], &azservicebus.DeadLetterOptions{Reason: to.Ptr("managed")}))
	equal(t, "reason", *s.receiveOne(s.receiver(queue, deadLetters)).DeadLetterReason, "managed")
}

func TestTooManyDeliveriesDeadLetterAMessage(t *testing.T) {
	s := begin(t)
	queue := s.queue(&admin.QueueProperties{MaxDeliveryCount: to.Ptr(int32(2))})
	s.send(queue, "poison")
	receiver := s.receiver(queue, nil)
	for range 2 {
		s.must(receiver.AbandonMessage(s.ctx, s.receiveOne(receiver), nil))
	}
	message := s.receiveOne(s.receiver(queue, deadLetters))
	equal(t, "reason", *message.DeadLetterReason, "MaxDeliveryCountExceeded")
}

func TestAnExpiredMessageIsDeadLettered(t *testing.T) {
	s := begin(t)
	queue := s.queue(&admin.QueueProperties{
		DeadLetteringOnMessageExpiration: to.Ptr(true),
		DefaultMessageTimeToLive:         to.Ptr("PT1S"),
	})
	s.send(queue, "old")
	message := s.receiveOne(s.receiver(queue, deadLetters))
	equal(t, "reason", *message.DeadLetterReason, "TTLExpiredException")
}

func TestALockIsRenewed(t *testing.T) {
	s := begin(t)
	queue := s.queue(nil)
	s.send(queue, "long work")
	receiver := s.receiver(queue, nil)
	message := s.receiveOne(receiver)
	before := *message.LockedUntil
	for !message.LockedUntil.After(before) {
		s.must(receiver.RenewMessageLock(s.ctx, message, nil))
	}
	s.must(receiver.CompleteMessage(s.ctx, message, nil))
	s.isEmpty(queue)
}

func TestALockTokenAloneSettles(t *testing.T) {
	s := begin(t)
	queue := s.queue(nil)
	s.send(queue, "elsewhere")
	message := s.receiveOne(s.receiver(queue, nil))
	other := with(t, newClient(t, shared.ConnectionString(), nil)).receiver(queue, nil)
	token := &azservicebus.ReceivedMessage{LockToken: message.LockToken}
	s.must(other.RenewMessageLock(s.ctx, token, nil))
	s.must(other.CompleteMessage(s.ctx, token, nil))
	s.isEmpty(queue)
}

func TestAMessageIsSettledAfterItsReceiverIsClosed(t *testing.T) {
	s := begin(t)
	queue := s.queue(nil)
	s.send(queue, "left")
	first := s.receiver(queue, nil)
	message := s.receiveOne(first)
	s.must(first.Close(s.ctx))
	token := &azservicebus.ReceivedMessage{LockToken: message.LockToken}
	s.must(s.receiver(queue, nil).CompleteMessage(s.ctx, token, nil))
	s.isEmpty(queue)
}

func TestPeekRemovesNothing(t *testing.T) {
	s := begin(t)
	queue := s.queue(nil)
	s.send(queue, "a", "b", "c")
	receiver := s.receiver(queue, nil)
	first := s.peek(receiver, 2)
	equal(t, "first", bodies(first), "a b")
	equal(t, "next", bodies(s.peek(receiver, 2)), "c")
	again, err := receiver.PeekMessages(s.ctx, 1, &azservicebus.PeekMessagesOptions{FromSequenceNumber: first[1].SequenceNumber})
	s.must(err)
	equal(t, "by number", bodies(again), "b")
	equal(t, "received", bodies(s.receive(receiver, 3)), "a b c")
}

// A receiver that gets fewer messages than requested leaves credit, and releases messages that arrive meanwhile.
// Messages in flight when the receiver closes stay locked until the lock expires.
func TestMessagesBetweenReceivesAreNotLost(t *testing.T) {
	s := begin(t)
	queue := s.queue(&admin.QueueProperties{LockDuration: to.Ptr("PT5S"), MaxDeliveryCount: to.Ptr(int32(1000))})
	s.send(queue, "first")
	receiver := s.receiver(queue, nil)
	messages, err := receiver.ReceiveMessages(s.ctx, 10, nil)
	s.must(err)
	equal(t, "first", bodies(messages), "first")
	s.send(queue, "second", "third")
	s.must(receiver.CompleteMessage(s.ctx, messages[0], nil))
	other := with(t, newClient(t, shared.ConnectionString(), nil))
	s.must(receiver.Close(s.ctx))
	receiver = other.receiver(queue, nil)
	seen := map[string]bool{}
	for len(seen) < 2 {
		message := other.receiveOne(receiver)
		seen[string(message.Body)] = true
		s.must(receiver.CompleteMessage(s.ctx, message, nil))
	}
	s.isEmpty(queue)
}

func TestForwardedMessagesArrive(t *testing.T) {
	s := begin(t)
	target := s.queue(nil)
	source := s.queue(&admin.QueueProperties{ForwardTo: to.Ptr(target), MaxDeliveryCount: to.Ptr(int32(3))})
	s.send(source, "passed on")
	message := s.receiveOne(s.receiver(target, nil))
	equal(t, "body", string(message.Body), "passed on")
}
