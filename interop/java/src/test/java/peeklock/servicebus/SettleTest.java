package peeklock.servicebus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.concurrent.LinkedBlockingQueue;
import org.junit.jupiter.api.Test;

class SettleTest {
    @Test
    void anAbandonedMessageReturnsWithAHigherCountAndChangedProperties() {
        var queue = Entities.queue();
        Steps.send(queue, "again");
        try (var receiver = Entities.client().receiver().queueName(queue).disableAutoComplete().buildClient()) {
            var first = Steps.one(receiver);
            assertEquals(0, first.getDeliveryCount());
            receiver.abandon(first, new AbandonOptions().setPropertiesToModify(Map.of("why", "busy", "times", 1L)));
            var second = Steps.one(receiver);
            assertEquals(1, second.getDeliveryCount());
            assertEquals("busy", second.getApplicationProperties().get("why"));
            assertEquals(1L, second.getApplicationProperties().get("times"));
            assertNotEquals(first.getLockToken(), second.getLockToken());
            receiver.complete(second);
        }
        Steps.assertEmpty(queue);
    }

    @Test
    void aDeferredMessageIsReceivedByItsNumber() {
        var queue = Entities.queue();
        Steps.send(queue, "one", "two", "three");
        try (var receiver = Entities.client().receiver().queueName(queue).disableAutoComplete().buildClient()) {
            var numbers = Steps.some(receiver, 3).stream().map(message -> {
                receiver.defer(message, new DeferOptions().setPropertiesToModify(Map.of("later", true)));
                return message.getSequenceNumber();
            }).toList();
            var one = receiver.receiveDeferredMessage(numbers.get(0));
            assertEquals("one", one.getBody().toString());
            assertEquals(true, one.getApplicationProperties().get("later"));
            receiver.complete(one);
            var rest = receiver.receiveDeferredMessageBatch(numbers.subList(1, 3)).stream().toList();
            assertEquals(List.of("two", "three"), Steps.texts(rest));
            receiver.abandon(rest.get(0));
            receiver.deadLetter(rest.get(1));
            receiver.complete(receiver.receiveDeferredMessage(numbers.get(1)));
            // The broker answers that there is no such message. The SDK converts that to an empty list, and fails on
            // it.
            var error = assertThrows(ServiceBusException.class, () -> receiver.receiveDeferredMessage(numbers.get(0)));
            assertTrue(error.getCause() instanceof NoSuchElementException, () -> Steps.story(error));
            assertTrue(receiver.receiveDeferredMessageBatch(numbers).stream().findAny().isEmpty());
        }
        Steps.assertEmpty(queue);
        assertEquals("three", Steps.takenDeadLetter(queue).getBody().toString());
    }

    @Test
    void aDeadLetteredMessageHasItsReasonAndIsSettledInItsQueue() {
        var queue = Entities.queue();
        Steps.send(queue, "bad");
        try (var receiver = Entities.client().receiver().queueName(queue).disableAutoComplete().buildClient()) {
            receiver.deadLetter(Steps.one(receiver), new DeadLetterOptions().setDeadLetterReason("unreadable")
                    .setDeadLetterErrorDescription("line 3").setPropertiesToModify(Map.of("part", 7)));
        }
        try (var receiver = Entities.client().receiver().queueName(queue).subQueue(SubQueue.DEAD_LETTER_QUEUE)
                .disableAutoComplete().buildClient()) {
            var message = Steps.one(receiver);
            assertEquals("unreadable", message.getDeadLetterReason());
            assertEquals("line 3", message.getDeadLetterErrorDescription());
            assertEquals(7, message.getApplicationProperties().get("part"));
            receiver.complete(message);
            assertTrue(receiver.peekMessages(5, 0).stream().findAny().isEmpty());
        }
    }

    @Test
    void tooManyDeliveriesDeadLetterAMessage() {
        var queue = Entities.queue(options -> options.setMaxDeliveryCount(2));
        Steps.send(queue, "poison");
        try (var receiver = Entities.client().receiver().queueName(queue).disableAutoComplete().buildClient()) {
            receiver.abandon(Steps.one(receiver));
            receiver.abandon(Steps.one(receiver));
        }
        assertEquals("MaxDeliveryCountExceeded", Steps.takenDeadLetter(queue).getDeadLetterReason());
    }

    @Test
    void aLockIsRenewed() {
        var queue = Entities.queue(options -> options.setLockDuration(Duration.ofMinutes(4)));
        Steps.send(queue, "slow");
        try (var receiver = Entities.client().receiver().queueName(queue).disableAutoComplete()
                .maxAutoLockRenewDuration(Duration.ZERO).buildClient()) {
            var message = Steps.one(receiver);
            var renewed = receiver.renewMessageLock(message);
            assertTrue(renewed.isAfter(message.getLockedUntil().minusSeconds(1)), renewed + " " + message.getLockedUntil());
            receiver.complete(message);
        }
        Steps.assertEmpty(queue);
    }

    @Test
    void aLockIsRenewedByTheSdkForTheRequestedTime() {
        var queue = Entities.queue(options -> options.setLockDuration(Duration.ofSeconds(5)));
        Steps.send(queue, "slow", "forgotten");
        var errors = new LinkedBlockingQueue<Throwable>();
        try (var receiver = Entities.client().receiver().queueName(queue).disableAutoComplete()
                .maxAutoLockRenewDuration(Duration.ZERO).buildClient()) {
            var both = Steps.some(receiver, 2);
            receiver.renewMessageLock(both.get(0), Duration.ofMinutes(5), errors::add);
            // The lock without renewal shows when the other one would have expired.
            var again = Steps.one(receiver);
            assertEquals("forgotten", again.getBody().toString());
            receiver.complete(again);
            receiver.complete(both.get(0));
        }
        assertTrue(errors.isEmpty(), errors::toString);
        Steps.assertEmpty(queue);
    }

    @Test
    void aMessageWithALostLockIsNotSettled() {
        var queue = Entities.queue(options -> options.setLockDuration(Duration.ofSeconds(5)));
        Steps.send(queue, "lost");
        try (var receiver = Entities.client().receiver().queueName(queue).disableAutoComplete()
                        .maxAutoLockRenewDuration(Duration.ZERO).buildClient();
                var other = Entities.client().receiver().queueName(queue).disableAutoComplete().buildClient()) {
            var message = Steps.one(receiver);
            var again = Steps.one(other);
            var error = assertThrows(ServiceBusException.class, () -> receiver.complete(message));
            assertEquals(ServiceBusFailureReason.MESSAGE_LOCK_LOST, error.getReason());
            assertTrue(error.getMessage().contains("is not held under this token"), error.getMessage());
            error = assertThrows(ServiceBusException.class, () -> receiver.renewMessageLock(message));
            assertEquals(ServiceBusFailureReason.MESSAGE_LOCK_LOST, error.getReason());
            assertTrue(error.getMessage().contains("is not held under this token"), error.getMessage());
            other.complete(again);
        }
        Steps.assertEmpty(queue);
    }
}
