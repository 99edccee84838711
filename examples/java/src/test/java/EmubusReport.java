import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.regex.Pattern;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.TestExecutionExceptionHandler;

/**
 * The report of a test that fails says what emubus knows of it. Copy this file, and write
 * {@code @ExtendWith(EmubusReport.class)} before a class of tests. {@code EMUBUS_URL} is the address of the control API,
 * {@code http://localhost:5300} without it.
 */
public class EmubusReport implements BeforeEachCallback, TestExecutionExceptionHandler {
    private static final HttpClient CLIENT = HttpClient.newHttpClient();
    private static final Pattern NOW = Pattern.compile("\"now_ms\":\\s*(\\d+)");

    /** It stands below the failure, as what was suppressed: every runner prints that. */
    private static final class Emubus extends Throwable {
        private static final long serialVersionUID = 1L;

        Emubus(String report) {
            super(report, null, false, false);
        }

        @Override
        public String toString() {
            return "emubus\n" + getMessage();
        }
    }

    private static ExtensionContext.Store store(ExtensionContext context) {
        return context.getStore(ExtensionContext.Namespace.create(EmubusReport.class, context.getUniqueId()));
    }

    private static String asked(String path) throws IOException {
        var control = System.getenv().getOrDefault("EMUBUS_URL", "http://localhost:5300") + "/emubus/v1";
        var request = HttpRequest.newBuilder(URI.create(control + path)).timeout(Duration.ofSeconds(5)).build();
        try {
            var answer = CLIENT.send(request, HttpResponse.BodyHandlers.ofString());
            if (answer.statusCode() != 200) {
                throw new IOException(answer.statusCode() + " " + answer.body());
            }
            return answer.body();
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new IOException(interrupted);
        }
    }

    @Override
    public void beforeEach(ExtensionContext context) {
        try {
            var now = NOW.matcher(asked("/clock")); // the broker's clock, which tests may have moved
            if (now.find()) {
                store(context).put("since", now.group(1));
            }
        } catch (IOException nobodyAnswers) {
            // the report says so
        }
    }

    @Override
    public void handleTestExecutionException(ExtensionContext context, Throwable failure) throws Throwable {
        try {
            var report = asked("/report/text?since=" + store(context).getOrDefault("since", String.class, "0"));
            if (!report.isEmpty()) {
                failure.addSuppressed(new Emubus(report));
            }
        } catch (IOException error) {
            failure.addSuppressed(new Emubus("can't be asked what happened: " + error));
        }
        throw failure;
    }
}
