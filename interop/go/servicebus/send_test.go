package servicebus

import (
	"testing"
)

func TestAMessageArrives(t *testing.T) {
	s := begin(t)
	queue := s.queue(nil)
	s.send(queue, "hello")
	receiver := s.receiver(queue, nil)
	message := s.receiveOne(receiver)
	equal(t, "body", string(message.Body), "hello")
	s.must(receiver.CompleteMessage(s.ctx, message, nil))
}
