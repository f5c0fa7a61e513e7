package peeklock.frameworks;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;

/** Reads with the SDK of Service Bus the messages that a framework has stored in the broker. */
final class Sdk {
    private Sdk() { }

    static ServiceBusClientBuilder builder() {
        return new ServiceBusClientBuilder().connectionString(Broker.shared().connectionString());
    }
}
