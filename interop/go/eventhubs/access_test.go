package eventhubs

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"
	"github.com/coder/websocket"

	"peeklock/interop/broker"
)

// A way is a transport from a client to the broker.
type way struct {
	place    string
	producer azeventhubs.ProducerClientOptions
	consumer azeventhubs.ConsumerClientOptions
}

// overTLS connects with TLS. It sets the server name for the certificate, because the SDK would use the port of the
// connection string as a part of the name.
func overTLS(t *testing.T) way {
	t.Helper()
	config, err := shared.TLSConfig()
	must(t, err)
	config.ServerName = "localhost"
	return way{
		place:    shared.SecureConnectionString(),
		producer: azeventhubs.ProducerClientOptions{TLSConfig: config},
		consumer: azeventhubs.ConsumerClientOptions{TLSConfig: config},
	}
}

type dialer = func(context.Context, azeventhubs.WebSocketConnParams) (net.Conn, error)

func overWebSocket(place string, dial dialer) way {
	return way{
		place:    place,
		producer: azeventhubs.ProducerClientOptions{NewWebSocketConn: dial},
		consumer: azeventhubs.ConsumerClientOptions{NewWebSocketConn: dial},
	}
}

func dial(ctx context.Context, address string, client *http.Client) (net.Conn, error) {
	options := &websocket.DialOptions{Subprotocols: []string{"amqp"}, HTTPClient: client}
	connection, _, err := websocket.Dial(ctx, address, options)
	if err != nil {
		return nil, err
	}
	// The connection outlives the call that opened it.
	return websocket.NetConn(context.Background(), connection, websocket.MessageBinary), nil
}

func (w way) works(t *testing.T) {
	t.Helper()
	h := newHub(t, 1)
	producer := h.producerWith(w.place, &w.producer)
	large := strings.Repeat("x", 500_000)
	h.send(producer, "0", "small")
	h.send(producer, "0", large)
	consumer := h.consumerWith(w.place, azeventhubs.DefaultConsumerGroup, &w.consumer)
	equalAll(t, "bodies", bodies(receive(t, partitionOf(t, consumer, "0", earliest, nil), 2)), []string{"small", large})
	shown, err := consumer.GetPartitionProperties(waiting(t), "0", nil)
	must(t, err)
	equal(t, "last number", shown.LastEnqueuedSequenceNumber, 1)
}

func TestEventsPassOverTLS(t *testing.T) {
	overTLS(t).works(t)
}

func TestEventsPassOverSecureWebSocket(t *testing.T) {
	config, err := shared.TLSConfig()
	must(t, err)
	transport := &http.Transport{TLSClientConfig: config}
	dialer := func(ctx context.Context, to azeventhubs.WebSocketConnParams) (net.Conn, error) {
		return dial(ctx, to.Host, &http.Client{Transport: transport})
	}
	overWebSocket(shared.SecureConnectionString(), dialer).works(t)
}

// The SDK always requests wss; a user without a certificate changes that in the dialer.
func TestEventsPassOverPlainWebSocket(t *testing.T) {
	dialer := func(ctx context.Context, to azeventhubs.WebSocketConnParams) (net.Conn, error) {
		return dial(ctx, strings.Replace(to.Host, "wss://", "ws://", 1), http.DefaultClient)
	}
	overWebSocket(shared.ConnectionString(), dialer).works(t)
}

func TestAnUntrustedCertificateIsRejected(t *testing.T) {
	h := newHub(t, 1)
	options := &azeventhubs.ProducerClientOptions{RetryOptions: impatient, TLSConfig: &tls.Config{ServerName: "localhost"}}
	producer := h.producerWith(shared.SecureConnectionString(), options)
	_, err := producer.NewEventDataBatch(waiting(t), nil)
	says(t, err, "certificate signed by unknown authority")
}

func TestAWrongKeyIsRejected(t *testing.T) {
	h := newHub(t, 1)
	wrong := broker.ConnectionString(shared.Address(), broker.KeyName, "not the key") + "UseDevelopmentEmulator=true;"
	producer := h.producerWith(wrong, nil)
	_, err := producer.NewEventDataBatch(waiting(t), nil)
	equal(t, "code", codeOf(err), azeventhubs.ErrorCodeUnauthorizedAccess)
	says(t, err, "the signature does not fit")
	_, err = producer.GetEventHubProperties(waiting(t), nil)
	says(t, err, "the signature does not fit")
	reader := partitionOf(t, h.consumerWith(wrong, azeventhubs.DefaultConsumerGroup, nil), "0", earliest, nil)
	_, err = reader.ReceiveEvents(waiting(t), 1, nil)
	equal(t, "code", codeOf(err), azeventhubs.ErrorCodeUnauthorizedAccess)
}

func TestAKeyPermitsItsRightsOnly(t *testing.T) {
	h := newHub(t, 1)
	sends, listens := h.policy("Send"), h.policy("Listen")
	h.send(h.producerWith(sends, nil), "0", "allowed")
	listener := h.consumerWith(listens, azeventhubs.DefaultConsumerGroup, nil)
	equalAll(t, "read", bodies(receive(t, partitionOf(t, listener, "0", earliest, nil), 1)), []string{"allowed"})

	_, err := h.producerWith(listens, nil).NewEventDataBatch(waiting(t), nil)
	equal(t, "code", codeOf(err), azeventhubs.ErrorCodeUnauthorizedAccess)
	says(t, err, "Send")
	reader := partitionOf(t, h.consumerWith(sends, azeventhubs.DefaultConsumerGroup, nil), "0", earliest, nil)
	_, err = reader.ReceiveEvents(waiting(t), 1, nil)
	equal(t, "code", codeOf(err), azeventhubs.ErrorCodeUnauthorizedAccess)
	says(t, err, "Listen")
}

// policy creates a key of the hub with one right, and returns a connection string with it.
func (h hub) policy(right string) string {
	h.t.Helper()
	path := "/policies/may-" + right
	h.apiBelow(path, http.MethodPut, `{"rights": ["`+right+`"]}`, nil)
	var shown struct{ PrimaryKey string }
	h.apiBelow(path, http.MethodGet, "", &shown)
	return broker.ConnectionString(h.broker.Address(), "may-"+right, shown.PrimaryKey) + "UseDevelopmentEmulator=true;"
}

// The clients have the SDK's own retries: the SDK does not retry these errors, and keeps their sentences.
func TestMissingEntitiesAreNotFound(t *testing.T) {
	h := newHub(t, 2)
	nowhere := hub{t, h.broker, "nowhere"}
	missing := []string{"404", "The messaging entity", "nowhere' could not be found", "peeklock hub create nowhere"}
	_, err := nowhere.producer(nil).NewEventDataBatch(waiting(t), nil)
	says(t, err, missing...)
	_, err = nowhere.producer(nil).GetEventHubProperties(waiting(t), nil)
	says(t, err, missing...)
	_, err = partitionOf(t, nowhere.consumer(nil), "0", earliest, nil).ReceiveEvents(waiting(t), 1, nil)
	says(t, err, missing...)
	group := h.consumerWith(h.broker.ConnectionString(), "no-group", nil)
	_, err = partitionOf(t, group, "0", earliest, nil).ReceiveEvents(waiting(t), 1, nil)
	refused(t, err, amqp.ErrCondNotFound, "no-group")
}

// refused asserts the condition and the sentences of an error that the SDK passes on unchanged.
func refused(t *testing.T, err error, condition amqp.ErrCond, sentences ...string) {
	t.Helper()
	says(t, err, sentences...)
	var typed *amqp.Error
	if !errors.As(err, &typed) {
		t.Fatalf("%#v", err)
	}
	equal(t, "condition", typed.Condition, condition)
}

func TestAMissingPartitionIsRejected(t *testing.T) {
	h := newHub(t, 2)
	const outOfRange = amqp.ErrCond("com.microsoft:argument-out-of-range")
	for _, partition := range []string{"2", "seven"} {
		_, err := h.producer(nil).NewEventDataBatch(waiting(t), &azeventhubs.EventDataBatchOptions{PartitionID: &partition})
		refused(t, err, outOfRange, "The specified partition is invalid", "It should be between 0 and 1")
		_, err = partitionOf(t, h.consumer(nil), partition, earliest, nil).ReceiveEvents(waiting(t), 1, nil)
		refused(t, err, outOfRange, "The specified partition is invalid", "It should be between 0 and 1")
	}
	// The SDK treats every unknown failure of this call as a lost connection.
	_, err := h.producer(&azeventhubs.ProducerClientOptions{RetryOptions: impatient}).GetPartitionProperties(waiting(t), "2", nil)
	equal(t, "code", codeOf(err), azeventhubs.ErrorCodeConnectionLost)
	says(t, err, "status code 400", "The specified partition is invalid")
}

func TestAHubThatIsDisabledForSendsRejectsThem(t *testing.T) {
	h := newHub(t, 1)
	producer := h.producer(nil)
	h.send(producer, "0", "first")
	h.api(http.MethodPut, `{"status": "send-disabled"}`, nil)
	batch, err := producer.NewEventDataBatch(waiting(t), nil)
	if err == nil {
		must(t, batch.AddEventData(&azeventhubs.EventData{Body: []byte("second")}, nil))
		err = producer.SendEventDataBatch(waiting(t), batch, nil)
	}
	says(t, err, "disabled")
	equalAll(t, "stored events", bodies(h.read("0", earliest, 1)), []string{"first"})
}
