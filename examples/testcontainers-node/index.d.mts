// Made from index.mjs by the compiler of TypeScript; a test of this repository compares them.
/**
 * A container of the emulator's image, in memory; `start()` resolves when AMQP and HTTP answer. Without a
 * configuration it has one queue, `queue.1`. Further settings are variables of the image:
 * `withEnvironment({ EMUBUS_…: "…" })`.
 */
export class EmubusContainer extends GenericContainer {
    /** @param {string} [image] */
    constructor(image?: string);
    /**
     * The entities: what a Config.json says, as an object or its text.
     * @param {object | string} config
     */
    withConfig(config: object | string): this;
    /**
     * The entities: the path of a Config.json. `start()` rejects if there is no such file.
     * @param {string} path
     */
    withConfigFile(path: string): this;
    /**
     * Whose limits apply.
     * @param {"standard" | "premium" | "ms-emulator" | "relaxed"} profile
     */
    withProfile(profile: "standard" | "premium" | "ms-emulator" | "relaxed"): this;
    /**
     * Verify tokens; the root key is `key`.
     * @param {string} key
     */
    withSasKey(key: string): this;
    /** @returns {Promise<StartedEmubusContainer>} */
    start(): Promise<StartedEmubusContainer>;
    #private;
}
export class StartedEmubusContainer extends AbstractStartedContainer {
    /**
     * @param {import("testcontainers").StartedTestContainer} container
     * @param {string} key
     */
    constructor(container: import("testcontainers").StartedTestContainer, key: string);
    /** The connection string, from outside of the container, for data and administration clients alike. */
    getConnectionString(): string;
    /** The URL of the page, the REST interface and the control API, without a final slash. */
    getUrl(): string;
    #private;
}
import { GenericContainer } from "testcontainers";
import { AbstractStartedContainer } from "testcontainers";
