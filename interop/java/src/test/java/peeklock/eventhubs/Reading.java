package peeklock.eventhubs;

import com.azure.messaging.eventhubs.EventHubClientBuilder;
import com.azure.messaging.eventhubs.EventHubConsumerAsyncClient;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.messaging.eventhubs.models.PartitionEvent;
import com.azure.messaging.eventhubs.models.ReceiveOptions;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicReference;
import reactor.core.Disposable;
import reactor.core.publisher.Flux;
import reactor.util.retry.Retry;

/** Reads partition 0 of a hub in the background until it is closed. */
final class Reading implements AutoCloseable {
    private final EventHubConsumerAsyncClient consumer;
    private final List<String> bodies = new CopyOnWriteArrayList<>();
    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private final AtomicReference<EventPosition> next = new AtomicReference<>(EventPosition.earliest());
    private final Disposable subscription;

    private Reading(EventHubClientBuilder client, EventPosition position, Long ownerLevel) {
        consumer = client.buildAsyncConsumerClient();
        ReceiveOptions options = new ReceiveOptions().setOwnerLevel(ownerLevel);
        subscription = consumer.receiveFromPartition("0", position, options).subscribe(this::take, failure::set);
    }

    /**
     * Resumes by itself after the end of a connection, as the SDK requires of its users: its own stream then completes
     * or fails.
     */
    private Reading(EventHubClientBuilder client) {
        consumer = client.buildAsyncConsumerClient();
        subscription = Flux.defer(() -> consumer.receiveFromPartition("0", next.get()))
            .retryWhen(Retry.fixedDelay(Long.MAX_VALUE, Duration.ofMillis(200)))
            .repeat()
            .subscribe(this::take, failure::set);
    }

    private void take(PartitionEvent event) {
        bodies.add(event.getData().getBodyAsString());
        next.set(EventPosition.fromSequenceNumber(event.getData().getSequenceNumber()));
    }

    /** Starts to read. A null level means a reader without an owner level. */
    static Reading start(String hub, EventPosition position, Long ownerLevel) {
        return new Reading(Hubs.client(hub), position, ownerLevel);
    }

    static Reading steadfast(EventHubClientBuilder client) {
        return new Reading(client);
    }

    List<String> bodies() {
        return List.copyOf(bodies);
    }

    void await(int count) {
        Hubs.until(() -> bodies.size() >= count || failure.get() != null, count + " events");
        if (failure.get() != null) {
            throw new AssertionError("the reader failed", failure.get());
        }
    }

    Throwable failure() {
        Hubs.until(() -> failure.get() != null, "the reader to fail");
        return failure.get();
    }

    @Override
    public void close() {
        subscription.dispose();
        consumer.close();
    }
}
