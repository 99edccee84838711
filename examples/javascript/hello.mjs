// Sends a message to queue.1 and receives it: npm install, then node hello.mjs.
import { ServiceBusClient } from "@azure/service-bus";

const connectionString =
  process.env.SERVICEBUS_CONNECTION_STRING ??
  "Endpoint=sb://localhost:5672;SharedAccessKeyName=RootManageSharedAccessKey;" +
    "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true";

const client = new ServiceBusClient(connectionString);
await client.createSender("queue.1").sendMessages({ body: "hello" });
const receiver = client.createReceiver("queue.1");
for (const message of await receiver.receiveMessages(1)) {
  console.log(`received: ${message.body}`);
  await receiver.completeMessage(message);
}
await client.close();
