package peeklock.eventhubs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.azure.core.amqp.AmqpTransportType;
import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.eventhubs.EventData;
import com.azure.messaging.eventhubs.EventHubClientBuilder;
import com.azure.messaging.eventhubs.EventHubConsumerClient;
import com.azure.messaging.eventhubs.EventHubProducerClient;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.messaging.eventhubs.models.SendOptions;
import java.util.List;
import org.junit.jupiter.api.Test;
import peeklock.Broker;

/** Transports to a hub other than plain AMQP, and the errors of clients without the rights. */
class AccessTest {
    private static void assertWorks(EventHubClientBuilder client) {
        try (EventHubProducerClient producer = client.buildProducerClient(); EventHubConsumerClient consumer = client.buildConsumerClient()) {
            String large = "x".repeat(500_000);
            Hubs.publish(producer, "0", "small", large);
            assertEquals(1, producer.getPartitionProperties("0").getLastEnqueuedSequenceNumber());
            assertEquals(List.of("small", large), Hubs.bodies(Hubs.read(consumer, "0", 2, EventPosition.earliest())));
        }
    }

    private static Throwable failureOfSending(EventHubClientBuilder client, SendOptions where) {
        try (EventHubProducerClient producer = client.buildProducerClient()) {
            return assertThrows(RuntimeException.class, () -> producer.send(List.of(new EventData("never")), where));
        }
    }

    private static Throwable failureOfReading(EventHubClientBuilder client, String partition, EventPosition position) {
        try (EventHubConsumerClient consumer = client.buildConsumerClient()) {
            return assertThrows(RuntimeException.class, () -> Hubs.read(consumer, partition, 1, position));
        }
    }

    @Test
    void eventsPassOverTls() {
        Broker broker = Broker.shared();
        assertWorks(Hubs.client(broker.tlsConnectionString(broker.amqps()), Hubs.create(1)));
    }

    @Test
    void eventsPassOverWebSocket() {
        Broker broker = Broker.shared();
        assertWorks(Hubs.client(broker.tlsConnectionString(broker.https()), Hubs.create(1)).transportType(AmqpTransportType.AMQP_WEB_SOCKETS));
    }

    /** The SDK uses TLS over WebSockets for emulators, too, and accepts any certificate. */
    @Test
    void eventsPassOverWebSocketToThePlainAddress() {
        assertWorks(Hubs.client(Hubs.create(1)).transportType(AmqpTransportType.AMQP_WEB_SOCKETS));
    }

    @Test
    void aCustomEndpointIsDialled() {
        Broker broker = Broker.shared();
        String elsewhere = broker.tlsConnectionString("localhost");
        assertWorks(Hubs.client(elsewhere, Hubs.create(1)).customEndpointAddress("sb://" + broker.amqps()));
    }

    @Test
    void aWrongKeyIsRejected() {
        String hub = Hubs.create(1);
        EventHubClientBuilder client = Hubs.client(Broker.shared().connectionString(Broker.KEY_NAME, "not the key"), hub);
        String sentence = "the signature does not fit";
        Hubs.assertRefused(AmqpErrorCondition.UNAUTHORIZED_ACCESS, sentence, failureOfSending(client, new SendOptions()));
        Hubs.assertRefused(AmqpErrorCondition.UNAUTHORIZED_ACCESS, sentence, failureOfReading(client, "0", EventPosition.earliest()));
        try (EventHubProducerClient producer = client.buildProducerClient()) {
            Throwable properties = assertThrows(RuntimeException.class, producer::getEventHubProperties);
            Hubs.assertRefused(AmqpErrorCondition.UNAUTHORIZED_ACCESS, sentence, properties);
        }
    }

    @Test
    void anUnknownHubIsNotFound() {
        EventHubClientBuilder client = Hubs.client(Broker.name("nothing"));
        String sentence = "peeklock hub create nothing-";
        for (Throwable problem : List.of(failureOfSending(client, new SendOptions()), failureOfReading(client, "0", EventPosition.earliest()))) {
            Hubs.assertRefused(AmqpErrorCondition.NOT_FOUND, sentence, problem);
            assertFalse(Hubs.amqp(problem).isTransient());
        }
        try (EventHubProducerClient producer = client.buildProducerClient()) {
            AmqpException properties = Hubs.amqp(assertThrows(RuntimeException.class, producer::getEventHubProperties));
            Hubs.assertRefused(AmqpErrorCondition.NOT_FOUND, sentence, properties);
        }
    }

    @Test
    void anUnknownPartitionIsRejected() {
        EventHubClientBuilder client = Hubs.client(Hubs.create(2));
        String sentence = "The specified partition is invalid for an EventHub partition sender or receiver. It should be between 0 and 1.";
        Throwable sending = failureOfSending(client, new SendOptions().setPartitionId("2"));
        Hubs.assertRefused(AmqpErrorCondition.ARGUMENT_OUT_OF_RANGE_ERROR, sentence, sending);
        Throwable reading = failureOfReading(client, "2", EventPosition.earliest());
        Hubs.assertRefused(AmqpErrorCondition.ARGUMENT_OUT_OF_RANGE_ERROR, sentence, reading);
    }

    @Test
    void anUnknownConsumerGroupIsNotFound() {
        EventHubClientBuilder client = Hubs.client(Hubs.create(1)).consumerGroup("nobody");
        Hubs.assertRefused(AmqpErrorCondition.NOT_FOUND, "nobody", failureOfReading(client, "0", EventPosition.earliest()));
    }

    @Test
    void aPositionBeyondTheEndIsRejected() {
        EventHubClientBuilder client = Hubs.client(Hubs.create(1));
        Throwable problem = failureOfReading(client, "0", EventPosition.fromSequenceNumber(1000));
        Hubs.assertRefused(AmqpErrorCondition.ARGUMENT_OUT_OF_RANGE_ERROR, "1000", problem);
    }

    @Test
    void aKeyPermitsItsRightsOnly() {
        String hub = Hubs.create(1);
        EventHubClientBuilder sender = Hubs.client(Broker.shared().connectionString("sender", policy(hub, "sender", "Send")), hub);
        EventHubClientBuilder listener = Hubs.client(Broker.shared().connectionString("listener", policy(hub, "listener", "Listen")), hub);
        try (EventHubProducerClient producer = sender.buildProducerClient(); EventHubConsumerClient consumer = listener.buildConsumerClient()) {
            Hubs.publish(producer, "0", "allowed");
            assertEquals(List.of("allowed"), Hubs.bodies(Hubs.read(consumer, "0", 1, EventPosition.earliest())));
        }
        Hubs.assertRefused(AmqpErrorCondition.UNAUTHORIZED_ACCESS, "Send", failureOfSending(listener, new SendOptions()));
        Hubs.assertRefused(AmqpErrorCondition.UNAUTHORIZED_ACCESS, "Listen", failureOfReading(sender, "0", EventPosition.earliest()));
    }

    /** Creates a policy of the hub with one right, and returns its key. */
    private static String policy(String hub, String name, String right) {
        String made = Hubs.api(Broker.shared(), "PUT", hub + "/policies/" + name, "{\"rights\": [\"" + right + "\"]}");
        return made.replaceFirst("(?s).*\"primaryKey\"\\s*:\\s*\"([^\"]*)\".*", "$1");
    }
}
