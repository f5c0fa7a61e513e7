package peeklock.frameworks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.messaging.eventhubs.checkpointstore.blob.BlobCheckpointStore;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.messaging.servicebus.models.SubQueue;
import com.azure.storage.blob.BlobContainerAsyncClient;
import com.azure.storage.blob.BlobServiceClientBuilder;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.camel.CamelContext;
import org.apache.camel.ConsumerTemplate;
import org.apache.camel.Exchange;
import org.apache.camel.ProducerTemplate;
import org.apache.camel.impl.DefaultCamelContext;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Mono;

/** Apache Camel with its components azure-servicebus and azure-eventhubs. */
class CamelTest {
    private static final long WAIT_MS = 120_000;

    private static CamelContext context;
    private static ProducerTemplate producer;
    private static ConsumerTemplate consumer;
    private static BlobContainerAsyncClient container;

    @BeforeAll
    static void start() throws Exception {
        Broker broker = Broker.shared();
        container = new BlobServiceClientBuilder().connectionString(broker.storageConnectionString()).buildAsyncClient()
                .getBlobContainerAsyncClient("camel-checkpoints");
        container.createIfNotExists().block();
        context = newContext(broker);
        context.addRoutes(new CamelRoutes());
        context.start();
        producer = context.createProducerTemplate();
        consumer = context.createConsumerTemplate();
    }

    private static CamelContext newContext(Broker broker) {
        CamelContext made = new DefaultCamelContext();
        made.getPropertiesComponent().addOverrideProperty("peeklock.connection", broker.connectionString());
        made.getRegistry().bind("checkpoints", new BlobCheckpointStore(container));
        made.getRegistry().bind("earliest", Map.of("0", EventPosition.earliest(), "1", EventPosition.earliest()));
        return made;
    }

    @AfterAll
    static void stop() {
        context.stop();
    }

    @Test
    void routeMovesMessagesFromQueueToQueue() {
        String out = "azure-servicebus:camel-in?connectionString=RAW({{peeklock.connection}})";
        producer.sendBodyAndHeader(out, "hello", "CamelAzureServiceBusApplicationProperties",
                new HashMap<>(Map.of("customer", "Ann")));
        try (var receiver = Sdk.builder().receiver().queueName("camel-out").buildClient()) {
            var message = receiver.receiveMessages(1, Duration.ofMillis(WAIT_MS)).iterator().next();
            assertEquals("hello again", message.getBody().toString());
            assertEquals("Ann", message.getApplicationProperties().get("customer"));
            receiver.complete(message);
        }
    }

    @Test
    void failedRouteDeadLettersAfterTheLastDelivery() {
        producer.sendBody("azure-servicebus:camel-broken?connectionString=RAW({{peeklock.connection}})", "?");
        try (var receiver = Sdk.builder().receiver().queueName("camel-broken").subQueue(SubQueue.DEAD_LETTER_QUEUE).buildClient()) {
            var message = receiver.receiveMessages(1, Duration.ofMillis(WAIT_MS)).iterator().next();
            assertEquals("MaxDeliveryCountExceeded", message.getDeadLetterReason());
            receiver.complete(message);
        }
    }

    @Test
    void subscriptionFeedsARoute() {
        producer.sendBody("azure-servicebus:camel-news?serviceBusType=topic&connectionString=RAW({{peeklock.connection}})", "rain");
        Exchange received = consumer.receive("seda:news", WAIT_MS);
        assertNotNull(received);
        assertEquals("rain", received.getMessage().getBody(String.class));
        // A consumer of a Camel exchange must mark it as done; only then is the message completed.
        consumer.doneUoW(received);
    }

    @Test
    void hubConsumerKeepsCheckpointsInBlobs() {
        Set<String> sent = new TreeSet<>(Set.of("1 degree", "2 degrees", "3 degrees"));
        sent.forEach(text -> producer.sendBody("direct:measure", text));
        Set<String> received = new TreeSet<>();
        while (received.size() < sent.size()) {
            Exchange event = consumer.receive("seda:measured", WAIT_MS);
            assertNotNull(event, "received only: " + received);
            received.add(event.getMessage().getBody(String.class));
            consumer.doneUoW(event);
        }
        assertEquals(sent, received);
        // The checkpoint is written after the route has processed the event.
        Mono<Boolean> checked = container.listBlobs().any(blob -> blob.getName().contains("/checkpoint/"));
        assertTrue(checked.repeat().any(found -> found).block(Duration.ofMillis(WAIT_MS)));
    }
}
