package peeklock.servicebus;

import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;

/** Steps that several tests share. */
final class Steps {
    /** The timeout of every wait; only a failing test reaches it. */
    static final Duration LONG = Duration.ofMinutes(2);

    private Steps() {}

    static List<ServiceBusMessage> messages(String... bodies) {
        return Arrays.stream(bodies).map(ServiceBusMessage::new).toList();
    }

    static void send(String queue, String... bodies) {
        send(queue, messages(bodies).toArray(ServiceBusMessage[]::new));
    }

    static void send(String queue, ServiceBusMessage... messages) {
        try (var sender = Entities.client().sender().queueName(queue).buildClient()) {
            sender.sendMessages(List.of(messages));
        }
    }

    static ServiceBusReceivedMessage one(ServiceBusReceiverClient receiver) {
        return receiver.receiveMessages(1, LONG).stream().findFirst().orElseThrow();
    }

    /** Receives repeatedly: the SDK returns soon after the first message. */
    static List<ServiceBusReceivedMessage> some(ServiceBusReceiverClient receiver, int count) {
        var got = new ArrayList<ServiceBusReceivedMessage>();
        while (got.size() < count) {
            var more = receiver.receiveMessages(count - got.size(), LONG).stream().toList();
            assertTrue(!more.isEmpty(), () -> "only " + got.size() + " of " + count + " messages arrived");
            got.addAll(more);
        }
        return got;
    }

    static List<String> texts(Iterable<ServiceBusReceivedMessage> messages) {
        var texts = new ArrayList<String>();
        messages.forEach(message -> texts.add(message.getBody().toString()));
        return texts;
    }

    /** Receives all messages of the queue, and returns their texts. */
    static List<String> taken(String queue, int count) {
        try (var receiver = Entities.client().receiver().queueName(queue)
                .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient()) {
            return texts(some(receiver, count));
        }
    }

    static ServiceBusReceivedMessage takenDeadLetter(String queue) {
        try (var receiver = Entities.client().receiver().queueName(queue).subQueue(SubQueue.DEAD_LETTER_QUEUE)
                .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient()) {
            return one(receiver);
        }
    }

    /** Asserts that the queue holds nothing, including locked messages, which a peek shows too. */
    static void assertEmpty(String queue) {
        try (var receiver = Entities.client().receiver().queueName(queue).buildClient()) {
            assertNull(receiver.peekMessage());
        }
    }

    static <T> T next(BlockingQueue<T> queue) {
        try {
            var item = queue.poll(LONG.toSeconds(), TimeUnit.SECONDS);
            assertTrue(item != null, "timed out waiting for an item");
            return item;
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    static void until(BooleanSupplier reached) {
        var end = System.nanoTime() + LONG.toNanos();
        while (!reached.getAsBoolean()) {
            assertTrue(System.nanoTime() < end, "timed out waiting for the condition");
            pause();
        }
    }

    /** Returns the texts of a throwable and its causes. */
    static String story(Throwable error) {
        return Stream.iterate(error, one -> one != null, Throwable::getCause).limit(10)
                .map(Throwable::toString).reduce("", (all, next) -> all + "\n" + next);
    }

    private static void pause() {
        try {
            Thread.sleep(50);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
