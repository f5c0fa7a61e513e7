// Package broker starts a broker for tests, reads its addresses from its output, and stops it by its process id.
package broker

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// KeyName names the default key of a broker.
	KeyName = "RootManageSharedAccessKey"
	// Key is the secret of the default key.
	Key = "SAS_KEY_VALUE"

	binaryVariable = "PEEKLOCK_BIN"
	startTimeout   = 60 * time.Second
	stopTimeout    = 30 * time.Second
)

// Broker is one broker process with its data folder. It may be killed and restarted at the same address.
type Broker struct {
	folder    string
	arguments []string
	labels    map[string]string
	process   *exec.Cmd
	ended     chan struct{}
}

// New describes a broker that stores everything in `folder` and listens on free ports, unless the arguments of `serve`
// name others.
func New(folder string, arguments ...string) *Broker {
	places := []string{"--data", filepath.Join(folder, "data")}
	for _, place := range []string{"--listen", "--listen-tls", "--http", "--https", "--blob-port", "--queue-port"} {
		if !slices.Contains(arguments, place) {
			places = append(places, place, "127.0.0.1:0")
		}
	}
	return &Broker{folder: folder, arguments: append(places, arguments...)}
}

// Start starts the process and returns when the broker prints that it is ready.
func (b *Broker) Start() error {
	binary := os.Getenv(binaryVariable)
	if binary == "" {
		return fmt.Errorf("%s does not name the broker to test; run `cargo xtask test --only go`", binaryVariable)
	}
	log, err := os.OpenFile(b.LogPath(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	b.process = exec.Command(binary, append([]string{"serve"}, b.arguments...)...)
	b.process.Stderr = log
	// A pipe of our own: Wait would close the command's pipe before all output is read.
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	b.process.Stdout = writer
	err = b.process.Start()
	writer.Close()
	if err != nil {
		reader.Close()
		return err
	}
	b.ended = make(chan struct{})
	go func() {
		_ = b.process.Wait()
		close(b.ended)
	}()
	return b.readLabels(reader)
}

// Stop requests an orderly end. A broker that does not stop in time is killed, and that is an error.
func (b *Broker) Stop() error {
	if err := b.process.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-b.ended:
		return nil
	case <-time.After(stopTimeout):
		b.Kill()
		return fmt.Errorf("the broker did not stop within %s of SIGTERM", stopTimeout)
	}
}

// Kill ends the process at once and waits until it is gone.
func (b *Broker) Kill() {
	_ = b.process.Process.Kill()
	<-b.ended
}

// LogPath is the path of the broker's log.
func (b *Broker) LogPath() string { return filepath.Join(b.folder, "broker.log") }

// Address serves plain AMQP, HTTP, HTTPS and WebSocket.
func (b *Broker) Address() string { return b.labels["AMQP"] }

// TLSAddress serves AMQP over TLS.
func (b *Broker) TLSAddress() string { return b.labels["AMQP over TLS"] }

// HTTPAddress serves management over HTTP.
func (b *Broker) HTTPAddress() string { return b.labels["HTTP"] }

// HTTPSAddress serves management over HTTPS.
func (b *Broker) HTTPSAddress() string { return b.labels["HTTPS"] }

// BlobAddress serves the Blob calls of checkpoint stores.
func (b *Broker) BlobAddress() string { return b.labels["Blob Storage"] }

// StorageConnectionString is the connection string that the broker prints for storage clients.
func (b *Broker) StorageConnectionString() string { return b.labels["Storage string"] }

// ConnectionString is for clients of the plain address.
func (b *Broker) ConnectionString() string {
	return ConnectionString(b.Address(), KeyName, Key) + "UseDevelopmentEmulator=true;"
}

// SecureConnectionString has the form of the service's connection strings, so that clients use TLS.
func (b *Broker) SecureConnectionString() string {
	return ConnectionString(b.TLSAddress(), KeyName, Key)
}

// Certificate is the file with the broker's self-signed certificate.
func (b *Broker) Certificate() string { return b.labels["Certificate"] }

// TLSConfig trusts only the broker's self-signed certificate.
func (b *Broker) TLSConfig() (*tls.Config, error) {
	pem, err := os.ReadFile(b.Certificate())
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", b.Certificate())
	}
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}

// ConnectionString names an address and a key.
func ConnectionString(address, keyName, key string) string {
	return fmt.Sprintf("Endpoint=sb://%s;SharedAccessKeyName=%s;SharedAccessKey=%s;", address, keyName, key)
}

func (b *Broker) readLabels(stdout io.ReadCloser) error {
	ready := make(chan map[string]string, 1)
	go passLabels(stdout, ready)
	select {
	case labels, ok := <-ready:
		if ok {
			b.labels = labels
			return nil
		}
	case <-time.After(startTimeout):
	}
	b.Kill()
	log, _ := os.ReadFile(b.LogPath())
	return fmt.Errorf("the broker is not ready; it logged:\n%s", log)
}

// passLabels reads to the end even without a listener: a full pipe would stop the broker.
func passLabels(stdout io.ReadCloser, ready chan<- map[string]string) {
	defer stdout.Close()
	defer close(ready)
	labels := map[string]string{}
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		label, value, _ := strings.Cut(lines.Text(), "  ")
		labels[label] = strings.TrimSpace(value)
		if label == "Ready" {
			ready <- labels
		}
	}
}

// FixedAddress finds a free port below the range from which the system takes ports of outgoing connections: a client
// that keeps dialling a port of that range while the broker is down can connect to itself.
func FixedAddress() (string, error) {
	for range 1000 {
		address := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000))
		if listener, err := net.Listen("tcp", address); err == nil {
			return address, listener.Close()
		}
	}
	return "", errors.New("no port is free")
}
