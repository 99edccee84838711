// Lints an OpenAPI document: node lint.mjs FILE prints one line for each problem; nothing is right.
import { readFile } from "node:fs/promises";
import { createConfig, lintFromString } from "@redocly/openapi-core";

const source = await readFile(process.argv[2], "utf8");
const config = await createConfig({ extends: ["recommended-strict"] });
for (const problem of await lintFromString({ source, config })) {
  console.log(`${problem.ruleId} at ${problem.location[0]?.pointer ?? "?"}: ${problem.message}`);
}
