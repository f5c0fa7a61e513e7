package servicebus

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func TestMessagesOfEverySizeArrive(t *testing.T) {
	s := begin(t)
	queue := s.queue(&admin.QueueProperties{MaxMessageSizeInKilobytes: to.Ptr(int64(102400))})
	sender, receiver := s.sender(queue), s.receiver(queue, nil)
	// The limit counts the whole message; a kilobyte is enough for everything but the body.
	for _, size := range []int{0, 1, 255, 256, 65536, 1 << 20, 20 << 20, 100<<20 - 1024} {
		body := make([]byte, size)
		_, _ = rand.Read(body)
		s.must(sender.SendMessage(s.ctx, &azservicebus.Message{Body: body}, nil))
		message := s.receiveOne(receiver)
		equal(t, fmt.Sprintf("a body of %d bytes is the same", size), bytes.Equal(message.Body, body), true)
		s.must(receiver.CompleteMessage(s.ctx, message, nil))
	}
	s.isEmpty(queue)
}
