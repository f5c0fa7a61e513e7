package peeklock.eventhubs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.messaging.eventhubs.EventData;
import com.azure.messaging.eventhubs.EventHubConsumerAsyncClient;
import com.azure.messaging.eventhubs.EventHubConsumerClient;
import com.azure.messaging.eventhubs.EventHubProducerClient;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.messaging.eventhubs.models.LastEnqueuedEventProperties;
import com.azure.messaging.eventhubs.models.PartitionEvent;
import com.azure.messaging.eventhubs.models.ReceiveOptions;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;
import peeklock.Broker;

class ConsumerTest {
    /** Returns positions in a partition with five events, and the number of the first event from each. */
    private static Map<EventPosition, Integer> positions(List<EventData> events) {
        Map<EventPosition, Integer> positions = new LinkedHashMap<>();
        positions.put(EventPosition.earliest(), 0);
        positions.put(EventPosition.fromSequenceNumber(1), 2);
        positions.put(EventPosition.fromSequenceNumber(2, true), 2);
        positions.put(EventPosition.fromSequenceNumber(0, false), 1);
        positions.put(EventPosition.fromOffsetString(events.get(2).getOffsetString()), 3);
        positions.put(EventPosition.fromOffset(events.get(3).getOffset()), 4);
        positions.put(EventPosition.fromEnqueuedTime(events.get(0).getEnqueuedTime().minusSeconds(60)), 0);
        // The first event after that time is in the second batch, which was written later than the first.
        positions.put(EventPosition.fromEnqueuedTime(events.get(2).getEnqueuedTime()), 3);
        return positions;
    }

    /** Creates a hub with two batches of different times. */
    private static String hubWithFiveEvents() {
        String hub = Hubs.create(1);
        try (EventHubProducerClient producer = Hubs.client(hub).buildProducerClient()) {
            Hubs.publish(producer, "0", "event 0", "event 1", "event 2");
            long first = producer.getPartitionProperties("0").getLastEnqueuedTime().toEpochMilli();
            Hubs.until(() -> System.currentTimeMillis() > first + 1, "the next millisecond");
            Hubs.publish(producer, "0", "event 3", "event 4");
        }
        return hub;
    }

    @Test
    void aReaderStartsAtEveryPosition() {
        String hub = hubWithFiveEvents();
        try (EventHubConsumerClient consumer = Hubs.client(hub).buildConsumerClient()) {
            positions(Hubs.read(hub, "0", 5)).forEach((position, first) -> {
                List<EventData> events = Hubs.read(consumer, "0", 5 - first, position);
                assertEquals("event " + first, events.get(0).getBodyAsString(), position.toString());
                assertEquals("event 4", events.get(4 - first).getBodyAsString(), position.toString());
            });
        }
    }

    @Test
    void anAsynchronousReaderStartsAtEveryPosition() {
        String hub = hubWithFiveEvents();
        try (EventHubConsumerAsyncClient consumer = Hubs.client(hub).buildAsyncConsumerClient()) {
            positions(Hubs.read(hub, "0", 5)).forEach((position, first) -> {
                List<PartitionEvent> events = consumer.receiveFromPartition("0", position).take(5 - first).collectList().block(Hubs.PATIENCE);
                assertEquals("event " + first, events.get(0).getData().getBodyAsString(), position.toString());
                assertEquals("event 4", events.get(4 - first).getData().getBodyAsString(), position.toString());
            });
        }
    }

    @Test
    void aReaderAtTheLatestPositionGetsOnlyLaterEvents() {
        String hub = Hubs.create(1);
        Hubs.publish(hub, "0", "old");
        try (Reading reading = Reading.start(hub, EventPosition.latest(), null);
            EventHubProducerClient producer = Hubs.client(hub).buildProducerClient()) {
            // The SDK does not report when the reader is attached, so events are sent until the reader receives some.
            Hubs.until(() -> {
                Hubs.publish(producer, "0", "new");
                return !reading.bodies().isEmpty();
            }, "an event");
            assertFalse(reading.bodies().contains("old"));
        }
    }

    @Test
    void laterEventsArriveToo() {
        String hub = Hubs.create(1);
        try (Reading reading = Reading.start(hub, EventPosition.earliest(), null);
            EventHubProducerClient producer = Hubs.client(hub).buildProducerClient()) {
            List<String> written = new ArrayList<>();
            for (int number = 0; number < 20; number++) {
                written.add("event " + number);
                Hubs.publish(producer, "0", "event " + number);
            }
            reading.await(20);
            assertEquals(written, reading.bodies());
        }
    }

    @Test
    void oneReaderReadsAllPartitions() {
        String hub = Hubs.create(4);
        for (String partition : List.of("0", "1", "2", "3")) {
            Hubs.publish(hub, partition, "a" + partition, "b" + partition);
        }
        try (EventHubConsumerAsyncClient consumer = Hubs.client(hub).buildAsyncConsumerClient()) {
            List<PartitionEvent> events = consumer.receive(true).take(8).collectList().block(Hubs.PATIENCE);
            TreeSet<String> read = new TreeSet<>();
            for (PartitionEvent event : events) {
                String body = event.getData().getBodyAsString();
                assertEquals(body.substring(1), event.getPartitionContext().getPartitionId());
                read.add(body);
            }
            assertEquals(8, read.size());
        }
    }

    @Test
    void aReaderCanRequestTheLastEventsProperties() {
        String hub = hubWithFiveEvents();
        try (EventHubConsumerClient consumer = Hubs.client(hub).buildConsumerClient()) {
            PartitionEvent event = consumer.receiveFromPartition("0", 1, EventPosition.earliest(), Hubs.PATIENCE,
                new ReceiveOptions().setTrackLastEnqueuedEventProperties(true)).stream().findFirst().orElseThrow();
            LastEnqueuedEventProperties last = event.getLastEnqueuedEventProperties();
            assertEquals(4, last.getSequenceNumber());
            assertEquals(consumer.getPartitionProperties("0").getLastEnqueuedOffset(), last.getOffsetString());
            assertEquals(consumer.getPartitionProperties("0").getLastEnqueuedTime(), last.getEnqueuedTime());
        }
    }

    @Test
    void aHigherLevelTakesOver() {
        String hub = Hubs.create(1);
        Hubs.publish(hub, "0", "first");
        try (Reading low = Reading.start(hub, EventPosition.earliest(), 1L)) {
            low.await(1);
            try (Reading high = Reading.start(hub, EventPosition.earliest(), 2L)) {
                high.await(1);
                Throwable stolen = low.failure();
                Hubs.assertRefused(AmqpErrorCondition.LINK_STOLEN, "epoch", stolen);
                assertFalse(Hubs.amqp(stolen).isTransient());
                Hubs.publish(hub, "0", "second");
                high.await(2);
                assertEquals(List.of("first"), low.bodies());
            }
        }
    }

    @Test
    void aLowerLevelIsRejected() {
        String hub = Hubs.create(1);
        Hubs.publish(hub, "0", "first");
        try (Reading high = Reading.start(hub, EventPosition.earliest(), 2L)) {
            high.await(1);
            try (Reading low = Reading.start(hub, EventPosition.earliest(), 1L)) {
                Hubs.assertRefused(AmqpErrorCondition.LINK_STOLEN, "with a higher epoch '2' already exists", low.failure());
            }
            try (Reading without = Reading.start(hub, EventPosition.earliest(), null)) {
                Hubs.assertRefused(AmqpErrorCondition.LINK_STOLEN, "with epoch of '2', and so non-epoch receiver is not allowed", without.failure());
            }
            try (EventHubConsumerClient consumer = Hubs.client(hub).buildConsumerClient()) {
                ReceiveOptions level = new ReceiveOptions().setOwnerLevel(0L);
                Throwable sync = assertThrows(RuntimeException.class, () ->
                    consumer.receiveFromPartition("0", 1, EventPosition.earliest(), Hubs.PATIENCE, level).stream().toList());
                Hubs.assertRefused(AmqpErrorCondition.LINK_STOLEN, "with a higher epoch '2' already exists", sync);
            }
            Hubs.publish(hub, "0", "second");
            high.await(2);
        }
    }

    @Test
    void consumerGroupsReadIndependently() {
        String hub = Hubs.create(1);
        Hubs.api(Broker.shared(), "PUT", hub, "{\"consumerGroups\": [\"billing\"]}");
        Hubs.publish(hub, "0", "first");
        // An owner excludes other readers of its own consumer group only.
        try (Reading owner = Reading.start(hub, EventPosition.earliest(), 1L);
            EventHubConsumerClient other = Hubs.client(hub).consumerGroup("billing").buildConsumerClient()) {
            owner.await(1);
            assertEquals(List.of("first"), Hubs.bodies(Hubs.read(other, "0", 1, EventPosition.earliest())));
            Hubs.publish(hub, "0", "second");
            owner.await(2);
            assertEquals(List.of("first", "second"), owner.bodies());
        }
    }

    @Test
    void aReaderGetsAnErrorWhenItsHubIsDeleted() {
        String hub = Hubs.create(1);
        Hubs.publish(hub, "0", "first");
        try (Reading reading = Reading.start(hub, EventPosition.earliest(), null)) {
            reading.await(1);
            Hubs.api(Broker.shared(), "DELETE", hub, "");
            Throwable problem = reading.failure();
            Hubs.assertRefused(AmqpErrorCondition.NOT_FOUND, "could not be found", problem);
            assertFalse(Hubs.amqp(problem).isTransient());
        }
    }
}
