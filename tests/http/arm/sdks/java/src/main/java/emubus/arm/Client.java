package emubus.arm;

import com.azure.core.credential.AccessToken;
import com.azure.core.credential.TokenCredential;
import com.azure.core.http.rest.PagedIterable;
import com.azure.core.management.AzureEnvironment;
import com.azure.core.management.exception.ManagementException;
import com.azure.core.management.profile.AzureProfile;
import com.azure.core.util.serializer.JacksonAdapter;
import com.azure.core.util.serializer.SerializerEncoding;
import com.azure.resourcemanager.resources.ResourceManager;
import com.azure.resourcemanager.resources.models.Deployment;
import com.azure.resourcemanager.resources.models.DeploymentMode;
import com.azure.resourcemanager.resources.models.ResourceGroup;
import com.azure.resourcemanager.servicebus.ServiceBusManager;
import com.azure.resourcemanager.servicebus.fluent.ServiceBusManagementClient;
import com.azure.resourcemanager.servicebus.fluent.models.RuleInner;
import com.azure.resourcemanager.servicebus.fluent.models.SBAuthorizationRuleInner;
import com.azure.resourcemanager.servicebus.fluent.models.SBQueueInner;
import com.azure.resourcemanager.servicebus.fluent.models.SBSubscriptionInner;
import com.azure.resourcemanager.servicebus.fluent.models.SBTopicInner;
import com.azure.resourcemanager.servicebus.models.AccessRights;
import com.azure.resourcemanager.servicebus.models.Action;
import com.azure.resourcemanager.servicebus.models.CorrelationFilter;
import com.azure.resourcemanager.servicebus.models.FilterType;
import com.azure.resourcemanager.servicebus.models.NamespaceSku;
import com.azure.resourcemanager.servicebus.models.ServiceBusNamespace;
import com.azure.resourcemanager.servicebus.models.SqlFilter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import reactor.core.publisher.Mono;

/**
 * The management SDK of Java: URL TOKEN FOLDER, the folder being that of the templates. Prints a line of JSON for
 * each step: its name, and what the SDK has read. The steps are those of {@code test_other_sdks.py}.
 */
public final class Client {
    private static final String SUBSCRIPTION = "00000000-0000-0000-0000-000000000001";
    private static final String TENANT = "00000000-0000-0000-0000-00000000e0b5";
    private static final String GROUP = "rg-java";
    private static final String NAMESPACE = "bus-java";

    private final ServiceBusManager manager;
    private final ServiceBusManagementClient bus;
    private final ResourceManager resources;
    private final Path folder;

    private Client(String url, String token, Path folder) {
        AzureEnvironment cloud = new AzureEnvironment(Map.of(
            "resourceManagerEndpointUrl", url,
            "managementEndpointUrl", url,
            "activeDirectoryEndpointUrl", url,
            "activeDirectoryResourceId", url));
        AzureProfile profile = new AzureProfile(TENANT, SUBSCRIPTION, cloud);
        TokenCredential credential = request -> Mono.just(new AccessToken(token, OffsetDateTime.now().plusHours(1)));
        manager = ServiceBusManager.authenticate(credential, profile);
        bus = manager.serviceClient();
        resources = ResourceManager.authenticate(credential, profile).withSubscription(SUBSCRIPTION);
        this.folder = folder;
    }

    public static void main(String[] arguments) throws IOException {
        new Client(arguments[0], arguments[1], Path.of(arguments[2])).run();
        System.exit(0); // threads of the HTTP client go on
    }

    private void run() throws IOException {
        ResourceGroup group = resources.resourceGroups().define(GROUP).withRegion("westeurope").withTag("a", "b").create();
        say("group", Arrays.asList(group.name(), group.regionName(), group.tags()));
        ServiceBusNamespace made = manager.namespaces()
            .define(NAMESPACE)
            .withRegion("westeurope")
            .withExistingResourceGroup(GROUP)
            .withSku(NamespaceSku.STANDARD)
            .withTag("c", "d")
            .create();
        say("namespace", List.of(made.name(), made.innerModel().sku().name().toString(), made.tags(), made.innerModel().provisioningState()));
        say("namespaces", names(manager.namespaces().listByResourceGroup(GROUP), each -> each.name()));
        String text = bus.getNamespaces().listKeys(GROUP, NAMESPACE, "RootManageSharedAccessKey").primaryConnectionString();
        say("keys", text.split(";")[0]);
        SBAuthorizationRuleInner rule = new SBAuthorizationRuleInner().withRights(List.of(AccessRights.SEND));
        rule = bus.getNamespaces().createOrUpdateAuthorizationRule(GROUP, NAMESPACE, "app", rule);
        say("authorization rule", rule.rights().stream().map(Object::toString).toList());
        entities();
        deployments();
        bus.getRules().delete(GROUP, NAMESPACE, "t", "s", "equal");
        bus.getSubscriptions().delete(GROUP, NAMESPACE, "t", "s");
        bus.getTopics().delete(GROUP, NAMESPACE, "t");
        say("queues", names(bus.getQueues().listByNamespace(GROUP, NAMESPACE), each -> each.name()));
        bus.getNamespaces().delete(GROUP, NAMESPACE);
        say("gone", refusal(() -> bus.getNamespaces().getByResourceGroup(GROUP, NAMESPACE)).subList(0, 2));
        resources.resourceGroups().deleteByName(GROUP);
        say("groups", names(resources.resourceGroups().list(), each -> each.name()).contains(GROUP));
    }

    private void entities() {
        SBQueueInner queue = new SBQueueInner()
            .withLockDuration(Duration.ofSeconds(45))
            .withMaxDeliveryCount(4)
            .withRequiresSession(true);
        bus.getQueues().createOrUpdate(GROUP, NAMESPACE, "q", queue);
        queue = bus.getQueues().createOrUpdate(GROUP, NAMESPACE, "q", queue.withMaxDeliveryCount(9));
        say("queue", List.of(
            queue.lockDuration().toString(), queue.maxDeliveryCount(), queue.requiresSession(), queue.status().toString()));
        bus.getTopics().createOrUpdate(GROUP, NAMESPACE, "t", new SBTopicInner().withSupportOrdering(true));
        bus.getSubscriptions().createOrUpdate(
            GROUP, NAMESPACE, "t", "s", new SBSubscriptionInner().withMaxDeliveryCount(3));
        RuleInner sql = bus.getRules().createOrUpdate(GROUP, NAMESPACE, "t", "s", "sql", new RuleInner()
            .withFilterType(FilterType.SQL_FILTER)
            .withSqlFilter(new SqlFilter().withSqlExpression("a > 3"))
            .withAction(new Action().withSqlExpression("SET seen = TRUE")));
        CorrelationFilter wanted = new CorrelationFilter().withLabel("l").withProperties(Map.of("k", "v"));
        CorrelationFilter own = bus.getRules().createOrUpdate(GROUP, NAMESPACE, "t", "s", "equal", new RuleInner()
            .withFilterType(FilterType.CORRELATION_FILTER)
            .withCorrelationFilter(wanted)).correlationFilter();
        say("rules", List.of(
            sql.sqlFilter().sqlExpression(), sql.action().sqlExpression(), own.label(), own.properties()));
        say("all rules", names(bus.getRules().listBySubscriptions(GROUP, NAMESPACE, "t", "s"), each -> each.name()));
        List<Object> bad = refusal(() -> bus.getQueues().createOrUpdate(
            GROUP, NAMESPACE, "bad", new SBQueueInner().withLockDuration(Duration.ofMinutes(10))));
        say("a bad value", List.of(bad.get(0), bad.get(1), ((String) bad.get(2)).contains("LockDuration")));
        say("nowhere", refusal(() -> bus.getQueues().get(GROUP, NAMESPACE, "nowhere")).subList(0, 2));
    }

    private void deployments() throws IOException {
        for (String round : List.of("deployment", "the same again")) {
            Deployment done = deploy("d", "template.json");
            Object outputs = done.outputs();
            Object queue = ((Map<?, ?>) ((Map<?, ?>) outputs).get("queue")).get("value");
            say(round, List.of(done.provisioningState(), queue));
        }
        List<Object> failed = refusal(() -> deploy("b", "broken.json"));
        say("a deployment that fails", ((String) failed.get(2)).contains("queue bad: SubCode=40000. The supplied lock time"));
    }

    private Deployment deploy(String name, String file) {
        try {
            return resources.deployments()
                .define(name)
                .withExistingResourceGroup(GROUP)
                .withTemplate(Files.readString(folder.resolve(file)))
                .withParameters(Map.of("namespace", Map.of("value", NAMESPACE)))
                .withMode(DeploymentMode.INCREMENTAL)
                .create();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static <T> List<String> names(PagedIterable<T> pages, Function<T, String> name) {
        return pages.stream().map(name).sorted().toList();
    }

    private static List<Object> refusal(Runnable work) {
        try {
            work.run();
        } catch (ManagementException error) {
            return List.of(error.getResponse().getStatusCode(), error.getValue().getCode(), error.getValue().getMessage());
        }
        return List.of(0, "", "");
    }

    private static void say(String step, Object value) {
        try {
            System.out.println(JacksonAdapter.createDefaultSerializerAdapter()
                .serialize(Arrays.asList(step, value), SerializerEncoding.JSON));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
