package peeklock.frameworks;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** Starts one broker for all tests of this JVM, and reads its addresses from its output. */
public final class Broker {
    public static final String KEY_NAME = "RootManageSharedAccessKey";
    public static final String KEY = "SAS_KEY_VALUE";
    public static final String STORE_PASSWORD = "changeit";

    private static Broker shared;

    private final Path folder;
    private final List<String> command;
    private final Map<String, String> labels = new HashMap<>();
    private Process process;

    private Broker(Path folder) throws IOException {
        this.folder = folder;
        Path config = folder.resolve("peeklock.toml");
        try (InputStream entities = Broker.class.getResourceAsStream("/peeklock.toml")) {
            Files.copy(entities, config);
        }
        command = List.of(binary(), "serve", "--data", folder.resolve("data").toString(), "--config", config.toString(),
                "--listen", "127.0.0.1:0", "--listen-tls", "127.0.0.1:0", "--http", "off", "--https", "off",
                "--blob-port", "0", "--queue-port", "off");
    }

    /** Returns the broker of this JVM; the first caller starts it. */
    public static synchronized Broker shared() {
        if (shared == null) {
            try {
                Broker broker = new Broker(Files.createTempDirectory("peeklock-frameworks"));
                broker.start();
                Runtime.getRuntime().addShutdownHook(new Thread(broker::stop));
                shared = broker;
            } catch (IOException | GeneralSecurityException error) {
                throw new IllegalStateException("the broker does not start", error);
            }
        }
        return shared;
    }

    /** Returns the host and port for plain AMQP. */
    public String address() {
        return labels.get("AMQP");
    }

    /** Returns the host and port for AMQP over TLS. */
    public String tlsAddress() {
        return labels.get("AMQP over TLS");
    }

    public String connectionString() {
        return labels.get("Connection string");
    }

    public String storageConnectionString() {
        return labels.get("Storage string");
    }

    /** Returns a trust store with the certificate that the broker generated on its first start. */
    public Path trustStore() {
        return folder.resolve("trust.p12");
    }

    private void start() throws IOException, GeneralSecurityException {
        process = new ProcessBuilder(command).redirectError(folder.resolve("broker.log").toFile()).start();
        BufferedReader lines = process.inputReader();
        while (!labels.containsKey("Ready")) {
            String line = lines.readLine();
            if (line == null) {
                throw new IOException("the broker is not ready; it logged: " + Files.readString(folder.resolve("broker.log")));
            }
            String[] parts = line.split("  +", 2);
            labels.put(parts[0], parts.length > 1 ? parts[1] : "");
        }
        // The output must be read to the end: a full pipe would block the broker.
        Thread reader = new Thread(() -> lines.lines().forEach(line -> { }));
        reader.setDaemon(true);
        reader.start();
        writeTrustStore();
    }

    private void writeTrustStore() throws IOException, GeneralSecurityException {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        try (InputStream certificate = Files.newInputStream(Path.of(labels.get("Certificate")))) {
            store.setCertificateEntry("peeklock", CertificateFactory.getInstance("X.509").generateCertificate(certificate));
        }
        try (OutputStream file = Files.newOutputStream(trustStore())) {
            store.store(file, STORE_PASSWORD.toCharArray());
        }
        // The JVM's trust store is for clients that do not accept one of their own.
        System.setProperty("javax.net.ssl.trustStore", trustStore().toString());
        System.setProperty("javax.net.ssl.trustStorePassword", STORE_PASSWORD);
    }

    private void stop() {
        process.destroy();
        try {
            if (!process.waitFor(30, TimeUnit.SECONDS)) {
                process.destroyForcibly().waitFor();
            }
            delete(folder);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static void delete(Path folder) throws IOException {
        List<Path> paths = new ArrayList<>();
        try (var found = Files.walk(folder)) {
            found.forEach(path -> paths.add(0, path));
        }
        for (Path path : paths) {
            Files.delete(path);
        }
    }

    private static String binary() {
        String binary = System.getenv("PEEKLOCK_BIN");
        if (binary == null) {
            throw new IllegalStateException(
                    "PEEKLOCK_BIN does not name the broker to test; run `cargo xtask test --only frameworks`");
        }
        return binary;
    }
}
