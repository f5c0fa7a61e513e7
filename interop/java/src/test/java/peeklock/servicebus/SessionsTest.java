package peeklock.servicebus;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.servicebus.ServiceBusMessage;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;

class SessionsTest {
    @Test
    void aSessionIsAcceptedByNameAndKeepsItsOrderAndState() {
        var queue = sessions();
        Steps.send(queue, of("a", "1"), of("b", "x"), of("a", "2"));
        try (var client = Entities.client().sessionReceiver().queueName(queue).disableAutoComplete().buildClient()) {
            var session = client.acceptSession("a");
            assertEquals("a", session.getSessionId());
            var got = Steps.some(session, 2);
            assertEquals(List.of("1", "2"), Steps.texts(got));
            got.forEach(session::complete);
            assertNull(session.getSessionState());
            session.setSessionState("half".getBytes());
            assertTrue(session.renewSessionLock().toInstant().toEpochMilli() > 0);
            session.close();
        }
        // Another client, because the first one may confuse its former link with a new one when it accepts the session
        // again.
        try (var client = Entities.client().sessionReceiver().queueName(queue).disableAutoComplete().buildClient();
                var session = client.acceptSession("a")) {
            assertArrayEquals("half".getBytes(), session.getSessionState());
            session.setSessionState(null);
            assertNull(session.getSessionState());
        }
    }

    @Test
    void theNextFreeSessionIsAccepted() {
        var queue = sessions();
        Steps.send(queue, of("a", "1"), of("b", "2"));
        try (var client = Entities.client().sessionReceiver().queueName(queue).disableAutoComplete().buildClient();
                var first = client.acceptNextSession();
                var second = client.acceptNextSession()) {
            assertEquals(Set.of("a", "b"), Set.of(first.getSessionId(), second.getSessionId()));
            first.complete(Steps.one(first));
            second.complete(Steps.one(second));
        }
        Steps.assertEmpty(queue);
    }

    @Test
    void aSessionThatAnotherReceiverHoldsIsRejected() {
        var queue = sessions();
        var once = new AmqpRetryOptions().setMaxRetries(0);
        try (var client = Entities.client().sessionReceiver().queueName(queue).buildClient();
                var other = Entities.client().retryOptions(once).sessionReceiver().queueName(queue).buildClient();
                var held = client.acceptSession("a")) {
            held.setSessionState(new byte[] {1});
            var error = assertThrows(AmqpException.class, () -> other.acceptSession("a"));
            assertEquals(AmqpErrorCondition.SESSION_CANNOT_BE_LOCKED, error.getErrorCondition());
            assertTrue(error.getMessage().contains("is locked by another receiver"), error.getMessage());
        }
    }

    @Test
    void withoutAFreeSessionTheSdkReportsATimeout() {
        var queue = sessions();
        var soon = new AmqpRetryOptions().setMaxRetries(0).setTryTimeout(Duration.ofSeconds(3));
        try (var client = Entities.client().retryOptions(soon).sessionReceiver().queueName(queue).buildClient()) {
            var error = assertThrows(RuntimeException.class, client::acceptNextSession);
            assertTrue(Steps.story(error).contains("imeout"), () -> Steps.story(error));
        }
    }

    @Test
    void aMessageOfASessionIsDeferredAndPeekedInItsSession() {
        var queue = sessions();
        Steps.send(queue, of("a", "1"), of("b", "2"));
        try (var client = Entities.client().sessionReceiver().queueName(queue).disableAutoComplete().buildClient();
                var session = client.acceptSession("b")) {
            var message = Steps.one(session);
            session.defer(message);
            assertEquals(List.of("2"), Steps.texts(session.peekMessages(10)));
            session.complete(session.receiveDeferredMessage(message.getSequenceNumber()));
            assertTrue(session.peekMessages(10, 0).stream().findAny().isEmpty());
        }
    }

    @Test
    void aMessageWithoutASessionIsRejected() {
        var queue = sessions();
        var error = assertThrows(RuntimeException.class, () -> Steps.send(queue, "homeless"));
        assertTrue(Steps.story(error).contains("session"), () -> Steps.story(error));
    }

    @Test
    void aReceiverWithoutSessionsIsRejectedByAQueueWithSessions() {
        var queue = sessions();
        try (var receiver = Entities.client().receiver().queueName(queue).buildClient()) {
            var error = assertThrows(RuntimeException.class,
                    () -> receiver.receiveMessages(1, Steps.LONG).stream().toList());
            assertTrue(Steps.story(error).contains("session"), () -> Steps.story(error));
        }
    }

    private static String sessions() {
        return Entities.queue(options -> options.setSessionRequired(true));
    }

    private static ServiceBusMessage of(String session, String body) {
        return new ServiceBusMessage(body).setSessionId(session);
    }
}
