package peeklock.servicebus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import com.azure.messaging.servicebus.ServiceBusMessage;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class ScheduleTest {
    @Test
    void aScheduledMessageArrivesWhenDue() {
        var queue = Entities.queue();
        var due = OffsetDateTime.now().plusSeconds(3);
        try (var sender = Entities.client().sender().queueName(queue).buildClient();
                var receiver = Entities.client().receiver().queueName(queue).disableAutoComplete().buildClient()) {
            sender.scheduleMessage(new ServiceBusMessage("later"), due);
            assertEquals("SCHEDULED", receiver.peekMessage().getState().toString());
            var got = Steps.one(receiver);
            assertEquals("later", got.getBody().toString());
            assertFalse(got.getEnqueuedTime().isBefore(due.minusSeconds(1)), got.getEnqueuedTime() + " " + due);
            receiver.complete(got);
        }
    }

    @Test
    void scheduledMessagesAreCancelledByTheirNumbers() {
        var queue = Entities.queue();
        var later = OffsetDateTime.now().plusDays(1);
        try (var sender = Entities.client().sender().queueName(queue).buildClient()) {
            var numbers = new ArrayList<Long>();
            sender.scheduleMessages(Steps.messages("a", "b", "c"), later).forEach(numbers::add);
            assertEquals(3, numbers.size());
            assertEquals(3, Entities.administration().getQueueRuntimeProperties(queue).getScheduledMessageCount());
            sender.cancelScheduledMessage(numbers.get(0));
            sender.cancelScheduledMessages(numbers.subList(1, 3));
            // The broker answers that there is no such message; the SDK treats that as success.
            sender.cancelScheduledMessage(numbers.get(0));
        }
        Steps.assertEmpty(queue);
    }

    @Test
    void aMessageWithAScheduledTimeIsScheduledToo() {
        var queue = Entities.queue();
        Steps.send(queue, new ServiceBusMessage("later").setScheduledEnqueueTime(OffsetDateTime.now().plusDays(1)));
        assertEquals(1, Entities.administration().getQueueRuntimeProperties(queue).getScheduledMessageCount());
    }

    @Test
    void aSecondMessageWithTheSameIdIsDropped() {
        var queue = Entities.queue(options -> options.setDuplicateDetectionRequired(true)
                .setDuplicateDetectionHistoryTimeWindow(Duration.ofMinutes(10)));
        Steps.send(queue, new ServiceBusMessage("first").setMessageId("1"));
        Steps.send(queue, new ServiceBusMessage("again").setMessageId("1"),
                new ServiceBusMessage("other").setMessageId("2"));
        assertEquals(List.of("first", "other"), Steps.taken(queue, 2));
        Steps.send(queue, new ServiceBusMessage("too late").setMessageId("1"));
        Steps.assertEmpty(queue);
    }
}
