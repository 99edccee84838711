// Translation between the driver protocol's JSON and what the administration client says of entities.
//
// Knows the properties of queues, topics, subscriptions and rules, and what is counted of them (tests/sdk/PROTOCOL.md).
// Does not know the client. Pure functions; nothing here keeps an object.

import { DriverError, instantMs, ruleFilterFromJson, ruleToJson } from "./translate.mjs";

const DAY_MS = 86_400_000;
// Longer than any duration that somebody means: the service's way of saying "for ever".
const FOREVER_MS = 10_000_000 * DAY_MS;
const DURATION = /^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?$/;

// How values are written in the SDK; what is absent is undefined there and null here.
const AS_IS = { toSdk: (value) => value, toJson: (value) => value };
const SPAN = { toSdk: (ms) => `PT${ms / 1000}S`, toJson: durationMs };
const LIMIT = { ...SPAN, toJson: (text) => (durationMs(text) > FOREVER_MS ? null : durationMs(text)) };
const ENTITY = { toSdk: (name) => name, toJson: (address) => address.split("/").at(-1) };
const KEYS = { toSdk: (rules) => rules.map(keyFromJson), toJson: (rules) => rules.map(keyToJson) };
const DEFAULT_RULE = { toSdk: defaultRuleFromJson, createOnly: true };
const SHOWN = { toJson: (value) => value };

// name in the protocol: [name in the SDK, how its value is written]
const PROPERTIES = {
  lock_duration_ms: ["lockDuration", SPAN],
  max_size_mb: ["maxSizeInMegabytes", AS_IS],
  requires_duplicate_detection: ["requiresDuplicateDetection", AS_IS],
  requires_session: ["requiresSession", AS_IS],
  default_ttl_ms: ["defaultMessageTimeToLive", LIMIT],
  dead_lettering_on_expiration: ["deadLetteringOnMessageExpiration", AS_IS],
  dead_lettering_on_filter_error: ["deadLetteringOnFilterEvaluationExceptions", AS_IS],
  duplicate_window_ms: ["duplicateDetectionHistoryTimeWindow", SPAN],
  max_delivery_count: ["maxDeliveryCount", AS_IS],
  enable_batched_operations: ["enableBatchedOperations", AS_IS],
  status: ["status", AS_IS],
  auto_delete_on_idle_ms: ["autoDeleteOnIdle", LIMIT],
  enable_partitioning: ["enablePartitioning", AS_IS],
  forward_to: ["forwardTo", ENTITY],
  forward_dead_letters_to: ["forwardDeadLetteredMessagesTo", ENTITY],
  user_metadata: ["userMetadata", AS_IS],
  enable_express: ["enableExpress", AS_IS],
  max_message_size_kb: ["maxMessageSizeInKilobytes", AS_IS],
  supports_ordering: ["supportOrdering", AS_IS],
  availability: ["availabilityStatus", SHOWN],
  authorization_rules: ["authorizationRules", KEYS],
  default_rule: ["defaultRuleOptions", DEFAULT_RULE],
};

const OF_ALL = [
  "default_ttl_ms",
  "enable_batched_operations",
  "status",
  "auto_delete_on_idle_ms",
  "user_metadata",
  "availability",
];
const OF_TOP_LEVEL = [
  ...OF_ALL,
  "max_size_mb",
  "requires_duplicate_detection",
  "duplicate_window_ms",
  "enable_partitioning",
  "enable_express",
  "max_message_size_kb",
  "authorization_rules",
];
const OF_RECEIVED_FROM = [
  ...OF_ALL,
  "lock_duration_ms",
  "requires_session",
  "dead_lettering_on_expiration",
  "max_delivery_count",
  "forward_to",
  "forward_dead_letters_to",
];
const OF = {
  Queue: new Set([...OF_TOP_LEVEL, ...OF_RECEIVED_FROM]),
  Topic: new Set([...OF_TOP_LEVEL, "supports_ordering"]),
  Subscription: new Set([...OF_RECEIVED_FROM, "dead_lettering_on_filter_error", "default_rule"]),
  Rule: new Set(["filter", "action"]),
};

// [name in the protocol, name in the SDK]
const COUNTS = [
  ["active_count", "activeMessageCount"],
  ["dead_letter_count", "deadLetterMessageCount"],
  ["scheduled_count", "scheduledMessageCount"],
  ["transfer_count", "transferMessageCount"],
  ["transfer_dead_letter_count", "transferDeadLetterMessageCount"],
  ["total_count", "totalMessageCount"],
  ["subscription_count", "subscriptionCount"],
  ["size_bytes", "sizeInBytes"],
];
const INSTANTS = [
  ["created_at_ms", "createdAt"],
  ["updated_at_ms", "modifiedAt"],
  ["accessed_at_ms", "accessedAt"],
];

/** What a request sets, as members of the SDK's object for that kind of entity; null clears. */
export function propertiesFromJson(kind, properties, { creating }) {
  for (const name of Object.keys(properties)) {
    const written = PROPERTIES[name]?.[1] ?? AS_IS;
    if (!OF[kind].has(name) || written.toSdk === undefined || (written.createOnly && !creating)) {
      throw new DriverError("other", `@azure/service-bus sets no property ${name} of a ${kind}`);
    }
  }
  return kind === "Rule" ? ruleFromJson(properties) : entityFromJson(properties);
}

/** What the SDK shows of an entity. */
export function propertiesToJson(kind, shown) {
  if (kind === "Rule") {
    const { filter, action } = ruleToJson(shown);
    return { filter, action };
  }
  const properties = {};
  for (const name of OF[kind]) {
    const [sdkName, { toJson }] = PROPERTIES[name];
    if (toJson !== undefined) properties[name] = shown[sdkName] == null ? null : toJson(shown[sdkName]);
  }
  return properties;
}

/** What the SDK counts of an entity; what it does not count is left out. */
export function runtimeToJson(shown) {
  const counts = COUNTS.map(([name, sdkName]) => [name, shown[sdkName]]);
  const instants = INSTANTS.map(([name, sdkName]) => [name, instantMs(shown[sdkName])]);
  return Object.fromEntries([...counts, ...instants]);
}

function entityFromJson(properties) {
  const made = {};
  for (const [name, value] of Object.entries(properties)) {
    const [sdkName, { toSdk }] = PROPERTIES[name];
    made[sdkName] = value === null ? undefined : toSdk(value);
  }
  return made;
}

function ruleFromJson(properties) {
  const made = {};
  if ("filter" in properties) made.filter = ruleFilterFromJson(properties.filter);
  if ("action" in properties) made.action = actionFromJson(properties.action);
  return made;
}

function actionFromJson(expression) {
  return expression == null ? undefined : { sqlExpression: expression };
}

function defaultRuleFromJson({ name, filter, action }) {
  return { name, filter: ruleFilterFromJson(filter), action: actionFromJson(action) };
}

function keyFromJson({ name, rights, primary_key: primaryKey, secondary_key: secondaryKey }) {
  return {
    claimType: "SharedAccessKey",
    keyName: name,
    accessRights: rights,
    primaryKey: primaryKey ?? undefined,
    secondaryKey: secondaryKey ?? undefined,
  };
}

function keyToJson({ keyName, accessRights, primaryKey, secondaryKey }) {
  return {
    name: keyName,
    rights: [...(accessRights ?? [])].sort(),
    primary_key: primaryKey,
    secondary_key: secondaryKey,
  };
}

/** The milliseconds of an ISO 8601 duration, as the SDK leaves it. */
function durationMs(text) {
  const parts = DURATION.exec(text);
  if (parts === null) throw new DriverError("other", `no duration: ${text}`);
  const [days, hours, minutes, seconds] = parts.slice(1).map((part) => Number(part ?? 0));
  return days * DAY_MS + hours * 3_600_000 + minutes * 60_000 + Math.round(seconds * 1000);
}
