package peeklock.frameworks;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;

/** Looks with the SDK of Service Bus at what a framework has left in the broker. */
final class Sdk {
    private Sdk() { }

    static ServiceBusClientBuilder builder() {
        return new ServiceBusClientBuilder().connectionString(Broker.shared().connectionString());
    }
}
