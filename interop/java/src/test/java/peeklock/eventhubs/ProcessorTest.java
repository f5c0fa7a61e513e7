package peeklock.eventhubs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.messaging.eventhubs.EventHubProducerClient;
import com.azure.messaging.eventhubs.EventProcessorClient;
import com.azure.messaging.eventhubs.checkpointstore.blob.BlobCheckpointStore;
import com.azure.messaging.eventhubs.models.Checkpoint;
import com.azure.messaging.eventhubs.models.CloseReason;
import com.azure.messaging.eventhubs.models.PartitionOwnership;
import java.io.BufferedReader;
import java.io.IOException;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import peeklock.Broker;

/** Processors with the stock checkpoint store, all on one broker. */
class ProcessorTest {
    // The group is in lower case, as processors write it into the names of their blobs.
    private static final String GROUP = Hubs.GROUP.toLowerCase(Locale.ROOT);
    private static final int PARTITIONS = 9;
    // Each partition gets events for two checkpoints, and some after the last.
    private static final int BEFORE = 25;
    private static final int AFTER = 5;
    private static final int LAST_CHECKPOINT = BEFORE / ProcessorWorker.CHECKPOINT_EVERY * ProcessorWorker.CHECKPOINT_EVERY - 1;

    private final String hub = Hubs.create(PARTITIONS);
    private final String container = Broker.name("balance");
    private final String[] places = {
        Broker.shared().connectionString(), Broker.shared().storageConnectionString(), hub, container};
    private final BlobCheckpointStore store = newStore();

    private BlobCheckpointStore newStore() {
        var blobs = ProcessorWorker.container(places[1], container);
        blobs.create().block(Hubs.PATIENCE);
        return new BlobCheckpointStore(blobs);
    }

    /** A processor in its own process, and its output. */
    private static final class Worker implements AutoCloseable {
        final List<String> news = new CopyOnWriteArrayList<>();
        private final Process process;
        private final Thread listener;

        Worker(String... places) {
            String classes = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
            String java = ProcessHandle.current().info().command().orElse("java");
            var command = new java.util.ArrayList<>(List.of(java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", classes, ProcessorWorker.class.getName()));
            command.addAll(List.of(places));
            try {
                process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
            } catch (IOException problem) {
                throw new IllegalStateException(problem);
            }
            listener = new Thread(this::listen);
            listener.start();
        }

        private void listen() {
            try (BufferedReader lines = process.inputReader()) {
                for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                    news.add(line);
                }
            } catch (IOException end) {
                news.add("end of the output: " + end);
            }
        }

        void kill() {
            process.destroyForcibly().onExit().join();
            try {
                listener.join();
            } catch (InterruptedException stop) {
                throw new IllegalStateException(stop);
            }
        }

        @Override
        public void close() {
            kill();
        }
    }

    private void publish(int count) {
        String[] bodies = IntStream.range(0, count).mapToObj(number -> "event").toArray(String[]::new);
        try (EventHubProducerClient producer = Hubs.client(hub).buildProducerClient()) {
            for (int partition = 0; partition < PARTITIONS; partition++) {
                Hubs.publish(producer, "" + partition, bodies);
            }
        }
    }

    private List<PartitionOwnership> ownerships() {
        return store.listOwnership("127.0.0.1", hub, GROUP).collectList().block(Hubs.PATIENCE);
    }

    /** Returns the number of partitions of each owner. */
    private List<Long> spread() {
        Map<String, Long> owned = ownerships().stream()
            .filter(ownership -> ownership.getOwnerId() != null && !ownership.getOwnerId().isEmpty())
            .collect(Collectors.groupingBy(PartitionOwnership::getOwnerId, Collectors.counting()));
        return owned.values().stream().sorted().toList();
    }

    private Map<String, Long> checkpoints() {
        return store.listCheckpoints("127.0.0.1", hub, GROUP)
            .collectMap(Checkpoint::getPartitionId, Checkpoint::getSequenceNumber).block(Hubs.PATIENCE);
    }

    private static Map<String, Long> everywhere(long number) {
        return IntStream.range(0, PARTITIONS).boxed().collect(Collectors.toMap(String::valueOf, partition -> number));
    }

    private static Set<String> events(int from, int to) {
        return IntStream.range(0, PARTITIONS).boxed()
            .flatMap(partition -> IntStream.range(from, to).mapToObj(number -> "event " + partition + " " + number))
            .collect(Collectors.toSet());
    }

    @SafeVarargs
    private static Set<String> read(List<String>... news) {
        return List.of(news).stream().flatMap(List::stream).filter(item -> item.startsWith("event ")).collect(Collectors.toSet());
    }

    private static Set<String> partitions(List<String> news) {
        return read(news).stream().map(item -> item.split(" ")[1]).collect(Collectors.toSet());
    }

    /** Waits until several checks in a row agree, because processors take partitions from each other for a while. */
    private void settle(List<Long> wanted) {
        int[] agreed = {0};
        Hubs.until(() -> {
            agreed[0] = spread().equals(wanted) ? agreed[0] + 1 : 0;
            return agreed[0] >= 4;
        }, "partitions shared as " + wanted);
    }

    @Test
    void processorsShareThePartitionsAndTakeOverFromAKilledOne() {
        List<String> first = new CopyOnWriteArrayList<>();
        List<String> second = new CopyOnWriteArrayList<>();
        EventProcessorClient one = ProcessorWorker.start(first::add, places);
        EventProcessorClient two = ProcessorWorker.start(second::add, places);
        try (Worker victim = new Worker(places)) {
            settle(List.of(3L, 3L, 3L));
            publish(BEFORE);
            Hubs.until(() -> read(first, second, victim.news).containsAll(events(0, BEFORE)), "every event to be read");
            Hubs.until(() -> checkpoints().equals(everywhere(LAST_CHECKPOINT)), "the checkpoints");

            victim.kill();
            Set<String> orphans = partitions(victim.news);
            orphans.removeAll(partitions(first));
            orphans.removeAll(partitions(second));
            assertFalse(orphans.isEmpty(), "the killed processor had no partition to itself");
            publish(AFTER);
            Set<String> missing = events(BEFORE, BEFORE + AFTER);
            Hubs.until(() -> read(first, second).containsAll(missing), "the others to take over and to miss nothing");
            settle(List.of(4L, 5L));
            for (String partition : orphans) {
                List<Integer> numbers = read(first, second).stream().filter(item -> item.startsWith("event " + partition + " "))
                    .map(item -> Integer.valueOf(item.split(" ")[2])).sorted().toList();
                List<Integer> expected = IntStream.range(LAST_CHECKPOINT + 1, BEFORE + AFTER).boxed().toList();
                assertEquals(expected, numbers, "partition " + partition + " continues at the checkpoint of the killed one");
            }
        } finally {
            one.stop();
            two.stop();
        }
    }

    @Test
    void theNextProcessorContinuesAtTheCheckpoints() {
        List<String> first = new CopyOnWriteArrayList<>();
        EventProcessorClient one = ProcessorWorker.start(first::add, places);
        publish(BEFORE);
        try {
            Hubs.until(() -> read(first).containsAll(events(0, BEFORE)), "every event to be read");
            Hubs.until(() -> checkpoints().equals(everywhere(LAST_CHECKPOINT)), "the checkpoints");
        } finally {
            one.stop();
        }
        List<String> second = new CopyOnWriteArrayList<>();
        EventProcessorClient two = ProcessorWorker.start(second::add, places);
        try {
            Hubs.until(() -> read(second).containsAll(events(LAST_CHECKPOINT + 1, BEFORE)), "the rest to be read");
            assertEquals(events(LAST_CHECKPOINT + 1, BEFORE), read(second));
        } finally {
            two.stop();
        }
    }

    @Test
    void aProcessorThatLosesAPartitionGetsAnEvent() {
        List<String> losses = new CopyOnWriteArrayList<>();
        List<Throwable> errors = new CopyOnWriteArrayList<>();
        List<String> news = new CopyOnWriteArrayList<>();
        EventProcessorClient loser = ProcessorWorker.builder(news::add, places)
            .processPartitionClose(end -> losses.add(end.getCloseReason() + " " + end.getPartitionContext().getPartitionId()))
            .processError(error -> errors.add(error.getThrowable()))
            .buildEventProcessorClient();
        loser.start();
        EventProcessorClient winner = null;
        try {
            settle(List.of((long) PARTITIONS));
            winner = ProcessorWorker.start(news::add, places);
            settle(List.of(4L, 5L));
            Hubs.until(() -> losses.stream().filter(loss -> loss.startsWith(CloseReason.LOST_PARTITION_OWNERSHIP.toString())).count() >= 4, "the losses: " + losses);
            for (Throwable error : errors) {
                Hubs.assertRefused(AmqpErrorCondition.LINK_STOLEN, "epoch", error);
            }
        } finally {
            loser.stop();
            if (winner != null) {
                winner.stop();
            }
        }
    }

    @Test
    void theErrorHandlerGetsTheErrorOfAnUnknownHub() {
        List<Throwable> errors = new CopyOnWriteArrayList<>();
        String[] elsewhere = places.clone();
        elsewhere[2] = Broker.name("nothing");
        EventProcessorClient processor = ProcessorWorker.builder(news -> { }, elsewhere)
            .retryOptions(new AmqpRetryOptions().setMaxRetries(0))
            .processError(error -> errors.add(error.getThrowable()))
            .buildEventProcessorClient();
        processor.start();
        try {
            Hubs.until(() -> !errors.isEmpty(), "an error");
        } finally {
            processor.stop();
        }
        Hubs.assertRefused(AmqpErrorCondition.NOT_FOUND, "peeklock hub create " + elsewhere[2], errors.get(0));
    }
}
