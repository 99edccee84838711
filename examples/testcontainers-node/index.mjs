// emubus in a container, for tests: npm install --save-dev ./examples/testcontainers-node. It starts no SQL Server.
import { readFile } from "node:fs/promises";
import { AbstractStartedContainer, GenericContainer, Wait } from "testcontainers";

const AMQP_PORT = 5672;
const HTTP_PORT = 5300;
const CONFIG_FILE = "/ServiceBus_Emulator/ConfigFiles/Config.json";
const START_MS_MAX = 60_000;

/**
 * A container of the emulator's image, in memory; `start()` resolves when AMQP and HTTP answer. Without a
 * configuration it has one queue, `queue.1`. Further settings are variables of the image:
 * `withEnvironment({ EMUBUS_…: "…" })`.
 */
export class EmubusContainer extends GenericContainer {
  /** @type {string | undefined} */
  #configFile;
  #key = "SAS_KEY_VALUE";

  /** @param {string} [image] */
  constructor(image = "emubus:latest") {
    super(image);
    this.withExposedPorts(AMQP_PORT, HTTP_PORT)
      .withEnvironment({ EMUBUS_DURABILITY: "none" })
      .withWaitStrategy(Wait.forHttp("/health", HTTP_PORT).forStatusCode(200))
      .withStartupTimeout(START_MS_MAX);
  }

  /**
   * The entities: what a Config.json says, as an object or its text.
   * @param {object | string} config
   */
  withConfig(config) {
    const content = typeof config === "string" ? config : JSON.stringify(config);
    return this.withCopyContentToContainer([{ content, target: CONFIG_FILE, mode: 0o644 }]);
  }

  /**
   * The entities: the path of a Config.json. `start()` rejects if there is no such file.
   * @param {string} path
   */
  withConfigFile(path) {
    this.#configFile = path;
    return this;
  }

  /**
   * Whose limits apply.
   * @param {"standard" | "premium" | "ms-emulator" | "relaxed"} profile
   */
  withProfile(profile) {
    return this.withEnvironment({ EMUBUS_PROFILE: profile });
  }

  /**
   * Verify tokens; the root key is `key`.
   * @param {string} key
   */
  withSasKey(key) {
    this.#key = key;
    return this.withEnvironment({ EMUBUS_AUTH: "sas", EMUBUS_SAS_KEY: key });
  }

  /** @returns {Promise<StartedEmubusContainer>} */
  async start() {
    if (this.#configFile !== undefined) this.withConfig(await readFile(this.#configFile, "utf8"));
    return new StartedEmubusContainer(await super.start(), this.#key);
  }
}

export class StartedEmubusContainer extends AbstractStartedContainer {
  #key;

  /**
   * @param {import("testcontainers").StartedTestContainer} container
   * @param {string} key
   */
  constructor(container, key) {
    super(container);
    this.#key = key;
  }

  /** The connection string, from outside of the container, for data and administration clients alike. */
  getConnectionString() {
    return (
      `Endpoint=sb://${this.getHost()}:${this.getMappedPort(AMQP_PORT)};` +
      `SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=${this.#key};UseDevelopmentEmulator=true;`
    );
  }

  /** The URL of the page, the REST interface and the control API, without a final slash. */
  getUrl() {
    return `http://${this.getHost()}:${this.getMappedPort(HTTP_PORT)}`;
  }
}
