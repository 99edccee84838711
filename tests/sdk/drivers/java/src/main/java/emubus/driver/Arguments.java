package emubus.driver;

import java.net.URI;
import java.nio.file.Path;
import java.util.Locale;

/**
 * What the driver was started with: the options, each one word, and the connection string behind them.
 * Knows their form and what of a connection string the driver itself has to know; refuses to know what an
 * option changes.
 *
 * @param connectionString for the SDK, as it came.
 * @param ca the PEM file of a CA to trust; null when none was named.
 * @param webSocket whether the data client speaks AMQP through a WebSocket.
 */
record Arguments(String connectionString, Path ca, boolean webSocket) {
    private static final String ENDPOINT = "endpoint=";
    private static final String EMULATOR = "usedevelopmentemulator=true";
    private static final int HTTPS_PORT = 443;

    static Arguments read(String[] words) {
        Path ca = null;
        boolean webSocket = false;
        for (int index = 0; index < words.length - 1; index++) {
            String word = words[index];
            String value = word.substring(word.indexOf('=') + 1);
            if (word.startsWith("ca=")) {
                ca = Path.of(value);
            } else if (word.startsWith("transport=") && ("amqp".equals(value) || "websocket".equals(value))) {
                webSocket = "websocket".equals(value);
            } else {
                throw new IllegalArgumentException("unknown argument " + word);
            }
        }
        return new Arguments(words[words.length - 1], ca, webSocket);
    }

    /** Whether the SDK's data client leaves TLS away; through a WebSocket it never does. */
    boolean plainAmqp() {
        return !webSocket && connectionString.toLowerCase(Locale.ROOT).replace(" ", "").contains(EMULATOR);
    }

    /** Host and port of the connection string; the port is the one for everything. */
    String address() {
        URI endpoint = URI.create(endpoint());
        return endpoint.getHost() + ":" + (endpoint.getPort() == -1 ? HTTPS_PORT : endpoint.getPort());
    }

    /** The connection string with another host, or host and port. */
    String with(String host) {
        return connectionString.replace(endpoint(), "sb://" + host);
    }

    private String endpoint() {
        for (String part : connectionString.split(";")) {
            if (part.strip().toLowerCase(Locale.ROOT).startsWith(ENDPOINT)) {
                return part.strip().substring(ENDPOINT.length());
            }
        }
        throw new IllegalArgumentException("the connection string has no Endpoint");
    }
}
