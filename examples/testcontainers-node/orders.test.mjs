// npm install, then node --test where Docker is. Not run by a test of this repository; it was tried by hand.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { ServiceBusClient } from "@azure/service-bus";
import { EmubusContainer } from "emubus-testcontainers";

const config = { UserConfig: { Namespaces: [{ Name: "sbemulatorns", Queues: [{ Name: "orders" }] }] } };
let container;
let client;

before(async () => {
  container = await new EmubusContainer().withConfig(config).start();
  client = new ServiceBusClient(container.getConnectionString());
});

after(async () => {
  await client?.close();
  await container?.stop();
});

test("an order arrives", async () => {
  await client.createSender("orders").sendMessages({ body: "order 7" });
  const receiver = client.createReceiver("orders");
  const [message] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 5000 });
  assert.equal(message.body, "order 7");
  await receiver.completeMessage(message);
});
