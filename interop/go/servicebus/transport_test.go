package servicebus

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/coder/websocket"

	"peeklock/interop/broker"
)

func (s *suite) roundTrip(client *azservicebus.Client) {
	s.Helper()
	s.client = client
	queue := s.queue(nil)
	s.send(queue, "there and back")
	receiver := s.receiver(queue, nil)
	message := s.receiveOne(receiver)
	equal(s.T, "body", string(message.Body), "there and back")
	s.must(receiver.CompleteMessage(s.ctx, message, nil))
	s.isEmpty(queue)
}

func (s *suite) tls() *tls.Config {
	s.Helper()
	config, err := shared.TLSConfig()
	s.must(err)
	return config
}

// named sets the server name for the certificate. With a port in the connection string, a user must do so: otherwise
// the SDK requests the host with its port, which is no valid name, and TLS fails with "illegal parameter".
func named(config *tls.Config) *tls.Config {
	config.ServerName = "localhost"
	return config
}

func TestMessagesPassOverTLSWithTheBrokersCertificate(t *testing.T) {
	s := begin(t)
	s.roundTrip(newClient(t, shared.SecureConnectionString(), &azservicebus.ClientOptions{TLSConfig: named(s.tls())}))
}

func TestTLSWithoutTheCertificateIsRejected(t *testing.T) {
	s := begin(t)
	options := &azservicebus.ClientOptions{TLSConfig: named(&tls.Config{}), RetryOptions: once.RetryOptions}
	sender, err := newClient(t, shared.SecureConnectionString(), options).NewSender("any", nil)
	s.must(err)
	err = sender.SendMessage(s.ctx, &azservicebus.Message{}, nil)
	s.code(err, azservicebus.CodeConnectionLost)
	s.says(err, "certificate")
}

// A custom endpoint is for proxies: the client dials it, and still names the namespace of the connection string.
func TestACustomEndpointIsDialled(t *testing.T) {
	s := begin(t)
	options := &azservicebus.ClientOptions{TLSConfig: named(s.tls()), CustomEndpoint: shared.TLSAddress()}
	s.roundTrip(newClient(t, broker.ConnectionString("localhost", broker.KeyName, broker.Key), options))
}

func TestMessagesPassOverWebSocket(t *testing.T) {
	s := begin(t)
	transport := &http.Transport{TLSClientConfig: s.tls()}
	t.Cleanup(transport.CloseIdleConnections)
	dial := func(ctx context.Context, arguments azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
		options := &websocket.DialOptions{Subprotocols: []string{"amqp"}, HTTPClient: &http.Client{Transport: transport}}
		socket, _, err := websocket.Dial(ctx, arguments.Host, options)
		if err != nil {
			return nil, err
		}
		return websocket.NetConn(context.Background(), socket, websocket.MessageBinary), nil
	}
	connectionString := broker.ConnectionString(shared.HTTPSAddress(), broker.KeyName, broker.Key)
	s.roundTrip(newClient(t, connectionString, &azservicebus.ClientOptions{NewWebSocketConn: dial}))
}
