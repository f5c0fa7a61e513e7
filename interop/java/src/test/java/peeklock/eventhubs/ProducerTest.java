package peeklock.eventhubs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.eventhubs.EventData;
import com.azure.messaging.eventhubs.EventDataBatch;
import com.azure.messaging.eventhubs.EventHubBufferedProducerClient;
import com.azure.messaging.eventhubs.EventHubBufferedProducerClientBuilder;
import com.azure.messaging.eventhubs.EventHubConsumerClient;
import com.azure.messaging.eventhubs.EventHubProducerAsyncClient;
import com.azure.messaging.eventhubs.EventHubProducerClient;
import com.azure.messaging.eventhubs.EventHubProperties;
import com.azure.messaging.eventhubs.PartitionProperties;
import com.azure.messaging.eventhubs.models.CreateBatchOptions;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.messaging.eventhubs.models.SendOptions;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import peeklock.Broker;

class ProducerTest {
    @Test
    void aBatchKeepsItsOrderAndAllPropertiesOfItsEvents() {
        String hub = Hubs.create(1);
        Instant begin = Instant.now().minusSeconds(1);
        EventData event = new EventData("first").setContentType("text/plain").setMessageId("m-1").setCorrelationId("c-1");
        event.getProperties().put("text", "äöü");
        event.getProperties().put("number", 42L);
        event.getProperties().put("truth", true);
        event.getProperties().put("fraction", 1.5);
        try (EventHubProducerClient producer = Hubs.client(hub).buildProducerClient()) {
            EventDataBatch batch = producer.createBatch();
            assertTrue(batch.tryAdd(event));
            assertTrue(batch.tryAdd(new EventData("second")));
            assertTrue(batch.tryAdd(new EventData(new byte[0])));
            producer.send(batch);
        }
        List<EventData> events = Hubs.read(hub, "0", 3);
        assertEquals(List.of("first", "second", ""), Hubs.bodies(events));
        EventData first = events.get(0);
        assertEquals("text/plain", first.getContentType());
        assertEquals("m-1", first.getMessageId());
        assertEquals("c-1", first.getCorrelationId());
        assertEquals("äöü", first.getProperties().get("text"));
        assertEquals(42L, first.getProperties().get("number"));
        assertEquals(true, first.getProperties().get("truth"));
        assertEquals(1.5, first.getProperties().get("fraction"));
        assertEquals(List.of(0L, 1L, 2L), events.stream().map(EventData::getSequenceNumber).toList());
        assertTrue(first.getEnqueuedTime().isAfter(begin) && first.getOffsetString() != null);
    }

    @Test
    void eventsOfOneKeyStayTogetherInOrder() {
        String hub = Hubs.create(4);
        try (EventHubProducerClient producer = Hubs.client(hub).buildProducerClient()) {
            for (int number = 0; number < 8; number++) {
                EventDataBatch batch = producer.createBatch(new CreateBatchOptions().setPartitionKey("key-" + number % 2));
                assertTrue(batch.tryAdd(new EventData("event " + number)));
                producer.send(batch);
            }
            producer.send(List.of(new EventData("event 8")), new SendOptions().setPartitionKey("key-0"));
            List<EventData> all = new ArrayList<>();
            try (EventHubConsumerClient consumer = Hubs.client(hub).buildConsumerClient()) {
                for (String partition : producer.getPartitionIds()) {
                    PartitionProperties properties = producer.getPartitionProperties(partition);
                    if (!properties.isEmpty()) {
                        int count = (int) properties.getLastEnqueuedSequenceNumber() + 1;
                        all.addAll(Hubs.read(consumer, partition, count, EventPosition.earliest()));
                    }
                }
            }
            for (String key : List.of("key-0", "key-1")) {
                int residue = key.endsWith("0") ? 0 : 1;
                List<String> expected = IntStream.rangeClosed(0, 8).filter(number -> number % 2 == residue).mapToObj(number -> "event " + number).toList();
                assertEquals(expected, Hubs.bodies(all.stream().filter(event -> key.equals(event.getPartitionKey())).toList()));
            }
            assertEquals(9, all.size());
        }
    }

    @Test
    void aPartitionCanBeNamed() {
        String hub = Hubs.create(3);
        try (EventHubProducerClient producer = Hubs.client(hub).buildProducerClient()) {
            for (String partition : producer.getPartitionIds()) {
                Hubs.publish(producer, partition, "for " + partition);
            }
            producer.send(List.of(new EventData("again")), new SendOptions().setPartitionId("2"));
        }
        assertEquals(List.of("for 0"), Hubs.bodies(Hubs.read(hub, "0", 1)));
        assertEquals(List.of("for 1"), Hubs.bodies(Hubs.read(hub, "1", 1)));
        assertEquals(List.of("for 2", "again"), Hubs.bodies(Hubs.read(hub, "2", 2)));
    }

    @Test
    void withoutAKeyEveryPartitionGetsEvents() {
        String hub = Hubs.create(2);
        try (EventHubProducerAsyncClient producer = Hubs.client(hub).buildAsyncProducerClient()) {
            for (int number = 0; number < 8; number++) {
                producer.send(List.of(new EventData("event"))).block(Hubs.PATIENCE);
            }
            for (String partition : List.of("0", "1")) {
                assertFalse(producer.getPartitionProperties(partition).block(Hubs.PATIENCE).isEmpty(), partition);
            }
        }
    }

    @Test
    void aFullBatchRejectsMoreAndIsSent() {
        String hub = Hubs.create(1);
        try (EventHubProducerClient producer = Hubs.client(hub).buildProducerClient()) {
            EventDataBatch batch = producer.createBatch();
            assertEquals(1024 * 1024, batch.getMaxSizeInBytes());
            while (batch.tryAdd(new EventData(new byte[10_000]))) {
                assertTrue(batch.getSizeInBytes() <= batch.getMaxSizeInBytes());
            }
            assertTrue(batch.getCount() > 95, "events in the batch: " + batch.getCount());
            producer.send(batch);
            assertEquals(batch.getCount() - 1, producer.getPartitionProperties("0").getLastEnqueuedSequenceNumber());

            EventDataBatch small = producer.createBatch(new CreateBatchOptions().setMaximumSizeInBytes(300));
            assertTrue(small.tryAdd(new EventData(new byte[200])));
            assertFalse(small.tryAdd(new EventData(new byte[200])));
        }
    }

    @Test
    void anEventThatIsTooLargeIsRejected() {
        String hub = Hubs.create(1);
        try (EventHubProducerClient producer = Hubs.client(hub).buildProducerClient()) {
            Throwable inBatch = assertThrows(AmqpException.class, () -> producer.createBatch().tryAdd(new EventData(new byte[1024 * 1024])));
            assertEquals(AmqpErrorCondition.LINK_PAYLOAD_SIZE_EXCEEDED, Hubs.amqp(inBatch).getErrorCondition());
            // The SDK makes at most two batches of a list.
            List<EventData> events = Collections.nCopies(5, new EventData(new byte[500_000]));
            Throwable inList = assertThrows(AmqpException.class, () -> producer.send(events));
            assertEquals(AmqpErrorCondition.LINK_PAYLOAD_SIZE_EXCEEDED, Hubs.amqp(inList).getErrorCondition());
            assertTrue(producer.getPartitionProperties("0").isEmpty());
            Hubs.publish(producer, "0", "the producer goes on");
        }
    }

    @Test
    void aBufferedProducerSendsItsQueue() {
        String hub = Hubs.create(2);
        Set<String> sent = Collections.synchronizedSet(new TreeSet<>());
        List<Throwable> failures = Collections.synchronizedList(new ArrayList<>());
        EventHubBufferedProducerClient producer = new EventHubBufferedProducerClientBuilder()
            .connectionString(Broker.shared().connectionString(), hub)
            .maxWaitTime(Duration.ofMillis(100))
            .onSendBatchSucceeded(success -> success.getEvents().forEach(event -> sent.add(event.getBodyAsString())))
            .onSendBatchFailed(failure -> failures.add(failure.getThrowable()))
            .buildClient();
        try {
            for (int number = 0; number < 20; number++) {
                producer.enqueueEvent(new EventData("any " + number));
                producer.enqueueEvent(new EventData("one " + number), new SendOptions().setPartitionId("1"));
            }
            producer.flush();
            Hubs.until(() -> sent.size() == 40 || !failures.isEmpty(), "all events to be sent");
        } finally {
            producer.close();
        }
        assertEquals(List.of(), failures);
        try (EventHubConsumerClient consumer = Hubs.client(hub).buildConsumerClient()) {
            Set<String> read = new TreeSet<>();
            for (String partition : List.of("0", "1")) {
                int count = (int) consumer.getPartitionProperties(partition).getLastEnqueuedSequenceNumber() + 1;
                List<String> bodies = count == 0 ? List.of() : Hubs.bodies(Hubs.read(consumer, partition, count, EventPosition.earliest()));
                assertTrue(partition.equals("1") || bodies.stream().noneMatch(body -> body.startsWith("one")));
                read.addAll(bodies);
            }
            assertEquals(sent, read);
        }
    }

    @Test
    void hubsAndPartitionsHaveProperties() {
        String hub = Hubs.create(3);
        Hubs.publish(hub, "1", "first", "second");
        try (EventHubConsumerClient consumer = Hubs.client(hub).buildConsumerClient()) {
            EventHubProperties properties = consumer.getEventHubProperties();
            assertEquals(hub, properties.getName());
            assertTrue(properties.getCreatedAt().isAfter(Instant.now().minus(Duration.ofHours(1))));
            assertEquals(List.of("0", "1", "2"), properties.getPartitionIds().stream().toList());
            assertTrue(consumer.getPartitionProperties("0").isEmpty());
            assertEquals(-1, consumer.getPartitionProperties("0").getLastEnqueuedSequenceNumber());
            PartitionProperties written = consumer.getPartitionProperties("1");
            assertEquals(hub, written.getEventHubName());
            assertEquals("1", written.getId());
            assertEquals(0, written.getBeginningSequenceNumber());
            assertEquals(1, written.getLastEnqueuedSequenceNumber());
            EventData last = Hubs.read(consumer, "1", 2, EventPosition.earliest()).get(1);
            assertEquals(last.getOffsetString(), written.getLastEnqueuedOffset());
            assertEquals(last.getEnqueuedTime(), written.getLastEnqueuedTime());
        }
    }
}
