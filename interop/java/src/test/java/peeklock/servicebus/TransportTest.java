package peeklock.servicebus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.amqp.AmqpTransportType;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.parallel.ResourceLock;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import peeklock.Broker;

/** TLS with the broker's certificate, WebSocket, and messages of every size. */
class TransportTest {
    @Test
    void messagesPassOverTls() {
        roundTrip(new ServiceBusClientBuilder().connectionString(tls(Broker.shared().amqps())));
    }

    @Test
    void messagesPassOverWebSocketWithTls() {
        roundTrip(new ServiceBusClientBuilder().connectionString(tls(Broker.shared().https()))
                .transportType(AmqpTransportType.AMQP_WEB_SOCKETS));
    }

    @Test
    void aCustomEndpointIsUsedForANamespaceOfAzure() {
        var string = tls("some.servicebus.windows.net");
        roundTrip(new ServiceBusClientBuilder().connectionString(string)
                .customEndpointAddress("https://" + Broker.shared().amqps()));
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 64 << 10, 1 << 20, 10 << 20, 90 << 20, 98 << 20})
    @ResourceLock("memory")
    void aMessageOfAnySizeArrivesWhole(int size) {
        var queue = Entities.queue(options -> options.setMaxMessageSizeInKilobytes(102400));
        var bytes = new byte[size];
        new Random(size).nextBytes(bytes);
        try (var sender = Entities.client().sender().queueName(queue).buildClient();
                var receiver = Entities.client().receiver().queueName(queue).disableAutoComplete().buildClient()) {
            sender.sendMessage(new ServiceBusMessage(bytes));
            var message = Steps.one(receiver);
            assertTrue(Arrays.equals(bytes, message.getBody().toBytes()));
            receiver.complete(message);
        }
        Steps.assertEmpty(queue);
    }

    private static String tls(String address) {
        return Broker.shared().tlsConnectionString(address);
    }

    private static void roundTrip(ServiceBusClientBuilder client) {
        var queue = Entities.queue();
        var large = "x".repeat(200_000);
        try (var sender = client.sender().queueName(queue).buildClient();
                var receiver = client.receiver().queueName(queue).disableAutoComplete().buildClient()) {
            sender.sendMessages(Steps.messages("small", large));
            var got = Steps.some(receiver, 2);
            assertEquals(List.of("small", large), Steps.texts(got));
            got.forEach(receiver::complete);
        }
        Steps.assertEmpty(queue);
    }
}
