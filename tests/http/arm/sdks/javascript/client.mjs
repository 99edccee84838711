// The management SDK of JavaScript: node client.mjs URL TOKEN. Prints a line of JSON for each step: its name, and what
// the SDK has read. NODE_EXTRA_CA_CERTS names the CA. The steps are those of ../../test_other_sdks.py.
import { readFileSync } from "node:fs";
import { ResourceManagementClient } from "@azure/arm-resources";
import { ServiceBusManagementClient } from "@azure/arm-servicebus";

const [endpoint, token] = process.argv.slice(2);
const SUBSCRIPTION = "00000000-0000-0000-0000-000000000001";
const [GROUP, NAMESPACE] = ["rg-js", "bus-js"];
const credential = { getToken: async () => ({ token, expiresOnTimestamp: Date.now() + 3_600_000 }) };
const options = { endpoint, credentialScopes: `${endpoint}/.default` };
const bus = new ServiceBusManagementClient(credential, SUBSCRIPTION, options);
const resources = new ResourceManagementClient(credential, SUBSCRIPTION, options);

const say = (step, value) => console.log(JSON.stringify([step, value]));

async function names(pages) {
  const found = [];
  for await (const each of pages) found.push(each.name);
  return found.sort();
}

async function refusal(work) {
  try {
    await work();
  } catch (error) {
    return [error.statusCode ?? null, error.code ?? "", error.message];
  }
  return null;
}

const group = await resources.resourceGroups.createOrUpdate(GROUP, { location: "westeurope", tags: { a: "b" } });
say("group", [group.name, group.location, group.tags]);
const made = await bus.namespaces.beginCreateOrUpdateAndWait(GROUP, NAMESPACE, {
  location: "westeurope",
  sku: { name: "Standard" },
  tags: { c: "d" },
});
say("namespace", [made.name, made.sku.name, made.tags, made.provisioningState]);
say("namespaces", await names(bus.namespaces.listByResourceGroup(GROUP)));
const keys = await bus.namespaces.listKeys(GROUP, NAMESPACE, "RootManageSharedAccessKey");
say("keys", keys.primaryConnectionString.split(";")[0]);
const rule = await bus.namespaces.createOrUpdateAuthorizationRule(GROUP, NAMESPACE, "app", { rights: ["Send"] });
say("authorization rule", rule.rights);
const queue = { lockDuration: "PT45S", maxDeliveryCount: 4, requiresSession: true };
await bus.queues.createOrUpdate(GROUP, NAMESPACE, "q", queue);
const changed = await bus.queues.createOrUpdate(GROUP, NAMESPACE, "q", { ...queue, maxDeliveryCount: 9 });
say("queue", [changed.lockDuration, changed.maxDeliveryCount, changed.requiresSession, changed.status]);
await bus.topics.createOrUpdate(GROUP, NAMESPACE, "t", { supportOrdering: true });
await bus.subscriptions.createOrUpdate(GROUP, NAMESPACE, "t", "s", { maxDeliveryCount: 3, forwardTo: undefined });
const sql = await bus.rules.createOrUpdate(GROUP, NAMESPACE, "t", "s", "sql", {
  filterType: "SqlFilter",
  sqlFilter: { sqlExpression: "a > 3" },
  action: { sqlExpression: "SET seen = TRUE" },
});
const equal = await bus.rules.createOrUpdate(GROUP, NAMESPACE, "t", "s", "equal", {
  filterType: "CorrelationFilter",
  correlationFilter: { label: "l", properties: { k: "v" } },
});
const own = equal.correlationFilter;
say("rules", [sql.sqlFilter.sqlExpression, sql.action.sqlExpression, own.label, own.properties]);
say("all rules", await names(bus.rules.listBySubscriptions(GROUP, NAMESPACE, "t", "s")));
const bad = await refusal(() => bus.queues.createOrUpdate(GROUP, NAMESPACE, "bad", { lockDuration: "PT10M" }));
say("a bad value", [bad[0], bad[1], bad[2].includes("LockDuration")]);
say("nowhere", (await refusal(() => bus.queues.get(GROUP, NAMESPACE, "nowhere"))).slice(0, 2));

const [template, broken] = ["template", "broken"].map((name) =>
  JSON.parse(readFileSync(new URL(`../${name}.json`, import.meta.url), "utf8")),
);
const deployment = (of) => ({
  properties: { mode: "Incremental", template: of, parameters: { namespace: { value: NAMESPACE } } },
});
for (const round of ["deployment", "the same again"]) {
  const done = await resources.deployments.beginCreateOrUpdateAndWait(GROUP, "d", deployment(template));
  say(round, [done.properties.provisioningState, done.properties.outputs.queue.value]);
}
const failed = await refusal(() => resources.deployments.beginCreateOrUpdateAndWait(GROUP, "b", deployment(broken)));
say("a deployment that fails", failed[2].includes("queue bad: SubCode=40000. The supplied lock time"));

await bus.rules.delete(GROUP, NAMESPACE, "t", "s", "equal");
await bus.subscriptions.delete(GROUP, NAMESPACE, "t", "s");
await bus.topics.delete(GROUP, NAMESPACE, "t");
say("queues", await names(bus.queues.listByNamespace(GROUP, NAMESPACE)));
await bus.namespaces.beginDeleteAndWait(GROUP, NAMESPACE);
say("gone", (await refusal(() => bus.namespaces.get(GROUP, NAMESPACE))).slice(0, 2));
await resources.resourceGroups.beginDeleteAndWait(GROUP);
say("groups", (await names(resources.resourceGroups.list())).includes(GROUP));
