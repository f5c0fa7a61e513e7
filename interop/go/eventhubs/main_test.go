package eventhubs

import (
	"os"
	"testing"

	"peeklock/interop/broker"
)

var shared *broker.Broker

// TestMain makes a worker of a process that one of the tests started, to be killed; else it runs the tests.
func TestMain(m *testing.M) {
	if place := os.Getenv(workerVariable); place != "" {
		work(place)
		return
	}
	os.Exit(broker.Run(m, &shared))
}
