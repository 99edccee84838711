// How the SDK's clients find the server and whom they trust: the arguments of the driver, and the options of the
// clients that come of them.
//
// Knows what a user has to pass, too, for a port, a CA or a transport of its own. Does not know what is done with the
// clients: the caller owns it.

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import WebSocket from "ws";

const TRUSTED_BY_NODE = "NODE_EXTRA_CA_CERTS";
const TRANSPORTS = ["amqp", "websocket"];

const ENDPOINT = /(Endpoint=sb:\/\/)([^/;]*)/;

// Older versions know no connection string of an emulator: they want TLS. Without it, and on another port, they reach a
// server through a WebSocket of the user's only.
const WANTS_TLS = /^service-bus-\d+\.\d+\.\d+$/;

/** The WebSocket for servers without TLS: the SDK names every address with `wss:`, and older versions with their own
 * port behind that of the connection string. */
class PlainWebSocket extends WebSocket {
  constructor(url, protocols, options) {
    super(url.replace(/^wss:/, "ws:").replace(/(:\d+):443\//, "$1/"), protocols, options);
  }
}

// In Node.js, these trust the CA of the environment, and libraries ask Microsoft first whether they may trust another
// directory than its own.
const CREDENTIALS = {
  default: ({ DefaultAzureCredential }) => new DefaultAzureCredential(),
  "managed-identity": ({ ManagedIdentityCredential }, { client_id: clientId }) =>
    clientId == null ? new ManagedIdentityCredential() : new ManagedIdentityCredential({ clientId }),
  "client-secret": ({ ClientSecretCredential }, { tenant_id: tenantId, client_id: clientId, secret }) =>
    new ClientSecretCredential(tenantId, clientId, secret, { disableInstanceDiscovery: true }),
  "workload-identity": ({ WorkloadIdentityCredential }, { tenant_id: tenantId, client_id: clientId, token_file: file }) =>
    new WorkloadIdentityCredential({ tenantId, clientId, tokenFilePath: file, disableInstanceDiscovery: true }),
};

export class Connecting {
  #connectionString;
  #ca;
  #overWebSocket;
  #sdk;
  #credential = null;
  #namespace = null;
  #address = null;

  /** `sdk` is the SDK's module; the rest is what `readArguments` gives. */
  constructor(sdk, { packageName, connectionString, ca, transport }) {
    this.#sdk = sdk;
    this.#connectionString = connectionString;
    this.#ca = ca;
    this.#overWebSocket = transport === "websocket" || WANTS_TLS.test(packageName);
  }

  /** What the next clients have in place of the key, the host and the address of the connection string. */
  async reach({ credential, namespace, address }) {
    const make = credential == null ? () => null : CREDENTIALS[credential.kind];
    if (make === undefined) throw new TypeError(`unknown credential ${credential.kind}`);
    this.#credential = make(credential == null ? null : await import("@azure/identity"), credential);
    this.#namespace = namespace ?? null;
    this.#address = address ?? null;
  }

  /** A client for data; it takes the port, and whether there is TLS, from the connection string. */
  dataClient(options) {
    const { ServiceBusClient } = this.#sdk;
    const address = this.#addressed();
    const named = this.#namespace ?? (this.#credential === null ? address : address.replace(/:\d+$/, ""));
    const own = named === address ? {} : { customEndpointAddress: `sb://${address}` };
    const all = { ...options, ...this.#webSocketOptions(), ...own };
    return this.#credential === null
      ? new ServiceBusClient(this.#written(named), all)
      : new ServiceBusClient(named, this.#credential, all);
  }

  /** A client for administration: https with the port of the connection string, unless it is one for an emulator and
   * the SDK heeds that. It connects to the host that it names, whatever the namespace is. */
  administrationClient(options) {
    const { ServiceBusAdministrationClient } = this.#sdk;
    const trust = this.#ca === null ? {} : { tlsOptions: { ca: readFileSync(this.#ca) } };
    const all = { ...options, ...trust };
    return this.#credential === null
      ? new ServiceBusAdministrationClient(this.#written(this.#addressed()), all)
      : new ServiceBusAdministrationClient(this.#addressed(), this.#credential, all);
  }

  #addressed() {
    return this.#address ?? ENDPOINT.exec(this.#connectionString)[2];
  }

  #written(host) {
    return this.#connectionString.replace(ENDPOINT, `$1${host}`);
  }

  #webSocketOptions() {
    if (!this.#overWebSocket) return {};
    if (isForEmulator(this.#connectionString)) return { webSocketOptions: { webSocket: PlainWebSocket } };
    const trust = this.#ca === null ? {} : { ca: readFileSync(this.#ca) };
    return { webSocketOptions: { webSocket: WebSocket, webSocketConstructorOptions: trust } };
  }
}

/** The arguments of the driver: `[<package>] [ca=<file>] [transport=<transport>] <connection string>`. */
export function readArguments(words) {
  const read = { packageName: "@azure/service-bus", ca: null, transport: "amqp", connectionString: words.at(-1) };
  for (const word of words.slice(0, -1)) {
    const [name, ...value] = word.split("=");
    if (value.length === 0) read.packageName = word;
    else if (name === "ca" || name === "transport") read[name] = value.join("=");
    else throw new TypeError(`unknown argument ${word}: known are ca=, transport= and the name of a package`);
  }
  if (!TRANSPORTS.includes(read.transport)) {
    throw new TypeError(`unknown transport ${read.transport}: known are ${TRANSPORTS.join(", ")}`);
  }
  return read;
}

/**
 * Run the program again with the CA in its environment, if it needs that; its exit status, null if it need not.
 *
 * AMQP in TLS trusts what Node.js trusts: the SDK has no option for it, and Node.js reads the environment only when it
 * starts. The second process ends with this one, however this one ends.
 */
export async function runTrusting({ ca, transport, connectionString }) {
  if (ca === null || transport !== "amqp" || isForEmulator(connectionString)) return null;
  if (process.env[TRUSTED_BY_NODE] === ca) {
    process.once("disconnect", () => process.exit(1));
    process.channel?.unref();
    return null;
  }
  const child = spawn(process.execPath, process.argv.slice(1), {
    env: { ...process.env, [TRUSTED_BY_NODE]: ca },
    stdio: ["inherit", "inherit", "inherit", "ipc"],
  });
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (status) => resolve(status ?? 1));
  });
}

function isForEmulator(connectionString) {
  return /;\s*UseDevelopmentEmulator\s*=\s*true/i.test(connectionString);
}
