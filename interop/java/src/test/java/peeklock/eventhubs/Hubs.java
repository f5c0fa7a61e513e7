package peeklock.eventhubs;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.eventhubs.EventData;
import com.azure.messaging.eventhubs.EventDataBatch;
import com.azure.messaging.eventhubs.EventHubClientBuilder;
import com.azure.messaging.eventhubs.EventHubConsumerClient;
import com.azure.messaging.eventhubs.EventHubProducerClient;
import com.azure.messaging.eventhubs.models.CreateBatchOptions;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.messaging.eventhubs.models.PartitionEvent;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.Base64;
import java.util.List;
import java.util.function.BooleanSupplier;
import peeklock.Broker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** Creates hubs with unique names, publishes to them and reads them. */
final class Hubs {
    static final String GROUP = EventHubClientBuilder.DEFAULT_CONSUMER_GROUP_NAME;
    static final Duration PATIENCE = Duration.ofSeconds(120);

    private Hubs() {
    }


    static String create(int partitions) {
        return create(Broker.shared(), partitions);
    }

    static String create(Broker broker, int partitions) {
        String name = Broker.name("hub");
        api(broker, "PUT", name, "{\"partitionCount\": " + partitions + "}");
        return name;
    }

    /** Calls the broker's own API below the path of hubs, and returns the body of the answer. */
    static String api(Broker broker, String method, String path, String body) {
        String login = Broker.KEY_NAME + ":" + Broker.KEY;
        HttpRequest request = HttpRequest.newBuilder(URI.create("http://" + broker.amqp() + "/api/hubs/" + path))
            .header("Authorization", "Basic " + Base64.getEncoder().encodeToString(login.getBytes()))
            .header("Content-Type", "application/json")
            .method(method, HttpRequest.BodyPublishers.ofString(body))
            .build();
        // The shared broker sets the JVM's trust store; no client may load the default one before.
        Broker.shared();
        try {
            HttpResponse<String> response = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
            assertEquals(2, response.statusCode() / 100, response.body());
            return response.body();
        } catch (Exception problem) {
            throw new IllegalStateException(problem);
        }
    }

    static EventHubClientBuilder client(String hub) {
        return client(Broker.shared().connectionString(), hub);
    }

    /** Creates a client without retries, so that tests see the first error. */
    static EventHubClientBuilder client(String connectionString, String hub) {
        return new EventHubClientBuilder()
            .connectionString(connectionString, hub)
            .consumerGroup(GROUP)
            .retryOptions(new AmqpRetryOptions().setMaxRetries(0).setTryTimeout(PATIENCE));
    }

    static void publish(String hub, String partition, String... bodies) {
        try (EventHubProducerClient producer = client(hub).buildProducerClient()) {
            publish(producer, partition, bodies);
        }
    }

    static void publish(EventHubProducerClient producer, String partition, String... bodies) {
        EventDataBatch batch = producer.createBatch(new CreateBatchOptions().setPartitionId(partition));
        for (String body : bodies) {
            assertTrue(batch.tryAdd(new EventData(body)));
        }
        producer.send(batch);
    }

    /** Reads exactly this many events of one partition. */
    static List<EventData> read(EventHubConsumerClient consumer, String partition, int count, EventPosition position) {
        List<EventData> events = consumer.receiveFromPartition(partition, count, position, PATIENCE).stream()
            .map(PartitionEvent::getData)
            .toList();
        assertEquals(count, events.size(), "events " + bodies(events));
        return events;
    }

    static List<EventData> read(String hub, String partition, int count) {
        try (EventHubConsumerClient consumer = client(hub).buildConsumerClient()) {
            return read(consumer, partition, count, EventPosition.earliest());
        }
    }

    static List<String> bodies(List<EventData> events) {
        return events.stream().map(EventData::getBodyAsString).toList();
    }

    /** Returns the SDK's own exception among the causes. */
    static AmqpException amqp(Throwable problem) {
        for (Throwable cause = problem; cause != null; cause = cause.getCause()) {
            if (cause instanceof AmqpException found) {
                return found;
            }
        }
        throw new AssertionError("no AmqpException", problem);
    }

    static void assertRefused(AmqpErrorCondition condition, String sentence, Throwable problem) {
        AmqpException refusal = amqp(problem);
        assertEquals(condition, refusal.getErrorCondition(), refusal.toString());
        assertTrue(refusal.getMessage().contains(sentence), refusal.getMessage());
    }

    static void until(BooleanSupplier condition, String what) {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!condition.getAsBoolean()) {
            assertTrue(System.nanoTime() < deadline, "timed out waiting for: " + what);
            try {
                Thread.sleep(200);
            } catch (InterruptedException stop) {
                throw new IllegalStateException(stop);
            }
        }
    }
}
