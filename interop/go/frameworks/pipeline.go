// Package frameworks is a small program with Redpanda Connect: it receives orders from a queue, changes them and sends
// them to another queue.
package frameworks

import (
	"context"
	"log/slog"

	"github.com/redpanda-data/benthos/v4/public/service"

	// The mapping and the outputs that the pipeline uses.
	_ "github.com/redpanda-data/benthos/v4/public/components/pure"
	_ "github.com/redpanda-data/connect/v4/public/components/amqp1"
)

// pipeline is a user's configuration. The URL contains the key's name and secret, which become SASL PLAIN. An order
// that is no JSON cannot be changed; `reject_errored` returns it to its queue, where it becomes a dead letter.
const pipeline = `
input:
  amqp_1:
    urls: [ "${PLACE}" ]
    source_address: "${FROM}"
    azure_renew_lock: ${RENEW:false}
    tls: { enabled: ${TLS:false}, root_cas_file: "${CERTIFICATE:}" }
pipeline:
  processors:
    - mapping: |
        root = this
        root.total = this.price * this.count
        meta order = this.id.string()
output:
  reject_errored:
    amqp_1:
      urls: [ "${PLACE}" ]
      target_address: "${TO}"
      application_properties_map: 'root.order = meta("order")'
      metadata: { exclude_prefixes: [ "" ] }
      tls: { enabled: ${TLS:false}, root_cas_file: "${CERTIFICATE:}" }
`

// Run moves orders until the context ends. Settings fill the placeholders of the pipeline; `work` runs before each
// order is passed on.
func Run(ctx context.Context, settings map[string]string, log *slog.Logger, work func(context.Context) error) error {
	builder := service.NewEnvironment().Clone()
	err := builder.RegisterProcessor("work", service.NewConfigSpec(), func(*service.ParsedConfig, *service.Resources) (service.Processor, error) {
		return worker(work), nil
	})
	if err != nil {
		return err
	}
	stream := builder.NewStreamBuilder()
	stream.SetEnvVarLookupFunc(func(name string) (string, bool) {
		value, ok := settings[name]
		return value, ok
	})
	stream.SetLogger(log)
	if err := stream.SetYAML(pipeline); err != nil {
		return err
	}
	if err := stream.AddProcessorYAML("work: {}"); err != nil {
		return err
	}
	running, err := stream.Build()
	if err != nil {
		return err
	}
	return running.Run(ctx)
}

type worker func(context.Context) error

// Process passes the order on after the work.
func (w worker) Process(ctx context.Context, order *service.Message) (service.MessageBatch, error) {
	return service.MessageBatch{order}, w(ctx)
}

// Close has nothing to close.
func (w worker) Close(context.Context) error { return nil }
