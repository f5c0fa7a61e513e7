package broker

import (
	"fmt"
	"os"
	"testing"
)

// Run is the TestMain of a package whose tests share one broker: it starts the broker, runs the tests, and stops it.
func Run(m *testing.M, shared **Broker, arguments ...string) int {
	folder, err := os.MkdirTemp("", "peeklock-go-")
	if err != nil {
		return failed(err)
	}
	defer os.RemoveAll(folder)
	broker := New(folder, arguments...)
	if err := broker.Start(); err != nil {
		return failed(err)
	}
	*shared = broker
	code := m.Run()
	if err := broker.Stop(); err != nil {
		return failed(err)
	}
	return code
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}
