// The report of a test that fails says what emubus knows of it. Copy this file; in jest.config.mjs:
//   export default { testEnvironment: "./emubus-jest.mjs" };
// EMUBUS_URL is the address of the control API, http://localhost:5300 without it.
import { TestEnvironment } from "jest-environment-node";

const control = `${process.env.EMUBUS_URL ?? "http://localhost:5300"}/emubus/v1`;

async function asked(path) {
  const answer = await fetch(control + path, { signal: AbortSignal.timeout(5000) });
  if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
  return answer;
}

// By the broker's clock, which tests may have moved.
const now = async () => (await (await asked("/clock")).json()).now_ms;

export default class EmubusEnvironment extends TestEnvironment {
  since = 0;

  async handleTestEvent(event) {
    if (event.name === "test_start") {
      this.since = await now().catch(() => 0);
    } else if (event.name === "test_fn_failure" || event.name === "hook_failure") {
      const report = await asked(`/report/text?since=${this.since}`)
        .then((answer) => answer.text())
        .catch((error) => `emubus can't be asked what happened: ${error.message}\n`);
      // Jest shows the message of the error, which is the beginning of its stack.
      if (report && event.error?.stack) event.error.stack += `\n\nemubus\n${report}`;
    }
  }
}
