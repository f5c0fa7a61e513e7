package peeklock.servicebus;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.azure.messaging.servicebus.ServiceBusMessage;
import java.time.Duration;
import org.junit.jupiter.api.Test;

class SendReceiveTest {
    @Test
    void aMessageIsSentReceivedAndCompleted() {
        var queue = Entities.queue();
        try (var sender = Entities.client().sender().queueName(queue).buildClient();
                var receiver = Entities.client().receiver().queueName(queue).buildClient()) {
            sender.sendMessage(new ServiceBusMessage("hello"));
            var message = receiver.receiveMessages(1, Duration.ofSeconds(60)).iterator().next();
            assertEquals("hello", message.getBody().toString());
            receiver.complete(message);
        }
        var counts = Entities.administration().getQueueRuntimeProperties(queue);
        assertEquals(0, counts.getTotalMessageCount());
    }
}
