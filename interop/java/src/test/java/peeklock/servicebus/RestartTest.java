package peeklock.servicebus;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.LinkedBlockingQueue;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import peeklock.Broker;

/** Clients continue after the broker was stopped or killed and restarted. */
class RestartTest {
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void theSameClientsWorkAfterARestart(boolean killed) {
        try (var broker = Broker.atFixedPort("--queue", "work").start()) {
            var client = new ServiceBusClientBuilder().connectionString(broker.connectionString());
            try (var sender = client.sender().queueName("work").buildClient();
                    var receiver = client.receiver().queueName("work").disableAutoComplete().buildClient()) {
                sender.sendMessage(new ServiceBusMessage("before"));
                receiver.complete(Steps.one(receiver));
                sender.sendMessage(new ServiceBusMessage("kept"));
                if (killed) {
                    broker.kill();
                } else {
                    broker.stop();
                }
                broker.start();
                sender.sendMessage(new ServiceBusMessage("after"));
                var got = Steps.some(receiver, 2);
                assertEquals(Set.of("kept", "after"), new TreeSet<>(Steps.texts(got)));
                got.forEach(receiver::complete);
            }
        }
    }

    @Test
    void aProcessorContinuesAfterAKill() {
        try (var broker = Broker.atFixedPort("--queue", "work").start()) {
            var client = new ServiceBusClientBuilder().connectionString(broker.connectionString());
            var done = new LinkedBlockingQueue<String>();
            var errors = new LinkedBlockingQueue<Throwable>();
            var processor = client.processor().queueName("work")
                    .processMessage(context -> done.add(context.getMessage().getBody().toString()))
                    .processError(context -> errors.add(context.getException())).buildProcessorClient();
            processor.start();
            try (var sender = client.sender().queueName("work").buildClient()) {
                sender.sendMessage(new ServiceBusMessage("before"));
                assertEquals("before", Steps.next(done));
                broker.kill();
                broker.start();
                sender.sendMessage(new ServiceBusMessage("after"));
                // The first message may be delivered again, because its completion may not have arrived before the
                // kill.
                while (!Steps.next(done).equals("after")) {}
            }
            processor.close();
        }
    }
}
