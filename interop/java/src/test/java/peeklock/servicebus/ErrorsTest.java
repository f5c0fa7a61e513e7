package peeklock.servicebus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.administration.models.EntityStatus;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import peeklock.Broker;

/** Each error has the SDK's own type and reason, and the broker's sentence is in its message. */
class ErrorsTest {
    @Test
    void aWrongKeyIsUnauthorized() {
        var queue = Entities.queue();
        var wrong = new ServiceBusClientBuilder()
                .connectionString(Broker.shared().connectionString(Broker.KEY_NAME, "wrong"));
        try (var sender = wrong.sender().queueName(queue).buildClient();
                var receiver = wrong.receiver().queueName(queue).buildClient()) {
            refused(ServiceBusFailureReason.UNAUTHORIZED, "signature",
                    () -> sender.sendMessage(new ServiceBusMessage("no")));
            refused(ServiceBusFailureReason.UNAUTHORIZED, "signature", receiver::peekMessage);
            terminated(AmqpErrorCondition.UNAUTHORIZED_ACCESS, "signature", receiver);
        }
    }

    @Test
    void anUnknownEntityIsNotFound() {
        var name = Broker.name("missing");
        var client = Entities.client();
        try (var sender = client.sender().queueName(name).buildClient();
                var receiver = client.receiver().queueName(name).buildClient();
                var subscription = client.receiver().topicName(name).subscriptionName("s").buildClient()) {
            refused(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND, name,
                    () -> sender.sendMessage(new ServiceBusMessage("no")));
            refused(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND, name, receiver::peekMessage);
            terminated(AmqpErrorCondition.NOT_FOUND, name, receiver);
            terminated(AmqpErrorCondition.NOT_FOUND, name, subscription);
        }
    }

    @Test
    void aFullQueueAcceptsMessagesAgainWhenThereIsRoom() {
        var queue = Entities.queue(options -> options.setMaxSizeInMegabytes(1024).setMaxMessageSizeInKilobytes(102400));
        var bytes = new byte[90 << 20];
        try (var sender = Entities.client().sender().queueName(queue).buildClient()) {
            refused(ServiceBusFailureReason.QUOTA_EXCEEDED, queue, () -> {
                for (var count = 0; count < 13; count++) {
                    sender.sendMessage(new ServiceBusMessage(bytes));
                }
            });
            try (var receiver = Entities.client().receiver().queueName(queue).disableAutoComplete().buildClient()) {
                receiver.complete(Steps.one(receiver));
            }
            sender.sendMessage(new ServiceBusMessage("fits"));
        }
        Entities.administration().deleteQueue(queue);
    }

    @Test
    void aMessageThatIsTooLargeIsRejected() {
        var queue = Entities.queue(options -> options.setMaxMessageSizeInKilobytes(1024));
        try (var sender = Entities.client().sender().queueName(queue).buildClient()) {
            refused(ServiceBusFailureReason.MESSAGE_SIZE_EXCEEDED, "",
                    () -> sender.sendMessage(new ServiceBusMessage(new byte[2 << 20])));
            sender.sendMessage(new ServiceBusMessage("small"));
        }
        assertEquals(List.of("small"), Steps.taken(queue, 1));
    }

    @Test
    void aDisabledQueueRejectsSends() {
        var queue = Entities.queue(options -> options.setStatus(EntityStatus.SEND_DISABLED));
        refused(ServiceBusFailureReason.MESSAGING_ENTITY_DISABLED, queue, () -> Steps.send(queue, "no"));
    }

    /**
     * Asserts the behaviour of the synchronous receiver after an error of its link: it throws a plain RuntimeException
     * with the text that it is terminated, and with the broker's error as its cause.
     */
    private static void terminated(AmqpErrorCondition condition, String words, ServiceBusReceiverClient receiver) {
        var error = assertThrows(RuntimeException.class, () -> receiver.receiveMessages(1, Steps.LONG).stream().toList());
        var cause = error.getCause();
        while (!(cause instanceof AmqpException)) {
            assertTrue(cause != null, () -> Steps.story(error));
            cause = cause.getCause();
        }
        assertEquals(condition, ((AmqpException) cause).getErrorCondition());
        assertTrue(cause.getMessage().contains(words), cause.getMessage());
    }

    private static void refused(ServiceBusFailureReason reason, String words, Executable attempt) {
        var error = assertThrows(ServiceBusException.class, attempt);
        assertEquals(reason, error.getReason(), () -> Steps.story(error));
        assertTrue(error.getMessage().contains(words), error.getMessage());
    }
}
