// Package servicebus tests a broker with azservicebus and its administration client.
package servicebus

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"peeklock/interop/broker"
)

// smallQueue is a queue with a small limit. The command line creates it, because administration clients count in
// megabytes.
const smallQueue = "small"

// once are options without retries, for tests of errors.
var once = &azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}}

var (
	shared *broker.Broker
	names  atomic.Int64
)

func TestMain(m *testing.M) {
	os.Exit(broker.Run(m, &shared, "--queue", smallQueue+",max-size=10KiB"))
}

// suite has the clients of the shared broker, and the entities of one test.
type suite struct {
	*testing.T
	ctx    context.Context
	client *azservicebus.Client
	admin  *admin.Client
}

func begin(t *testing.T) *suite {
	t.Parallel()
	return with(t, newClient(t, shared.ConnectionString(), nil))
}

func with(t *testing.T, client *azservicebus.Client) *suite {
	return &suite{T: t, ctx: t.Context(), client: client, admin: newAdmin(t, shared.ConnectionString())}
}

func newClient(t *testing.T, connectionString string, options *azservicebus.ClientOptions) *azservicebus.Client {
	client, err := azservicebus.NewClientFromConnectionString(connectionString, options)
	must(t, err)
	t.Cleanup(func() { _ = client.Close(context.Background()) })
	return client
}

// newAdmin creates an administration client. It uses HTTPS at the address of the connection string, because every port
// of the broker accepts TLS; the user has to provide the certificate.
func newAdmin(t *testing.T, connectionString string) *admin.Client {
	config, err := shared.TLSConfig()
	must(t, err)
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	options := admin.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: transport}}}
	client, err := admin.NewClientFromConnectionString(connectionString, &options)
	must(t, err)
	return client
}

// name returns a name that no other test has.
func (s *suite) name() string {
	test := strings.NewReplacer("/", "-", "_", "-").Replace(strings.TrimPrefix(s.Name(), "Test"))
	return fmt.Sprintf("%s-%d", test, names.Add(1))
}

// queue creates a queue; nil means the service's defaults with a lock that outlasts a slow test.
func (s *suite) queue(properties *admin.QueueProperties) string {
	s.Helper()
	if properties == nil {
		properties = &admin.QueueProperties{}
	}
	if properties.LockDuration == nil {
		properties.LockDuration = to.Ptr("PT5M")
	}
	name := s.name()
	_, err := s.admin.CreateQueue(s.ctx, name, &admin.CreateQueueOptions{Properties: properties})
	s.must(err)
	return name
}

func (s *suite) sender(entity string) *azservicebus.Sender {
	s.Helper()
	sender, err := s.client.NewSender(entity, nil)
	s.must(err)
	return sender
}

func (s *suite) receiver(queue string, options *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	s.Helper()
	receiver, err := s.client.NewReceiverForQueue(queue, options)
	s.must(err)
	return receiver
}

// send sends one message for each body.
func (s *suite) send(entity string, bodies ...string) {
	s.Helper()
	sender := s.sender(entity)
	for _, body := range bodies {
		s.must(sender.SendMessage(s.ctx, &azservicebus.Message{Body: []byte(body)}, nil))
	}
}

type receiver interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
}

// receive waits for exactly `count` messages.
func (s *suite) receive(from receiver, count int) []*azservicebus.ReceivedMessage {
	s.Helper()
	var received []*azservicebus.ReceivedMessage
	for len(received) < count {
		messages, err := from.ReceiveMessages(s.ctx, count-len(received), nil)
		s.must(err)
		received = append(received, messages...)
	}
	return received
}

func (s *suite) receiveOne(from receiver) *azservicebus.ReceivedMessage {
	s.Helper()
	return s.receive(from, 1)[0]
}

// peek returns up to `count` messages.
func (s *suite) peek(receiver *azservicebus.Receiver, count int) []*azservicebus.ReceivedMessage {
	s.Helper()
	messages, err := receiver.PeekMessages(s.ctx, count, nil)
	s.must(err)
	if len(messages) == 0 {
		s.Fatal("there is no message to peek at")
	}
	return messages
}

func (s *suite) counts(queue string) admin.QueueRuntimeProperties {
	s.Helper()
	response, err := s.admin.GetQueueRuntimeProperties(s.ctx, queue, nil)
	s.must(err)
	return response.QueueRuntimeProperties
}

func (s *suite) isEmpty(queue string) {
	s.Helper()
	equal(s.T, "messages left", s.counts(queue).TotalMessageCount, 0)
}

// says asserts that an error contains each of the texts.
func (s *suite) says(err error, texts ...string) {
	s.Helper()
	if err == nil {
		s.Fatal("there is no error")
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			s.Fatalf("%q is not in: %s", text, err)
		}
	}
}

// code asserts the SDK's own error with its code.
func (s *suite) code(err error, code azservicebus.Code) {
	s.Helper()
	var typed *azservicebus.Error
	if !errors.As(err, &typed) {
		s.Fatalf("%T is not the SDK's own error: %v", err, err)
	}
	equal(s.T, "code", typed.Code, code)
}

func (s *suite) must(err error) {
	s.Helper()
	must(s.T, err)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t *testing.T, what string, found, expected T) {
	t.Helper()
	if found != expected {
		t.Fatalf("%s is %v, not %v", what, found, expected)
	}
}

func bodies(messages []*azservicebus.ReceivedMessage) string {
	var all []string
	for _, message := range messages {
		all = append(all, string(message.Body))
	}
	return strings.Join(all, " ")
}
