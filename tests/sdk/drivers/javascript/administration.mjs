// The operations of the driver protocol that begin with `admin_`, by the SDK's administration client.
//
// Knows the client's methods: their names are made of the kind of entity, their first arguments are its path. Refuses
// to know what the properties mean (describe.mjs). Owns the client, from the first operation until `reset`; it holds
// nothing that would have to be closed.

import { propertiesFromJson, propertiesToJson, runtimeToJson } from "./describe.mjs";
import { DriverError } from "./translate.mjs";

const CLIENT_OPTIONS = { retryOptions: { maxRetries: 0 } };

// kind of the protocol: [word in the names of the SDK's methods, what lists need to know, member with the name]
const LISTS = {
  queues: ["Queues", [], "name"],
  topics: ["Topics", [], "name"],
  subscriptions: ["Subscriptions", ["topic"], "subscriptionName"],
  rules: ["Rules", ["topic", "subscription"], "name"],
};

export class Administration {
  #makeClient;
  #opened = null;

  /** `makeClient` takes options and gives an administration client. */
  constructor(makeClient) {
    this.#makeClient = makeClient;
  }

  operations = {
    admin_create: async ({ properties, ...ref }) => {
      const { kind, path } = entityOf(ref);
      const made = propertiesFromJson(kind, properties ?? {}, { creating: true });
      const given = kind === "Rule" ? [made.filter, made.action] : [made];
      return { properties: propertiesToJson(kind, await this.#client[`create${kind}`](...path, ...given)) };
    },

    admin_get: async (ref) => {
      const { kind, path } = entityOf(ref);
      return { properties: propertiesToJson(kind, await this.#client[`get${kind}`](...path)) };
    },

    admin_update: async ({ properties, ...ref }) => {
      const { kind, path } = entityOf(ref);
      const entity = await this.#client[`get${kind}`](...path);
      Object.assign(entity, propertiesFromJson(kind, properties, { creating: false }));
      await this.#client[`update${kind}`](...(kind === "Rule" ? path.slice(0, 2) : []), entity);
      return { properties: propertiesToJson(kind, await this.#client[`get${kind}`](...path)) };
    },

    admin_delete: async (ref) => {
      const { kind, path } = entityOf(ref);
      await this.#client[`delete${kind}`](...path);
    },

    // The SDK says false for whatever goes wrong when it looks.
    admin_exists: async (ref) => {
      const { kind, path } = entityOf(ref);
      return { exists: await this.#client[`${kind.toLowerCase()}Exists`](...path) };
    },

    admin_list: async ({ kind, ...ref }) => {
      const { word, path, nameMember } = listOf(kind, ref);
      const names = [];
      for await (const entity of this.#client[`list${word}`](...path)) names.push(entity[nameMember]);
      return { names };
    },

    admin_runtime: async (ref) => {
      const { kind, path } = entityOf(ref);
      return { runtime: runtimeToJson(await this.#method(`get${kind}RuntimeProperties`)(...path)) };
    },

    admin_runtime_list: async ({ kind, ...ref }) => {
      const { word, path, nameMember } = listOf(kind, ref);
      const runtime = {};
      for await (const entity of this.#method(`list${word}RuntimeProperties`)(...path)) {
        runtime[entity[nameMember]] = runtimeToJson(entity);
      }
      return { runtime };
    },

    admin_namespace: async () => {
      const { name, messagingSku: sku, messagingUnits } = await this.#client.getNamespaceProperties();
      return { name, sku, messaging_units: messagingUnits };
    },
  };

  /** Forget the client; the next operation makes a new one. */
  reset() {
    this.#opened = null;
  }

  get #client() {
    this.#opened ??= this.#makeClient(CLIENT_OPTIONS);
    return this.#opened;
  }

  /** A method that not every kind of entity has. */
  #method(name) {
    const method = this.#client[name];
    if (method === undefined) throw new DriverError("other", `@azure/service-bus has no ${name}`);
    return method.bind(this.#client);
  }
}

/** The kind of an entity in the SDK's words, and the texts that name it there. */
function entityOf({ queue, topic, subscription, rule }) {
  if (queue != null) return { kind: "Queue", path: [queue] };
  if (topic == null) throw new DriverError("other", "neither a queue nor a topic is named");
  if (subscription == null) return { kind: "Topic", path: [topic] };
  if (rule == null) return { kind: "Subscription", path: [topic, subscription] };
  return { kind: "Rule", path: [topic, subscription, rule] };
}

function listOf(kind, ref) {
  if (LISTS[kind] === undefined) throw new DriverError("other", `unknown kind ${kind}`);
  const [word, parents, nameMember] = LISTS[kind];
  return { word, path: parents.map((name) => ref[name]), nameMember };
}
