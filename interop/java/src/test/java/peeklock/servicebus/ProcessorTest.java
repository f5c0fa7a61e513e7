package peeklock.servicebus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.messaging.servicebus.ServiceBusErrorContext;
import com.azure.messaging.servicebus.ServiceBusErrorSource;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.Duration;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import peeklock.Broker;

class ProcessorTest {
    @Test
    void theAllowedNumberOfCallsRunsAtOnceAndAllMessagesAreCompleted() {
        var queue = Entities.queue();
        Steps.send(queue, IntStream.range(0, 8).mapToObj(Integer::toString).toArray(String[]::new));
        // No call passes before four have arrived.
        var four = new CyclicBarrier(4);
        var done = new LinkedBlockingQueue<String>();
        var errors = new LinkedBlockingQueue<Throwable>();
        var processor = Entities.client().processor().queueName(queue).maxConcurrentCalls(4)
                .processMessage(context -> {
                    pass(four);
                    done.add(context.getMessage().getBody().toString());
                })
                .processError(context -> errors.add(context.getException()))
                .buildProcessorClient();
        processor.start();
        var got = new TreeSet<String>();
        while (got.size() < 8) {
            got.add(Steps.next(done));
        }
        Steps.until(() -> Entities.administration().getQueueRuntimeProperties(queue).getTotalMessageCount() == 0);
        processor.close();
        assertTrue(errors.isEmpty(), errors::toString);
    }

    @Test
    void theHandlerSettlesWhenAutoCompleteIsOff() {
        var queue = Entities.queue();
        Steps.send(queue, "complete", "abandon", "dead-letter", "defer");
        var done = new LinkedBlockingQueue<String>();
        var processor = Entities.client().processor().queueName(queue).disableAutoComplete()
                .processMessage(context -> {
                    var body = context.getMessage().getBody().toString();
                    switch (body) {
                        case "abandon" -> {
                            if (context.getMessage().getDeliveryCount() == 0) {
                                context.abandon();
                                return;
                            }
                            context.complete();
                        }
                        case "dead-letter" -> context.deadLetter();
                        case "defer" -> context.defer();
                        default -> context.complete();
                    }
                    done.add(body);
                })
                .processError(context -> done.add("error: " + context.getException()))
                .buildProcessorClient();
        processor.start();
        var got = new TreeSet<String>();
        while (got.size() < 4) {
            got.add(Steps.next(done));
        }
        assertEquals(Set.of("complete", "abandon", "dead-letter", "defer"), got);
        processor.close();
        try (var receiver = Entities.client().receiver().queueName(queue).buildClient()) {
            var left = receiver.peekMessages(10).stream().toList();
            assertEquals(1, left.size());
            assertEquals("defer", left.get(0).getBody().toString());
            assertEquals("DEFERRED", left.get(0).getState().toString());
        }
        assertEquals("dead-letter", Steps.takenDeadLetter(queue).getBody().toString());
    }

    @Test
    void aHandlerThatThrowsAbandonsAndTheErrorHandlerGetsTheError() {
        var queue = Entities.queue(options -> options.setMaxDeliveryCount(2));
        Steps.send(queue, "poison");
        var errors = new LinkedBlockingQueue<ServiceBusErrorContext>();
        var processor = Entities.client().processor().queueName(queue)
                .processMessage(context -> {
                    throw new IllegalStateException("cannot read it");
                })
                .processError(errors::add)
                .buildProcessorClient();
        processor.start();
        for (var count = 0; count < 2; count++) {
            var error = Steps.next(errors);
            assertEquals(ServiceBusErrorSource.USER_CALLBACK, error.getErrorSource());
            assertEquals(queue, error.getEntityPath());
            assertTrue(Steps.story(error.getException()).contains("cannot read it"));
        }
        assertEquals("MaxDeliveryCountExceeded", Steps.takenDeadLetter(queue).getDeadLetterReason());
        processor.close();
    }

    @Test
    void theProcessorRenewsTheLockWhileTheHandlerRuns() {
        var queue = Entities.queue(options -> options.setLockDuration(Duration.ofSeconds(5)));
        Steps.send(queue, "slow");
        var counts = new LinkedBlockingQueue<Long>();
        var processor = Entities.client().processor().queueName(queue).maxAutoLockRenewDuration(Duration.ofMinutes(5))
                .processMessage(context -> {
                    var until = context.getMessage().getLockedUntil();
                    Steps.until(() -> context.getMessage().getLockedUntil().isAfter(until.plusSeconds(5)));
                    counts.add(context.getMessage().getDeliveryCount());
                })
                .processError(context -> counts.add(-1L))
                .buildProcessorClient();
        processor.start();
        assertEquals(0L, Steps.next(counts));
        Steps.until(() -> Entities.administration().getQueueRuntimeProperties(queue).getTotalMessageCount() == 0);
        processor.close();
    }

    @Test
    void sessionsRunConcurrentlyAndEachInOrder() {
        var queue = Entities.queue(options -> options.setSessionRequired(true));
        for (var session : new String[] {"a", "b", "c"}) {
            Steps.send(queue, IntStream.range(0, 5)
                    .mapToObj(number -> new ServiceBusMessage("" + number).setSessionId(session))
                    .toArray(ServiceBusMessage[]::new));
        }
        var orders = new ConcurrentHashMap<String, String>();
        var done = new LinkedBlockingQueue<String>();
        var processor = Entities.client().sessionProcessor().queueName(queue).maxConcurrentSessions(2)
                .maxConcurrentCalls(1).sessionIdleTimeout(Duration.ofSeconds(2))
                .processMessage(context -> {
                    var message = context.getMessage();
                    orders.merge(message.getSessionId(), message.getBody().toString(), String::concat);
                    done.add(message.getSessionId());
                })
                .processError(context -> done.add("error: " + context.getException()))
                .buildProcessorClient();
        processor.start();
        for (var count = 0; count < 15; count++) {
            var session = Steps.next(done);
            assertTrue(session.length() == 1, session);
        }
        assertEquals(Map.of("a", "01234", "b", "01234", "c", "01234"), orders);
        Steps.until(() -> Entities.administration().getQueueRuntimeProperties(queue).getTotalMessageCount() == 0);
        processor.close();
    }

    @Test
    void theErrorHandlerGetsTheErrorOfAMissingQueue() {
        var name = Broker.name("missing");
        var errors = new LinkedBlockingQueue<ServiceBusErrorContext>();
        var processor = Entities.client().processor().queueName(name).processMessage(context -> {})
                .processError(errors::add).buildProcessorClient();
        processor.start();
        var error = Steps.next(errors);
        processor.close();
        var exception = (ServiceBusException) error.getException();
        assertEquals(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND, exception.getReason());
        assertTrue(exception.getMessage().contains(name), exception.getMessage());
    }

    @Test
    void aProcessorReadsDeadLetters() {
        var queue = Entities.queue();
        Steps.send(queue, "dead");
        try (var receiver = Entities.client().receiver().queueName(queue).disableAutoComplete().buildClient()) {
            receiver.deadLetter(Steps.one(receiver));
        }
        var done = new LinkedBlockingQueue<String>();
        var processor = Entities.client().processor().queueName(queue).subQueue(SubQueue.DEAD_LETTER_QUEUE)
                .processMessage(context -> done.add(context.getMessage().getBody().toString()))
                .processError(context -> done.add("error: " + context.getException())).buildProcessorClient();
        processor.start();
        assertEquals("dead", Steps.next(done));
        processor.close();
    }

    private static void pass(CyclicBarrier barrier) {
        try {
            barrier.await(Steps.LONG.toSeconds(), TimeUnit.SECONDS);
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }
}
