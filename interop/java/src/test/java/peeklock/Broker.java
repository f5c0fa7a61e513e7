package peeklock;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * Starts a broker for tests, reads its addresses from its output, and stops it by its process.
 *
 * <p>All tests of the JVM share one broker ({@link #shared}); a test that kills or configures one starts its own.
 */
public final class Broker implements AutoCloseable {
    public static final String KEY_NAME = "RootManageSharedAccessKey";
    public static final String KEY = "SAS_KEY_VALUE";
    /** The options that name addresses, with the labels under which the broker prints them. */
    private static final Map<String, String> PLACES = Map.of(
            "--listen", "AMQP", "--listen-tls", "AMQP over TLS", "--http", "HTTP", "--https", "HTTPS",
            "--blob-port", "Blob Storage", "--queue-port", "Queue Storage");
    private static final long START_SECONDS = 120;
    private static final long STOP_SECONDS = 30;

    private final Path folder;
    private final List<String> more;
    private final Map<String, String> labels = new ConcurrentHashMap<>();
    private Process process;

    /** Creates a broker with a data folder of its own; `more` are further arguments of `serve`. */
    public Broker(String... more) {
        this.folder = newFolder();
        this.more = List.of(more);
        Runtime.getRuntime().addShutdownHook(new Thread(this::stopAndDelete));
    }

    /**
     * Creates a broker that can be killed and restarted under a running client.
     *
     * <p>Its port is below the range from which the system takes ports of outgoing connections: a client that keeps
     * dialling a port of that range can connect to itself, and then blocks the port.
     */
    public static Broker atFixedPort(String... more) {
        var broker = new Broker(more);
        broker.labels.put("AMQP", "127.0.0.1:" + freeFixedPort());
        return broker;
    }

    /** Returns the broker that all tests share. It starts on first use, and stops with the JVM. */
    public static Broker shared() {
        return Shared.BROKER;
    }

    /** Returns a name that no other test uses. */
    public static String name(String prefix) {
        return prefix + "-" + UUID.randomUUID().toString().substring(0, 8);
    }

    /** Starts the process, and waits until the broker prints that it is ready. */
    public synchronized Broker start() {
        labels.remove("Ready");
        var command = new ArrayList<>(List.of(binary(), "serve", "--data", folder.resolve("data").toString()));
        command.addAll(places());
        command.addAll(more);
        var builder = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.appendTo(log().toFile()));
        try {
            process = builder.start();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        awaitReady();
        return this;
    }

    /** Kills the process as `kill -9` does. */
    public synchronized void kill() {
        process.destroyForcibly();
        process.onExit().join();
    }

    /** Requests an orderly end. A broker that does not stop in time is killed, and that is an error. */
    public synchronized void stop() {
        if (process == null || !process.isAlive()) {
            return;
        }
        process.destroy();
        try {
            process.onExit().get(STOP_SECONDS, TimeUnit.SECONDS);
        } catch (Exception error) {
            kill();
            throw new IllegalStateException("the broker did not stop within " + STOP_SECONDS + " s", error);
        }
    }

    @Override
    public void close() {
        stop();
    }

    /** Returns the connection string for plain AMQP, as the broker prints it. */
    public String connectionString() {
        return connectionString(KEY_NAME, KEY);
    }

    public String connectionString(String keyName, String key) {
        return "Endpoint=sb://" + label("AMQP") + ";SharedAccessKeyName=" + keyName + ";SharedAccessKey=" + key
                + ";UseDevelopmentEmulator=true;";
    }

    /** Returns a connection string without the emulator flag, so the SDK uses TLS to the given address. */
    public String tlsConnectionString(String address) {
        return "Endpoint=sb://" + address + ";SharedAccessKeyName=" + KEY_NAME + ";SharedAccessKey=" + KEY;
    }

    public String amqp() {
        return label("AMQP");
    }

    public String amqps() {
        return label("AMQP over TLS");
    }

    public String http() {
        return label("HTTP");
    }

    public String https() {
        return label("HTTPS");
    }

    /** Returns the connection string for clients of Azure Storage, such as the checkpoint store. */
    public String storageConnectionString() {
        return label("Storage string");
    }

    public Path certificate() {
        return Path.of(label("Certificate"));
    }

    private String label(String name) {
        var value = labels.get(name);
        if (value == null) {
            throw new IllegalStateException("the broker did not print '" + name + "', only " + labels);
        }
        return value;
    }

    /** Takes free ports at first; a restarted broker keeps its ports. */
    private List<String> places() {
        var places = new ArrayList<String>();
        PLACES.forEach((option, label) -> {
            places.add(option);
            places.add(labels.getOrDefault(label, "127.0.0.1:0"));
        });
        return places;
    }

    private void awaitReady() {
        var ready = new CountDownLatch(1);
        var output = process.getInputStream();
        var reader = new Thread(() -> read(output, ready), "broker output");
        reader.setDaemon(true);
        reader.start();
        try {
            if (!ready.await(START_SECONDS, TimeUnit.SECONDS) || !labels.containsKey("Ready")) {
                kill();
                throw new IllegalStateException("the broker is not ready; it logged:\n" + Files.readString(log()));
            }
        } catch (InterruptedException | IOException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Reads to the end even without a listener: a full pipe would stop the broker. */
    private void read(InputStream output, CountDownLatch ready) {
        try (var lines = new BufferedReader(new InputStreamReader(output, StandardCharsets.UTF_8))) {
            for (var line = lines.readLine(); line != null; line = lines.readLine()) {
                var parts = line.split(" {2,}", 2);
                labels.put(parts[0], parts.length == 2 ? parts[1].strip() : "");
                if (parts[0].equals("Ready")) {
                    ready.countDown();
                }
            }
        } catch (IOException end) {
            // The process was ended, and Java closes its output with it. A waiting test sees that "Ready" is missing.
        } finally {
            ready.countDown();
        }
    }

    private Path log() {
        return folder.resolve("broker.log");
    }

    private static int freeFixedPort() {
        while (true) {
            var port = ThreadLocalRandom.current().nextInt(20000, 32000);
            try (var probe = new ServerSocket(port, 1, InetAddress.getLoopbackAddress())) {
                return probe.getLocalPort();
            } catch (IOException taken) {
                // The next port is tried.
            }
        }
    }

    private static String binary() {
        var binary = System.getenv("PEEKLOCK_BIN");
        if (binary == null) {
            throw new IllegalStateException("PEEKLOCK_BIN does not name the broker to test; run `cargo xtask test --only java`");
        }
        return binary;
    }

    private static Path newFolder() {
        try {
            return Files.createTempDirectory("peeklock-java-");
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private void stopAndDelete() {
        stop();
        delete(folder);
    }

    private static void delete(Path folder) {
        try (var files = Files.walk(folder)) {
            files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
        } catch (IOException | UncheckedIOException error) {
            System.err.println("cannot remove " + folder + ": " + error);
        }
    }

    private static final class Shared {
        static final Broker BROKER = new Broker().start();

        static {
            TrustStore.trust(BROKER.certificate());
        }
    }
}
