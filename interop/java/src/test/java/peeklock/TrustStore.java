package peeklock;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;

/**
 * Makes this JVM trust the broker's certificate.
 *
 * <p>This is what a user does with {@code keytool -importcert -file certificate.pem -keystore trust.p12} and {@code
 * java -Djavax.net.ssl.trustStore=trust.p12}: AMQP, WebSocket and HTTPS clients of the SDK all use that store.
 */
final class TrustStore {
    private static final String PASSWORD = "changeit";

    private TrustStore() {}

    static void trust(Path certificate) {
        try (var pem = Files.newInputStream(certificate)) {
            var store = KeyStore.getInstance("PKCS12");
            store.load(null, null);
            store.setCertificateEntry("peeklock", CertificateFactory.getInstance("X.509").generateCertificate(pem));
            var path = certificate.resolveSibling("trust.p12");
            try (var file = Files.newOutputStream(path)) {
                store.store(file, PASSWORD.toCharArray());
            }
            System.setProperty("javax.net.ssl.trustStore", path.toString());
            System.setProperty("javax.net.ssl.trustStorePassword", PASSWORD);
        } catch (IOException | GeneralSecurityException error) {
            throw new IllegalStateException("cannot trust " + certificate, error);
        }
    }
}
