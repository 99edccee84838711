// Starts the container of a module of examples/, prints what its methods say as JSON, and stops it:
// node container.mjs MODULE '{"config": …, "configFile": PATH, "profile": NAME, "sasKey": KEY}'. An error is its message.
// Reads a line from stdin before it stops the container.
import { once } from "node:events";

const [module, options] = process.argv.slice(2);
const { config, configFile, profile, sasKey } = JSON.parse(options);
const { EmubusContainer } = await import(module);
const wanted = new EmubusContainer("emubus:1.2");
if (config !== undefined) wanted.withConfig(config);
if (configFile !== undefined) wanted.withConfigFile(configFile);
if (profile !== undefined) wanted.withProfile(profile);
if (sasKey !== undefined) wanted.withSasKey(sasKey);
let container;
try {
  container = await wanted.start();
} catch (error) {
  console.log(JSON.stringify({ error: error.message }));
  process.exit(1);
}
console.log(JSON.stringify({ connectionString: container.getConnectionString(), url: container.getUrl() }));
await once(process.stdin, "data");
await container.stop();
process.exit(0);
