package emubus.driver;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;

/**
 * Makes this JVM trust a CA, in the way in which a user does it: with a key store named by
 * {@code javax.net.ssl.trustStore}, which both the AMQP and the HTTP stack of the SDK read when they make
 * their first TLS connection. Knows files and system properties; refuses to know who connects. Owns the
 * key store's file until the JVM ends.
 */
final class Trust {
    private static final String PASSWORD = "changeit";

    private final Path ca;
    private boolean installed;

    /** Trusts what the JVM trusts anyway when {@code ca} is null. */
    Trust(Path ca) {
        this.ca = ca;
    }

    /** Installs the CA the first time; to be called before anything of TLS is used. */
    void install() {
        if (ca == null || installed) {
            return;
        }
        try {
            Path file = write(ca);
            System.setProperty("javax.net.ssl.trustStore", file.toString());
            System.setProperty("javax.net.ssl.trustStorePassword", PASSWORD);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } catch (GeneralSecurityException error) {
            throw new IllegalArgumentException("no certificates in " + ca, error);
        }
        installed = true;
    }

    private static Path write(Path ca) throws IOException, GeneralSecurityException {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        try (InputStream pem = Files.newInputStream(ca)) {
            for (Certificate certificate : CertificateFactory.getInstance("X.509").generateCertificates(pem)) {
                store.setCertificateEntry("ca" + store.size(), certificate);
            }
        }
        Path file = Files.createTempFile("emubus-driver", ".p12");
        file.toFile().deleteOnExit();
        try (OutputStream out = Files.newOutputStream(file)) {
            store.store(out, PASSWORD.toCharArray());
        }
        return file;
    }
}
