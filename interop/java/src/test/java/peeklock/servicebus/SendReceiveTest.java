package peeklock.servicebus;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.amqp.models.AmqpMessageBody;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.models.CreateMessageBatchOptions;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.junit.jupiter.api.Test;

class SendReceiveTest {
    @Test
    void aMessageIsSentReceivedAndCompleted() {
        var queue = Entities.queue();
        Steps.send(queue, "hello");
        try (var receiver = Entities.client().receiver().queueName(queue).disableAutoComplete().buildClient()) {
            var message = Steps.one(receiver);
            assertEquals("hello", message.getBody().toString());
            receiver.complete(message);
        }
        Steps.assertEmpty(queue);
    }

    @Test
    void propertiesOfEveryKindArrive() {
        var queue = Entities.queue();
        var uuid = UUID.randomUUID();
        var time = OffsetDateTime.of(2026, 1, 2, 3, 4, 5, 6_000_000, ZoneOffset.UTC);
        var sent = new ServiceBusMessage(new byte[] {0, 1, (byte) 255}).setMessageId("id").setSubject("subject")
                .setContentType("type").setCorrelationId("correlation").setReplyTo("reply").setTo("to")
                .setReplyToSessionId("session").setPartitionKey("key").setTimeToLive(Duration.ofHours(1));
        Map<String, Object> properties = Map.of("text", "ü", "int", 1, "long", 2L, "double", 1.5, "bool", true,
                "uuid", uuid, "byte", (byte) 3, "short", (short) 4, "float", 2.5f, "time", time);
        sent.getApplicationProperties().putAll(properties);
        Steps.send(queue, sent);
        try (var receiver = Entities.client().receiver().queueName(queue).disableAutoComplete().buildClient()) {
            var got = Steps.one(receiver);
            assertArrayEquals(new byte[] {0, 1, (byte) 255}, got.getBody().toBytes());
            assertEquals(List.of("id", "subject", "type", "correlation", "reply", "to", "session", "key"),
                    List.of(got.getMessageId(), got.getSubject(), got.getContentType(), got.getCorrelationId(),
                            got.getReplyTo(), got.getTo(), got.getReplyToSessionId(), got.getPartitionKey()));
            assertEquals(Duration.ofHours(1), got.getTimeToLive());
            assertEquals(properties, got.getApplicationProperties());
            assertEquals(1, got.getSequenceNumber());
            assertNotNull(got.getLockToken());
            assertEquals(got.getEnqueuedTime().plusHours(1), got.getExpiresAt());
            receiver.complete(got);
        }
    }

    @Test
    void bodiesThatAreValuesOrSequencesArrive() {
        var queue = Entities.queue();
        Steps.send(queue, new ServiceBusMessage(AmqpMessageBody.fromValue("value")),
                new ServiceBusMessage(AmqpMessageBody.fromSequence(List.of(1, "two"))));
        try (var receiver = Entities.client().receiver().queueName(queue).disableAutoComplete().buildClient()) {
            var got = Steps.some(receiver, 2);
            assertEquals("value", got.get(0).getRawAmqpMessage().getBody().getValue());
            assertEquals(List.of(1, "two"), got.get(1).getRawAmqpMessage().getBody().getSequence());
        }
    }

    @Test
    void aBatchHoldsAsMuchAsFitsAndArrivesInOrder() {
        var queue = Entities.queue();
        try (var sender = Entities.client().sender().queueName(queue).buildClient()) {
            var small = sender.createMessageBatch(new CreateMessageBatchOptions().setMaximumSizeInBytes(1000));
            assertTrue(small.tryAddMessage(new ServiceBusMessage(new byte[500])));
            assertFalse(small.tryAddMessage(new ServiceBusMessage(new byte[600])));
            var batch = sender.createMessageBatch();
            assertTrue(batch.getMaxSizeInBytes() >= 256 * 1024, () -> "" + batch.getMaxSizeInBytes());
            for (var number = 0; number < 100; number++) {
                assertTrue(batch.tryAddMessage(new ServiceBusMessage("" + number)));
            }
            sender.sendMessages(batch);
        }
        var got = Steps.taken(queue, 100);
        for (var number = 0; number < 100; number++) {
            assertEquals("" + number, got.get(number));
        }
    }

    @Test
    void prefetchedMessagesAreDeliveredOnce() {
        var queue = Entities.queue();
        Steps.send(queue, "a", "b", "c");
        try (var receiver = Entities.client().receiver().queueName(queue).prefetchCount(10).disableAutoComplete()
                .buildClient()) {
            var got = Steps.some(receiver, 3);
            assertEquals(List.of("a", "b", "c"), Steps.texts(got));
            got.forEach(receiver::complete);
        }
        Steps.assertEmpty(queue);
    }

    @Test
    void peekSeesAllMessagesAndLocksNone() {
        var queue = Entities.queue();
        Steps.send(queue, "a", "b", "c");
        try (var receiver = Entities.client().receiver().queueName(queue).buildClient()) {
            assertEquals("a", receiver.peekMessage().getBody().toString());
            assertEquals(List.of("b", "c"), Steps.texts(receiver.peekMessages(10)));
            assertEquals(List.of("b"), Steps.texts(receiver.peekMessages(1, 2)));
        }
        assertEquals(List.of("a", "b", "c"), Steps.taken(queue, 3));
    }

    @Test
    void theAsynchronousClientsSendAndReceive() {
        var queue = Entities.queue();
        try (var sender = Entities.client().sender().queueName(queue).buildAsyncClient();
                var receiver = Entities.client().receiver().queueName(queue).disableAutoComplete().buildAsyncClient()) {
            sender.sendMessages(Steps.messages("a", "b", "c")).block(Steps.LONG);
            var got = receiver.receiveMessages()
                    .concatMap(message -> receiver.complete(message).thenReturn(message.getBody().toString()))
                    .take(3).collectList().block(Steps.LONG);
            assertEquals(List.of("a", "b", "c"), got);
        }
        Steps.assertEmpty(queue);
    }

    @Test
    void theAsynchronousReceiverCompletesByItself() {
        var queue = Entities.queue();
        Steps.send(queue, "a", "b");
        try (var receiver = Entities.client().receiver().queueName(queue).buildAsyncClient()) {
            var got = receiver.receiveMessages().take(2).map(message -> message.getBody().toString()).collectList();
            assertEquals(List.of("a", "b"), got.block(Steps.LONG));
            Steps.until(() -> Entities.administration().getQueueRuntimeProperties(queue).getTotalMessageCount() == 0);
        }
    }
}
