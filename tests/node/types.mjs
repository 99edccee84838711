// Generates the types of an OpenAPI document and compiles a client with them: node types.mjs FILE CLIENT.ts prints the
// errors of the compiler, one on each line. CLIENT.ts imports the types from "./api".
import { readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import openapiTS, { astToString } from "openapi-typescript";
import ts from "typescript";

const [document, client] = process.argv.slice(2);
const types = join(dirname(client), "api.ts");
await writeFile(types, astToString(await openapiTS(await readFile(document, "utf8"))));
const options = { noEmit: true, strict: true, lib: ["lib.es2020.d.ts"], types: [] };
for (const each of ts.getPreEmitDiagnostics(ts.createProgram([client], options))) {
  console.log(`TS${each.code}: ${ts.flattenDiagnosticMessageText(each.messageText, " ")}`);
}
