package servicebus

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func TestAMessageArrivesWithAllProperties(t *testing.T) {
	s := begin(t)
	queue := s.queue(nil)
	sent := &azservicebus.Message{
		Body:             []byte("hello"),
		ContentType:      to.Ptr("text/plain"),
		CorrelationID:    to.Ptr("correlation"),
		MessageID:        to.Ptr("message"),
		PartitionKey:     to.Ptr("key"),
		ReplyTo:          to.Ptr("answers"),
		ReplyToSessionID: to.Ptr("answer-session"),
		Subject:          to.Ptr("subject"),
		TimeToLive:       to.Ptr(time.Hour),
		To:               to.Ptr("destination"),
		ApplicationProperties: map[string]any{
			"text": "t", "number": int64(7), "ratio": 0.5, "flag": true, "small": int32(-3), "time": time.UnixMilli(1700000000000).UTC(),
		},
	}
	s.must(s.sender(queue).SendMessage(s.ctx, sent, nil))
	receiver := s.receiver(queue, nil)
	got := s.receiveOne(receiver)
	equal(t, "body", string(got.Body), "hello")
	equal(t, "content type", *got.ContentType, "text/plain")
	equal(t, "correlation", *got.CorrelationID, "correlation")
	equal(t, "message id", got.MessageID, "message")
	equal(t, "partition key", *got.PartitionKey, "key")
	equal(t, "reply to", *got.ReplyTo, "answers")
	equal(t, "reply to session", *got.ReplyToSessionID, "answer-session")
	equal(t, "subject", *got.Subject, "subject")
	equal(t, "time to live", *got.TimeToLive, time.Hour)
	equal(t, "to", *got.To, "destination")
	equal(t, "delivery count", got.DeliveryCount, 1)
	equal(t, "state", got.State, azservicebus.MessageStateActive)
	equal(t, "expiry", got.ExpiresAt.UTC(), got.EnqueuedTime.Add(time.Hour).UTC())
	if *got.SequenceNumber < 1 || !got.LockedUntil.After(*got.EnqueuedTime) {
		t.Fatalf("sequence number %d, locked until %s", *got.SequenceNumber, got.LockedUntil)
	}
	for key, value := range sent.ApplicationProperties {
		found := got.ApplicationProperties[key]
		if moment, is := found.(time.Time); is {
			found = moment.UTC()
		}
		equal(t, key, found, value)
	}
	s.must(receiver.CompleteMessage(s.ctx, got, nil))
	s.isEmpty(queue)
}

func TestABatchArrivesInOrder(t *testing.T) {
	s := begin(t)
	queue := s.queue(nil)
	sender := s.sender(queue)
	batch, err := sender.NewMessageBatch(s.ctx, nil)
	s.must(err)
	var expected []string
	for number := range 100 {
		expected = append(expected, fmt.Sprint(number))
		s.must(batch.AddMessage(&azservicebus.Message{Body: []byte(fmt.Sprint(number))}, nil))
	}
	s.must(sender.SendMessageBatch(s.ctx, batch, nil))
	equal(t, "order", bodies(s.receive(s.receiver(queue, nil), 100)), strings.Join(expected, " "))
}

func TestAFullBatchRejectsMoreAndCanBeSent(t *testing.T) {
	s := begin(t)
	queue := s.queue(nil)
	sender := s.sender(queue)
	batch, err := sender.NewMessageBatch(s.ctx, nil)
	s.must(err)
	body := make([]byte, 100_000)
	for err == nil {
		err = batch.AddMessage(&azservicebus.Message{Body: body}, nil)
	}
	if !errors.Is(err, azservicebus.ErrMessageTooLarge) {
		t.Fatal(err)
	}
	equal(t, "messages of a batch of 1 MiB", batch.NumMessages(), 10)
	s.must(sender.SendMessageBatch(s.ctx, batch, nil))
	s.receive(s.receiver(queue, nil), 10)
}

func TestBodiesOfEveryAMQPKindArrive(t *testing.T) {
	s := begin(t)
	queue := s.queue(nil)
	sender := s.sender(queue)
	kinds := []azservicebus.AMQPAnnotatedMessageBody{
		{Value: "a value"},
		{Sequence: [][]any{{"one", int64(2)}, {true}}},
		{Data: [][]byte{[]byte("two"), []byte("parts")}},
	}
	for _, kind := range kinds {
		s.must(sender.SendAMQPAnnotatedMessage(s.ctx, &azservicebus.AMQPAnnotatedMessage{
			Body:       kind,
			Footer:     map[any]any{"foot": "note"},
			Properties: &azservicebus.AMQPAnnotatedMessageProperties{MessageID: "id"},
		}, nil))
	}
	for number, message := range s.receive(s.receiver(queue, nil), 3) {
		equal(t, "body", fmt.Sprint(message.RawAMQPMessage.Body), fmt.Sprint(kinds[number]))
		equal(t, "footer", message.RawAMQPMessage.Footer["foot"], any("note"))
	}
}

func TestReceiveAndDeleteRemovesTheMessages(t *testing.T) {
	s := begin(t)
	queue := s.queue(nil)
	s.send(queue, "a", "b", "c")
	receiver := s.receiver(queue, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
	messages := s.receive(receiver, 3)
	equal(t, "bodies", bodies(messages), "a b c")
	s.isEmpty(queue)
	if err := receiver.CompleteMessage(s.ctx, messages[0], nil); err == nil {
		t.Fatal("a deleted message was completed")
	}
}

func TestCompetingReceiversGetEachMessageOnce(t *testing.T) {
	s := begin(t)
	queue := s.queue(nil)
	const count = 60
	taken := make(chan string, count)
	receivers := make(chan error, 3)
	for range 3 {
		receiver := s.receiver(queue, nil)
		go func() {
			for {
				messages, err := receiver.ReceiveMessages(s.ctx, 5, nil)
				if err != nil {
					receivers <- err
					return
				}
				for _, message := range messages {
					if err := receiver.CompleteMessage(s.ctx, message, nil); err != nil {
						receivers <- err
						return
					}
					taken <- string(message.Body)
				}
			}
		}()
	}
	for number := range count {
		s.send(queue, fmt.Sprint(number))
	}
	seen := map[string]bool{}
	for len(seen) < count {
		select {
		case body := <-taken:
			if seen[body] {
				t.Fatalf("%s was received twice", body)
			}
			seen[body] = true
		case err := <-receivers:
			t.Fatal(err)
		}
	}
	s.isEmpty(queue)
}
