// The report of a test that fails says what emubus knows of it. Copy this file; in vitest.config.mjs:
//   export default { test: { setupFiles: ["./emubus-vitest.mjs"] } };
// EMUBUS_URL is the address of the control API, http://localhost:5300 without it.
import { beforeEach } from "vitest";

const control = `${process.env.EMUBUS_URL ?? "http://localhost:5300"}/emubus/v1`;

async function asked(path) {
  const answer = await fetch(control + path, { signal: AbortSignal.timeout(5000) });
  if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
  return answer;
}

// By the broker's clock, which tests may have moved.
const now = async () => (await (await asked("/clock")).json()).now_ms;

beforeEach(async ({ onTestFailed }) => {
  const since = await now().catch(() => 0);
  onTestFailed(async () => {
    const report = await asked(`/report/text?since=${since}`)
      .then((answer) => answer.text())
      .catch((error) => `emubus can't be asked what happened: ${error.message}\n`);
    if (report) console.error(`emubus\n${report}`);
  });
});
