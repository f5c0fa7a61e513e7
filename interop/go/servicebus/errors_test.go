package servicebus

import (
	"errors"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/Azure/go-amqp"

	"peeklock/interop/broker"
)

// condition asserts the AMQP condition: the SDK has no code of its own for some errors.
func (s *suite) condition(err error, condition amqp.ErrCond) {
	s.Helper()
	var amqpError *amqp.Error
	if !errors.As(err, &amqpError) {
		s.Fatalf("%T is no AMQP error: %v", err, err)
	}
	equal(s.T, "condition", amqpError.Condition, condition)
}

func TestAWrongKeyIsUnauthorized(t *testing.T) {
	s := begin(t)
	queue := s.queue(nil)
	wrong := broker.ConnectionString(shared.Address(), broker.KeyName, "wrong") + "UseDevelopmentEmulator=true"
	sender, err := newClient(t, wrong, once).NewSender(queue, nil)
	s.must(err)
	err = sender.SendMessage(s.ctx, &azservicebus.Message{}, nil)
	s.code(err, azservicebus.CodeUnauthorizedAccess)
	s.says(err, "signature")
}

func TestAWrongKeyIsUnauthorizedForAdministration(t *testing.T) {
	s := begin(t)
	wrong := newAdmin(t, broker.ConnectionString(shared.Address(), broker.KeyName, "wrong"))
	_, err := wrong.CreateQueue(s.ctx, s.name(), nil)
	var response *azcore.ResponseError
	if !errors.As(err, &response) {
		t.Fatal(err)
	}
	equal(t, "status", response.StatusCode, 401)
	s.says(err, "signature")
}

func TestAnUnknownEntityIsNotFound(t *testing.T) {
	s := begin(t)
	client := newClient(t, shared.ConnectionString(), once)
	sender, err := client.NewSender("nowhere", nil)
	s.must(err)
	err = sender.SendMessage(s.ctx, &azservicebus.Message{}, nil)
	s.code(err, azservicebus.CodeNotFound)
	s.says(err, "'sb://127.0.0.1/nowhere' could not be found")
	receiver, err := client.NewReceiverForSubscription("nowhere", "nobody", nil)
	s.must(err)
	_, err = receiver.ReceiveMessages(s.ctx, 1, nil)
	s.code(err, azservicebus.CodeNotFound)
	s.says(err, "nowhere", "could not be found")
}

func TestALostLockIsReported(t *testing.T) {
	s := begin(t)
	queue := s.queue(&admin.QueueProperties{LockDuration: to.Ptr("PT5S")})
	s.send(queue, "slow")
	receiver := s.receiver(queue, nil)
	lost := s.receiveOne(receiver)
	again := s.receiveOne(s.receiver(queue, nil))
	equal(t, "delivery count", again.DeliveryCount, 2)
	err := receiver.CompleteMessage(s.ctx, lost, nil)
	s.code(err, azservicebus.CodeLockLost)
	s.says(err, "lock")
	err = receiver.RenewMessageLock(s.ctx, lost, nil)
	s.code(err, azservicebus.CodeLockLost)
	s.says(err, "lock")
	equal(t, "messages", s.counts(queue).TotalMessageCount, 1)
}

func TestAFullQueueRejects(t *testing.T) {
	s := begin(t)
	client := newClient(t, shared.ConnectionString(), once)
	sender, err := client.NewSender(smallQueue, nil)
	s.must(err)
	message := &azservicebus.Message{Body: make([]byte, 6000)}
	s.must(sender.SendMessage(s.ctx, message, nil))
	err = sender.SendMessage(s.ctx, message, nil)
	s.condition(err, amqp.ErrCondResourceLimitExceeded)
	s.says(err, smallQueue, "full")
	receiver := s.receiver(smallQueue, nil)
	s.must(receiver.CompleteMessage(s.ctx, s.receiveOne(receiver), nil))
	s.must(sender.SendMessage(s.ctx, message, nil))
}

// The SDK compares the size with the limit from the broker's attach, and uses its own error text.
func TestAMessageThatIsTooLargeIsRejected(t *testing.T) {
	s := begin(t)
	queue := s.queue(nil)
	sender := s.sender(queue)
	err := sender.SendMessage(s.ctx, &azservicebus.Message{Body: make([]byte, 2<<20)}, nil)
	if !errors.Is(err, azservicebus.ErrMessageTooLarge) {
		t.Fatal(err)
	}
	s.must(sender.SendMessage(s.ctx, &azservicebus.Message{Body: []byte("small")}, nil))
	equal(t, "messages", s.counts(queue).TotalMessageCount, 1)
}

func TestADisabledQueueReportsItsStatus(t *testing.T) {
	s := begin(t)
	queue := s.queue(&admin.QueueProperties{Status: to.Ptr(admin.EntityStatusSendDisabled)})
	sender, err := newClient(t, shared.ConnectionString(), once).NewSender(queue, nil)
	s.must(err)
	err = sender.SendMessage(s.ctx, &azservicebus.Message{}, nil)
	s.condition(err, "com.microsoft:entity-disabled")
	s.says(err, queue)
}

func TestAnUnknownNumberIsNoDeferredMessage(t *testing.T) {
	s := begin(t)
	queue := s.queue(nil)
	_, err := s.receiver(queue, nil).ReceiveDeferredMessages(s.ctx, []int64{4711}, nil)
	s.code(err, azservicebus.CodeNotFound)
	s.says(err, "4711")
}
