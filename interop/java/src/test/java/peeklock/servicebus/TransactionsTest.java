package peeklock.servicebus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import java.time.OffsetDateTime;
import java.util.List;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Mono;

class TransactionsTest {
    @Test
    void sendsAppearWithTheCommit() {
        var queue = Entities.queue();
        try (var sender = Entities.client().sender().queueName(queue).buildClient()) {
            var transaction = sender.createTransaction();
            sender.sendMessage(new ServiceBusMessage("a"), transaction);
            sender.sendMessages(Steps.messages("b", "c"), transaction);
            Steps.assertEmpty(queue);
            sender.commitTransaction(transaction);
        }
        assertEquals(List.of("a", "b", "c"), Steps.taken(queue, 3));
    }

    @Test
    void aRolledBackTransactionLeavesNothing() {
        var queue = Entities.queue();
        try (var sender = Entities.client().sender().queueName(queue).buildClient()) {
            var transaction = sender.createTransaction();
            sender.sendMessage(new ServiceBusMessage("never"), transaction);
            sender.scheduleMessage(new ServiceBusMessage("never"), OffsetDateTime.now().plusDays(1), transaction);
            sender.rollbackTransaction(transaction);
        }
        Steps.assertEmpty(queue);
    }

    @Test
    void settlementsOfEveryKindHappenWithTheCommit() {
        var queue = Entities.queue();
        Steps.send(queue, "complete", "abandon", "defer", "dead-letter");
        try (var receiver = Entities.client().receiver().queueName(queue).disableAutoComplete().buildClient()) {
            var got = Steps.some(receiver, 4);
            var transaction = receiver.createTransaction();
            receiver.complete(got.get(0), new CompleteOptions().setTransactionContext(transaction));
            receiver.abandon(got.get(1), new AbandonOptions().setTransactionContext(transaction));
            receiver.defer(got.get(2), new DeferOptions().setTransactionContext(transaction));
            receiver.deadLetter(got.get(3), new DeadLetterOptions().setTransactionContext(transaction)
                    .setDeadLetterReason("why"));
            assertEquals(4, receiver.peekMessages(10, 0).stream().count());
            receiver.commitTransaction(transaction);
            var again = Steps.one(receiver);
            assertEquals("abandon", again.getBody().toString());
            receiver.complete(again);
            receiver.complete(receiver.receiveDeferredMessage(got.get(2).getSequenceNumber()));
        }
        Steps.assertEmpty(queue);
        assertEquals("why", Steps.takenDeadLetter(queue).getDeadLetterReason());
    }

    @Test
    void aRolledBackSettlementLeavesTheMessageLocked() {
        var queue = Entities.queue();
        Steps.send(queue, "kept");
        try (var receiver = Entities.client().receiver().queueName(queue).disableAutoComplete().buildClient()) {
            var message = Steps.one(receiver);
            var transaction = receiver.createTransaction();
            receiver.complete(message, new CompleteOptions().setTransactionContext(transaction));
            receiver.rollbackTransaction(transaction);
            assertEquals("kept", receiver.peekMessage(0).getBody().toString());
        }
    }

    @Test
    void aTransactionSpansEntities() {
        var from = Entities.queue();
        var to = Entities.queue();
        var topic = Entities.topic("all");
        Steps.send(from, "order");
        var client = Entities.client().enableCrossEntityTransactions();
        try (var receiver = client.receiver().queueName(from).disableAutoComplete().buildClient();
                var sender = client.sender().queueName(to).buildClient();
                var publisher = client.sender().topicName(topic).buildClient()) {
            // The first entity that the client uses carries the transaction.
            var message = Steps.one(receiver);
            var transaction = receiver.createTransaction();
            sender.sendMessage(new ServiceBusMessage("invoice"), transaction);
            publisher.sendMessage(new ServiceBusMessage("event"), transaction);
            receiver.complete(message, new CompleteOptions().setTransactionContext(transaction));
            Steps.assertEmpty(to);
            receiver.commitTransaction(transaction);
        }
        Steps.assertEmpty(from);
        assertEquals(List.of("invoice"), Steps.taken(to, 1));
        try (var receiver = Entities.client().receiver().topicName(topic).subscriptionName("all").buildClient()) {
            assertEquals("event", Steps.one(receiver).getBody().toString());
        }
    }

    @Test
    void aTransactionAcrossEntitiesIsRolledBackAsAWhole() {
        var from = Entities.queue();
        var to = Entities.queue();
        Steps.send(from, "order");
        var client = Entities.client().enableCrossEntityTransactions();
        try (var receiver = client.receiver().queueName(from).disableAutoComplete().buildClient();
                var sender = client.sender().queueName(to).buildClient()) {
            var message = Steps.one(receiver);
            var transaction = receiver.createTransaction();
            sender.sendMessage(new ServiceBusMessage("invoice"), transaction);
            receiver.complete(message, new CompleteOptions().setTransactionContext(transaction));
            receiver.rollbackTransaction(transaction);
            // It is still locked, but the SDK does not settle it a second time.
            assertEquals("order", receiver.peekMessage(0).getBody().toString());
        }
        Steps.assertEmpty(to);
    }

    @Test
    void aSessionIsSettledInATransaction() {
        var queue = Entities.queue(options -> options.setSessionRequired(true));
        Steps.send(queue, new ServiceBusMessage("1").setSessionId("a"));
        try (var client = Entities.client().sessionReceiver().queueName(queue).disableAutoComplete().buildClient();
                var session = client.acceptSession("a")) {
            var message = Steps.one(session);
            var transaction = session.createTransaction();
            session.complete(message, new CompleteOptions().setTransactionContext(transaction));
            session.commitTransaction(transaction);
        }
        Steps.assertEmpty(queue);
    }

    /** The SDK ignores the answer to a send in a transaction, so the commit has to fail. */
    @Test
    void aTransactionWithARejectedSendCannotBeCommitted() {
        var queue = Entities.queue(options -> options.setSessionRequired(true));
        try (var sender = Entities.client().sender().queueName(queue).buildClient()) {
            var transaction = sender.createTransaction();
            sender.sendMessage(new ServiceBusMessage("good").setSessionId("a"), transaction);
            sender.sendMessage(new ServiceBusMessage("without a session"), transaction);
            var error = assertThrows(RuntimeException.class, () -> sender.commitTransaction(transaction));
            assertTrue(Steps.story(error).contains("session"), () -> Steps.story(error));
        }
        Steps.assertEmpty(queue);
    }

    @Test
    void aFinishedTransactionAcceptsNothing() {
        var queue = Entities.queue();
        try (var sender = Entities.client().sender().queueName(queue).buildClient()) {
            var transaction = sender.createTransaction();
            sender.commitTransaction(transaction);
            sender.sendMessage(new ServiceBusMessage("late"), transaction);
            var error = assertThrows(RuntimeException.class, () -> sender.commitTransaction(transaction));
            assertTrue(Steps.story(error).contains("ransaction"), () -> Steps.story(error));
        }
        Steps.assertEmpty(queue);
    }

    @Test
    void theAsynchronousClientCommitsToo() {
        var queue = Entities.queue();
        try (var sender = Entities.client().sender().queueName(queue).buildAsyncClient()) {
            Mono.usingWhen(sender.createTransaction(),
                    transaction -> sender.sendMessage(new ServiceBusMessage("a"), transaction),
                    sender::commitTransaction,
                    (transaction, error) -> sender.rollbackTransaction(transaction),
                    sender::rollbackTransaction).block(Steps.LONG);
        }
        assertEquals(List.of("a"), Steps.taken(queue, 1));
    }
}
