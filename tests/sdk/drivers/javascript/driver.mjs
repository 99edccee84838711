// Driver of @azure/service-bus for the behaviour tests:
// node driver.mjs [<package>] [ca=<file>] [transport=<transport>] <connection string>.
//
// The package is the name under which a version of the SDK is installed; package.json has them.
//
// Speaks the protocol of tests/sdk/PROTOCOL.md on stdin and stdout. Knows the SDK's client for data, its senders and
// receivers; how clients are made is in connecting.mjs, administration in administration.mjs, the translation of
// messages and errors in translate.mjs. One Driver owns the clients and every sender, receiver and message handle;
// `reset` and `close` give them back.

import { Buffer } from "node:buffer";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import Long from "long";
import { Administration } from "./administration.mjs";
import { Connecting, readArguments, runTrusting } from "./connecting.mjs";
import {
  DriverError,
  PROPERTY_TYPES,
  errorToJson,
  instantMs,
  messageFromJson,
  messageToJson,
  propertiesFromJson,
  ruleFilterFromJson,
  ruleToJson,
  stateToJson,
} from "./translate.mjs";

const ARGUMENTS = readArguments(process.argv.slice(2));
const status = await runTrusting(ARGUMENTS);
if (status !== null) process.exit(status);

const sdk = await import(ARGUMENTS.packageName);

const CLIENT_OPTIONS = {
  retryOptions: { maxRetries: 1, retryDelayInMs: 100, timeoutInMs: 20000, mode: sdk.RetryMode.Fixed },
};
const RETRIES = ({ max, delay_ms: delayMs, try_ms: tryMs }) => ({
  ...(max == null ? {} : { maxRetries: max }),
  ...(delayMs == null ? {} : { retryDelayInMs: delayMs }),
  ...(tryMs == null ? {} : { timeoutInMs: tryMs }),
});
const CLOSE_MS_MAX = 15000;
const SUB_QUEUES = { "dead-letter": "deadLetter", "transfer-dead-letter": "transferDeadLetter" };
const MODES = { "peek-lock": "peekLock", "receive-and-delete": "receiveAndDelete" };

const SETTLEMENTS = {
  complete: (link, message) => link.completeMessage(message),
  abandon: (link, message, { properties }) => link.abandonMessage(message, properties),
  defer: (link, message, { properties }) => link.deferMessage(message, properties),
  "dead-letter": (link, message, { reason, description, properties }) =>
    link.deadLetterMessage(message, {
      ...properties,
      ...(reason == null ? {} : { deadLetterReason: reason }),
      ...(description == null ? {} : { deadLetterErrorDescription: description }),
    }),
};

function sdkVersion() {
  const url = new URL(`node_modules/${ARGUMENTS.packageName}/package.json`, import.meta.url);
  return JSON.parse(readFileSync(url, "utf8")).version;
}

/** One open receiver and the messages that were received through it and are not settled yet. */
class Receiver {
  constructor(link, locks) {
    this.link = link;
    this.locks = locks;
    this.messages = new Map();
    this.count = 0;
  }

  answer(messages) {
    return { messages: messages.map((message) => messageToJson(message, this.#handle(message))) };
  }

  held(handle) {
    if (!this.messages.has(handle)) throw new DriverError("other", `no message ${handle}`);
    return this.messages.get(handle);
  }

  #handle(message) {
    if (!this.locks) return null;
    const handle = `m${++this.count}`;
    this.messages.set(handle, message);
    return handle;
  }
}

class Driver {
  #connecting;
  #administration;
  #client = null;
  #retryOptions = CLIENT_OPTIONS.retryOptions;
  #waitingClients = new Map();
  #senders = new Map();
  #receivers = new Map();
  #receiverCount = 0;
  closed = false;

  constructor(connecting) {
    this.#connecting = connecting;
    this.#administration = new Administration((options) => connecting.administrationClient(options));
  }

  /** The answer to one request; every error of the SDK becomes an error answer. */
  async handle({ id, op, ...options }) {
    try {
      const operation = this.operations[op] ?? this.#administration.operations[op];
      if (operation === undefined) throw new DriverError("other", `unknown operation ${op}`);
      return { id, ok: true, result: (await operation(options)) ?? {} };
    } catch (error) {
      return { id, ok: false, error: errorToJson(error) };
    }
  }

  operations = {
    hello: () => ({
      client: "javascript",
      sdk: `@azure/service-bus ${sdkVersion()}`,
      property_types: PROPERTY_TYPES,
      features: [
        ...("createRuleManager" in this.#openedClient() ? ["rules"] : []),
        "administration",
        ...(this.#deletesMessages() ? ["delete_messages"] : []),
      ],
    }),

    send: ({ entity, messages, how }) =>
      this.#sending(entity, async (sender) => {
        const made = messages.map(messageFromJson);
        if (how === "single") {
          for (const message of made) await sender.sendMessages(message);
        } else if (how === "list") {
          await sender.sendMessages(made);
        } else {
          const batch = await sender.createMessageBatch();
          for (const message of made) {
            if (!batch.tryAddMessage(message)) throw new DriverError("message-size", "the batch takes no more");
          }
          await sender.sendMessages(batch);
        }
      }),

    fill_batch: ({ entity, body_bytes: bodyBytes, max_bytes: maxBytes }) =>
      this.#sending(entity, async (sender) => {
        const batch = await sender.createMessageBatch(maxBytes == null ? {} : { maxSizeInBytes: maxBytes });
        const message = messageFromJson({ body_size: bodyBytes });
        while (batch.tryAddMessage(message));
        await sender.sendMessages(batch);
        return { count: batch.count };
      }),

    receiver_open: (options) => ({ receiver: this.#kept(this.#receiver(options), options.mode) }),

    session_accept: async ({ entity, subscription, session_id: sessionId, mode, wait_ms: waitMs }) => {
      const options = { receiveMode: MODES[mode], maxAutoLockRenewalDurationInMs: 0, skipParsingBodyAsJson: true };
      const client = this.#clientWaiting(waitMs);
      const path = subscription == null ? [entity] : [entity, subscription];
      const link =
        sessionId == null
          ? await client.acceptNextSession(...path, options)
          : await client.acceptSession(...path, sessionId, options);
      const lockedUntilMs = instantMs(link.sessionLockedUntilUtc);
      return { receiver: this.#kept(link, mode), session_id: link.sessionId, locked_until_ms: lockedUntilMs };
    },

    receive: async ({ receiver, max, wait_ms: waitMs }) => {
      const opened = this.#opened(receiver);
      return opened.answer(await opened.link.receiveMessages(max, { maxWaitTimeInMs: waitMs }));
    },

    settle: async ({ receiver, message, action, properties, ...options }) => {
      const opened = this.#opened(receiver);
      const settlement = SETTLEMENTS[action];
      if (settlement === undefined) throw new DriverError("other", `unknown action ${action}`);
      const changes = properties == null ? undefined : propertiesFromJson(properties);
      await settlement(opened.link, opened.held(message), { ...options, properties: changes });
      opened.messages.delete(message);
    },

    renew_lock: async ({ receiver, message }) => {
      const opened = this.#opened(receiver);
      return { locked_until_ms: instantMs(await opened.link.renewMessageLock(opened.held(message))) };
    },

    peek: async ({ receiver, max, from_sequence_number: from }) => {
      const options = from == null ? {} : { fromSequenceNumber: Long.fromString(from) };
      const messages = await this.#opened(receiver).link.peekMessages(max, options);
      return { messages: messages.map((message) => messageToJson(message, null)) };
    },

    receive_deferred: async ({ receiver, sequence_numbers: numbers }) => {
      const opened = this.#opened(receiver);
      return opened.answer(await opened.link.receiveDeferredMessages(numbers.map((number) => Long.fromString(number))));
    },

    session_renew: async ({ receiver }) => ({
      locked_until_ms: instantMs(await this.#opened(receiver).link.renewSessionLock()),
    }),

    session_get_state: async ({ receiver }) => ({
      state_base64: stateToJson(await this.#opened(receiver).link.getSessionState()),
    }),

    session_set_state: ({ receiver, state_base64: state }) =>
      this.#opened(receiver).link.setSessionState(state == null ? null : Buffer.from(state, "base64")),

    schedule: ({ entity, messages, at_ms: atMs }) =>
      this.#sending(entity, async (sender) => {
        const numbers = await sender.scheduleMessages(messages.map(messageFromJson), new Date(atMs));
        return { sequence_numbers: numbers.map((number) => number.toString()) };
      }),

    cancel_scheduled: ({ entity, sequence_numbers: numbers }) =>
      this.#sending(entity, (sender) =>
        sender.cancelScheduledMessages(numbers.map((number) => Long.fromString(number))),
      ),

    rule_add: ({ entity, subscription, name, filter, action }) =>
      this.#rules(entity, subscription).createRule(
        name,
        ruleFilterFromJson(filter),
        action == null ? undefined : { sqlExpression: action },
      ),

    rule_list: async ({ entity, subscription }) => {
      const rules = [];
      for await (const rule of this.#rules(entity, subscription).listRules()) rules.push(ruleToJson(rule));
      return { rules };
    },

    rule_remove: ({ entity, subscription, name }) => this.#rules(entity, subscription).deleteRule(name),

    delete_messages: async ({ max, before_ms: beforeMs, ...options }) => {
      const link = this.#receiver({ ...options, mode: "peek-lock" });
      try {
        return { count: await link.deleteMessages({ maxMessageCount: max, beforeEnqueueTime: new Date(beforeMs) }) };
      } finally {
        await link.close();
      }
    },

    receiver_close: async ({ receiver }) => {
      const opened = this.#opened(receiver);
      this.#receivers.delete(receiver);
      await opened.link.close();
    },

    reset: async ({ retries, ...reach }) => {
      await this.reset();
      await this.#connecting.reach(reach);
      this.#retryOptions = { ...CLIENT_OPTIONS.retryOptions, ...RETRIES(retries ?? {}) };
    },

    close: async () => {
      this.closed = true;
      await this.reset();
    },
  };

  /** Close the clients with all their links; the next request opens a new one. */
  async reset() {
    const clients = [this.#client, ...this.#waitingClients.values()];
    this.#client = null;
    this.#waitingClients.clear();
    this.#senders.clear();
    this.#receivers.clear();
    this.#administration.reset();
    for (const client of clients) await client?.close();
  }

  #openedClient() {
    this.#client ??= this.#connecting.dataClient({ retryOptions: this.#retryOptions });
    return this.#client;
  }

  /** The client whose try timeout, which the SDK asks the server to wait for a message session, is `waitMs`. */
  #clientWaiting(waitMs) {
    const retryOptions = this.#retryOptions;
    if (waitMs === retryOptions.timeoutInMs) return this.#openedClient();
    if (!this.#waitingClients.has(waitMs)) {
      const options = { retryOptions: { ...retryOptions, maxRetries: 0, timeoutInMs: waitMs } };
      this.#waitingClients.set(waitMs, this.#connecting.dataClient(options));
    }
    return this.#waitingClients.get(waitMs);
  }

  #receiver({ entity, subscription, sub_queue: subQueue, mode, renewing }) {
    const options = { receiveMode: MODES[mode], skipParsingBodyAsJson: true };
    if (!renewing) options.maxAutoLockRenewalDurationInMs = 0;
    if (subQueue != null) options.subQueueType = SUB_QUEUES[subQueue];
    const client = this.#openedClient();
    return subscription == null
      ? client.createReceiver(entity, options)
      : client.createReceiver(entity, subscription, options);
  }

  /** Whether this version of the SDK has the operation: making a receiver opens nothing. */
  #deletesMessages() {
    return typeof this.#receiver({ entity: "any", mode: "peek-lock" }).deleteMessages === "function";
  }

  #kept(link, mode) {
    const receiver = `r${++this.#receiverCount}`;
    this.#receivers.set(receiver, new Receiver(link, mode === "peek-lock"));
    return receiver;
  }

  #rules(entity, subscription) {
    return this.#openedClient().createRuleManager(entity, subscription);
  }

  #opened(receiver) {
    const opened = this.#receivers.get(receiver);
    if (opened === undefined) throw new DriverError("other", `no receiver ${receiver}`);
    return opened;
  }

  /** Run a send with the entity's sender; a sender whose send failed is closed and forgotten. */
  async #sending(entity, send) {
    if (!this.#senders.has(entity)) this.#senders.set(entity, this.#openedClient().createSender(entity));
    const sender = this.#senders.get(entity);
    try {
      return await send(sender);
    } catch (error) {
      this.#senders.delete(entity);
      await sender.close();
      throw error;
    }
  }
}

// What fails behind a request's back is for the reader of stderr; it must not end the driver.
process.on("unhandledRejection", (reason) => console.error("unhandled rejection:", reason));

const driver = new Driver(new Connecting(sdk, ARGUMENTS));
for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  process.stdout.write(`${JSON.stringify(await driver.handle(JSON.parse(line)))}\n`);
  if (driver.closed) break;
}
// Old SDKs wait for minutes when a client is closed whose operation was given up, or leave a timer behind.
const closed = await Promise.race([driver.reset().then(() => true), delay(CLOSE_MS_MAX, false)]);
if (!closed) console.error(`a client did not close within ${CLOSE_MS_MAX} ms`);
process.exit(0);
