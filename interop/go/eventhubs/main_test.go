package eventhubs

import (
	"os"
	"testing"

	"peeklock/interop/broker"
)

var shared *broker.Broker

// TestMain runs a worker in a process that a test started in order to kill it; else it runs the tests.
func TestMain(m *testing.M) {
	if place := os.Getenv(workerVariable); place != "" {
		work(place)
		return
	}
	os.Exit(broker.Run(m, &shared))
}
