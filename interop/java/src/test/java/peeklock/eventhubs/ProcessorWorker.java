package peeklock.eventhubs;

import com.azure.messaging.eventhubs.EventProcessorClient;
import com.azure.messaging.eventhubs.EventProcessorClientBuilder;
import com.azure.messaging.eventhubs.LoadBalancingStrategy;
import com.azure.messaging.eventhubs.checkpointstore.blob.BlobCheckpointStore;
import com.azure.messaging.eventhubs.models.EventContext;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.storage.blob.BlobContainerAsyncClient;
import com.azure.storage.blob.BlobContainerClientBuilder;
import java.time.Duration;
import java.util.function.Consumer;

/**
 * One of several processors that share a hub through a blob checkpoint store. It can run in its own process, so that it
 * can be killed.
 *
 * <p>Arguments: connection string, connection string of the store, hub, container. Every line of its output is one
 * report: {@code claim PARTITION NUMBER}, {@code event PARTITION NUMBER}, {@code checkpoint PARTITION NUMBER}, {@code
 * error PARTITION TEXT}.
 */
final class ProcessorWorker {
    static final int CHECKPOINT_EVERY = 10;
    // The expiry is long enough for a busy machine: an instance that renews late loses partitions.
    private static final Duration EXPIRY = Duration.ofSeconds(10);
    private static final Duration INTERVAL = Duration.ofMillis(500);

    private ProcessorWorker() {
    }

    public static void main(String[] places) throws InterruptedException {
        start(System.out::println, places);
        Thread.currentThread().join();
    }

    static EventProcessorClient start(Consumer<String> tell, String... places) {
        EventProcessorClient processor = builder(tell, places).buildEventProcessorClient();
        processor.start();
        return processor;
    }

    static EventProcessorClientBuilder builder(Consumer<String> tell, String... places) {
        return new EventProcessorClientBuilder()
            .connectionString(places[0], places[2])
            .consumerGroup(Hubs.GROUP)
            .checkpointStore(new BlobCheckpointStore(container(places[1], places[3])))
            .loadBalancingStrategy(LoadBalancingStrategy.GREEDY)
            .loadBalancingUpdateInterval(INTERVAL)
            .partitionOwnershipExpirationInterval(EXPIRY)
            .initialPartitionEventPosition(partition -> EventPosition.earliest())
            .processPartitionInitialization(start -> tell.accept("claim " + start.getPartitionContext().getPartitionId() + " 0"))
            .processEvent(event -> process(event, tell))
            .processError(error -> tell.accept("error " + error.getPartitionContext().getPartitionId() + " " + error.getThrowable()));
    }

    static BlobContainerAsyncClient container(String store, String name) {
        return new BlobContainerClientBuilder().connectionString(store).containerName(name).buildAsyncClient();
    }

    private static void process(EventContext event, Consumer<String> tell) {
        String where = event.getPartitionContext().getPartitionId() + " " + event.getEventData().getSequenceNumber();
        tell.accept("event " + where);
        if ((event.getEventData().getSequenceNumber() + 1) % CHECKPOINT_EVERY == 0) {
            event.updateCheckpoint();
            tell.accept("checkpoint " + where);
        }
    }
}
