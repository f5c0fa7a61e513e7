package peeklock.eventhubs;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.azure.core.amqp.AmqpRetryMode;
import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.messaging.eventhubs.EventHubClientBuilder;
import com.azure.messaging.eventhubs.EventHubProducerClient;
import com.azure.messaging.eventhubs.EventProcessorClient;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import peeklock.Broker;

class RestartTest {
    @Test
    void clientsContinueWhenTheBrokerIsKilledAndRestarted() {
        goOnAfter(Broker::kill);
    }

    @Test
    void clientsContinueWhenTheBrokerIsStoppedAndRestarted() {
        goOnAfter(Broker::stop);
    }

    @Test
    void aProcessorContinuesWhenTheBrokerIsKilledAndRestarted() {
        try (Broker broker = Broker.atFixedPort().start()) {
            String hub = Hubs.create(broker, 2);
            String container = Broker.name("restart");
            String[] places = {broker.connectionString(), broker.storageConnectionString(), hub, container};
            ProcessorWorker.container(places[1], container).create().block(Hubs.PATIENCE);
            List<String> news = new CopyOnWriteArrayList<>();
            EventProcessorClient processor = ProcessorWorker.start(news::add, places);
            try {
                publish(broker, hub, "before");
                Hubs.until(() -> news.containsAll(List.of("event 0 0", "event 1 0")), "the first events");
                broker.kill();
                broker.start();
                publish(broker, hub, "after");
                Hubs.until(() -> news.containsAll(List.of("event 0 1", "event 1 1")), "the events after the restart");
            } finally {
                processor.stop();
            }
        }
    }

    private static void publish(Broker broker, String hub, String body) {
        try (EventHubProducerClient producer = Hubs.client(broker.connectionString(), hub).buildProducerClient()) {
            Hubs.publish(producer, "0", body);
            Hubs.publish(producer, "1", body);
        }
    }

    private static void goOnAfter(Consumer<Broker> end) {
        try (Broker broker = Broker.atFixedPort().start()) {
            String hub = Hubs.create(broker, 1);
            AmqpRetryOptions patient = new AmqpRetryOptions().setMode(AmqpRetryMode.FIXED).setDelay(Duration.ofMillis(200)).setMaxRetries(300);
            EventHubClientBuilder client = Hubs.client(broker.connectionString(), hub).retryOptions(patient);
            try (EventHubProducerClient producer = client.buildProducerClient(); Reading reading = Reading.steadfast(client)) {
                List<String> written = new ArrayList<>();
                for (int number = 0; number < 3; number++) {
                    written.add("event " + number);
                    Hubs.publish(producer, "0", "event " + number);
                }
                reading.await(3);
                end.accept(broker);
                broker.start();
                written.add("after");
                Hubs.publish(producer, "0", "after");
                reading.await(4);
                assertEquals(written, reading.bodies());
                assertEquals(3, producer.getPartitionProperties("0").getLastEnqueuedSequenceNumber());
            }
        }
    }
}
