// npm install, then node --test. Not run by a test of this repository; tried by hand with Docker.
// A generic container: the module for Service Bus also starts an SQL Server.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { ServiceBusClient } from "@azure/service-bus";
import { GenericContainer, Wait } from "testcontainers";

let container;
let client;

before(async () => {
  container = await new GenericContainer("emubus:latest")
    .withExposedPorts(5672, 5300)
    .withEnvironment({ EMUBUS_DURABILITY: "none", EMUBUS_QUEUES: "orders,steps?sessions" })
    .withWaitStrategy(Wait.forHttp("/health", 5300))
    .start();
  client = new ServiceBusClient(
    `Endpoint=sb://${container.getHost()}:${container.getMappedPort(5672)};` +
      "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true",
  );
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
