// Translation between the driver protocol's JSON and the objects of @azure/service-bus.
//
// Knows: messages in and out, typed properties and the kinds of errors (tests/sdk/PROTOCOL.md). Does not know:
// clients, senders and receivers. Pure functions; nothing here keeps an object.

import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";

const BODY_TEXT_BYTES_MAX = 1024;
// Later than any expiry that the service would tell: the SDK's way of saying "never".
const NEVER_MS = 253402300799999;

// [name in the protocol, name in the SDK]
const TEXT_PROPERTIES = [
  ["message_id", "messageId"],
  ["subject", "subject"],
  ["session_id", "sessionId"],
  ["partition_key", "partitionKey"],
  ["correlation_id", "correlationId"],
  ["content_type", "contentType"],
  ["reply_to", "replyTo"],
  ["reply_to_session_id", "replyToSessionId"],
  ["to", "to"],
];

export const PROPERTY_TYPES = ["int", "long", "double", "timestamp"];

const KIND_BY_CODE = {
  MessagingEntityNotFound: "not-found",
  MessageSizeExceeded: "message-size",
  MessageLockLost: "lock-lost",
  SessionLockLost: "session-lock-lost",
  SessionCannotBeLocked: "session-cannot-be-locked",
  ServiceTimeout: "timeout",
  OperationTimeoutError: "timeout",
  UnauthorizedAccess: "unauthorized",
  QuotaExceeded: "quota",
  ServiceBusy: "busy",
  MessagingEntityDisabled: "disabled",
  MessageNotFound: "message-not-found",
  MessagingEntityAlreadyExists: "exists",
  // The administration client has names of its own.
  MessageEntityNotFoundError: "not-found",
  MessageEntityAlreadyExistsError: "exists",
  UnauthorizedRequestError: "unauthorized",
  QuotaExceededError: "quota",
  InvalidOperationError: "not-allowed",
  ServerBusyError: "busy",
};

// What the administration client has one code for.
const KIND_BY_STATUS = {
  400: "argument",
  401: "unauthorized",
  403: "quota",
  404: "not-found",
  409: "exists",
  503: "busy",
};

// Codes that the SDK folds into GeneralError and keeps as the first word of the message only.
const KIND_BY_FIRST_WORD = {
  InvalidOperationError: "not-allowed",
  ArgumentError: "argument",
};

/** An error of the driver's own with its kind. */
export class DriverError extends Error {
  constructor(kind, message) {
    super(message);
    this.name = "DriverError";
    this.kind = kind;
  }
}

// After a retry the SDK raises all the errors together; the last one says how it is.
export function errorToJson(raised) {
  const error = raised instanceof AggregateError ? raised.errors.at(-1) : raised;
  const message = String(error?.message ?? error);
  const code = error?.code ?? null;
  const kind =
    error?.kind ??
    KIND_BY_CODE[code] ??
    KIND_BY_STATUS[error?.statusCode] ??
    KIND_BY_FIRST_WORD[message.split(":", 1)[0]] ??
    "other";
  const answer = { kind, type: error?.name ?? typeof error, code: code === null ? null : String(code), message };
  if (error !== raised) answer.tries = raised.errors.map((each) => String(each?.code ?? each?.name ?? each));
  return answer;
}

function madeBody(sizeBytes) {
  const body = Buffer.alloc(sizeBytes);
  for (let index = 0; index < sizeBytes; index++) body[index] = (index * 31 + 7) % 256;
  return body;
}

function bodyFromJson(spec) {
  if (spec.body_base64 != null) return Buffer.from(spec.body_base64, "base64");
  if (spec.body_size != null) return madeBody(spec.body_size);
  return Buffer.from(spec.body ?? "", "utf8");
}

export function messageFromJson(spec) {
  if (spec.annotations != null) return annotatedMessageFromJson(spec);
  const message = { body: bodyFromJson(spec) };
  for (const [name, sdkName] of TEXT_PROPERTIES) {
    if (spec[name] != null) message[sdkName] = spec[name];
  }
  if (spec.ttl_ms != null) message.timeToLive = spec.ttl_ms;
  if (spec.scheduled_at_ms != null) message.scheduledEnqueueTimeUtc = new Date(spec.scheduled_at_ms);
  if (spec.properties != null) message.applicationProperties = propertiesFromJson(spec.properties);
  return message;
}

// Raw annotations go with the SDK's raw form of a message only; of the rest it takes what tests set beside them.
function annotatedMessageFromJson({ annotations, session_id: groupId, message_id: messageId, ...spec }) {
  const properties = { groupId, messageId };
  return { body: bodyFromJson(spec), bodyType: "data", properties, messageAnnotations: annotations };
}

export function messageToJson(message, handle) {
  const body = bodyBytes(message.body);
  const answer = {
    handle,
    body: bodyText(body),
    body_size: body.length,
    body_sha256: createHash("sha256").update(body).digest("hex"),
    ttl_ms: ttlMs(message),
    scheduled_at_ms: instantMs(message.scheduledEnqueueTimeUtc),
    properties: propertiesToJson(message.applicationProperties ?? {}),
    sequence_number: message.sequenceNumber?.toString() ?? null,
    enqueued_at_ms: instantMs(message.enqueuedTimeUtc),
    expires_at_ms: instantMs(message.expiresAtUtc),
    locked_until_ms: handle === null ? null : instantMs(message.lockedUntilUtc),
    delivery_count: message.deliveryCount ?? null,
    state: message.state,
    dead_letter_reason: message.deadLetterReason ?? null,
    dead_letter_description: message.deadLetterErrorDescription ?? null,
    dead_letter_source: message.deadLetterSource ?? null,
  };
  for (const [name, sdkName] of TEXT_PROPERTIES) answer[name] = message[sdkName]?.toString() ?? null;
  return answer;
}

// The SDK's timeToLive of a received message mixes the sender's clock with the server's; what it counts the expiry
// with is the time to live as it was sent.
function ttlMs(message) {
  const expiresAtMs = instantMs(message.expiresAtUtc);
  return message.timeToLive == null || expiresAtMs === null ? null : expiresAtMs - instantMs(message.enqueuedTimeUtc);
}

function bodyBytes(body) {
  if (body == null) return Buffer.alloc(0);
  return Buffer.isBuffer(body) ? body : Buffer.from(typeof body === "string" ? body : JSON.stringify(body), "utf8");
}

function bodyText(body) {
  return body.length <= BODY_TEXT_BYTES_MAX ? textOrNull(body) : null;
}

function textOrNull(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}

export function propertiesFromJson(properties) {
  return Object.fromEntries(Object.entries(properties).map(([name, value]) => [name, propertyFromJson(value)]));
}

function propertiesToJson(properties) {
  return Object.fromEntries(Object.entries(properties).map(([name, value]) => [name, propertyToJson(value)]));
}

function propertyFromJson(value) {
  if (value === null || typeof value !== "object") return value;
  if (!PROPERTY_TYPES.includes(value.type)) {
    throw new TypeError(`@azure/service-bus sends no application property of type ${value.type}`);
  }
  return value.type === "timestamp" ? new Date(value.value) : Number(value.value);
}

// The SDK has one number type, and hands out timestamps as numbers, but for those of a rule's filter in administration.
function propertyToJson(value) {
  if (value === null || typeof value === "string" || typeof value === "boolean") return value;
  if (typeof value === "number") {
    return Number.isInteger(value) ? { type: "long", value: String(value) } : { type: "double", value };
  }
  if (value instanceof Date) return { type: "timestamp", value: value.getTime() };
  if (Buffer.isBuffer(value)) return { type: "binary", value: value.toString("base64") };
  return { type: "other", value: String(value) };
}

/** A rule's filter of the protocol as the SDK's; true and false are SQL there. */
export function ruleFilterFromJson(filter) {
  if (filter.sql != null) return { sqlExpression: filter.sql };
  if (filter.correlation == null) return { sqlExpression: filter.true ? "1=1" : "1=0" };
  const { properties, ...texts } = filter.correlation;
  const made = {};
  for (const [name, sdkName] of TEXT_PROPERTIES) {
    if (texts[name] != null) made[sdkName] = texts[name];
  }
  if (properties != null) made.applicationProperties = propertiesFromJson(properties);
  return made;
}

export function ruleToJson({ name, filter, action }) {
  if (filter.sqlExpression != null) {
    return { name, filter: { sql: filter.sqlExpression }, action: action?.sqlExpression ?? null };
  }
  const correlation = {};
  for (const [textName, sdkName] of TEXT_PROPERTIES) {
    if (filter[sdkName] != null) correlation[textName] = filter[sdkName];
  }
  if (filter.applicationProperties != null) correlation.properties = propertiesToJson(filter.applicationProperties);
  return { name, filter: { correlation }, action: action?.sqlExpression ?? null };
}

/** The state of a message session; the SDK decodes what looks like JSON. */
export function stateToJson(state) {
  if (state == null) return null;
  return (Buffer.isBuffer(state) ? state : Buffer.from(JSON.stringify(state), "utf8")).toString("base64");
}

/** Unix milliseconds of a Date or of the number that the SDK hands out for some instants; null for none and never. */
export function instantMs(instant) {
  const ms = instant instanceof Date ? instant.getTime() : instant;
  return ms == null || Number.isNaN(ms) || ms >= NEVER_MS ? null : ms;
}
