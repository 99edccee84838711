// Sends an order and processes it once, whatever the service does meanwhile; with `fragile` it hopes for the best.
import { setTimeout as pause } from "node:timers/promises";
import { ServiceBusClient } from "@azure/service-bus";

const QUEUE = "queue.1", TRIES = 60, PAUSE_MS = 1000;
const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING, {
  retryOptions: { retryDelayInMs: 500, timeoutInMs: 5000 }, // 30 and 60 seconds as a rule
});

// The id is the order's: a second try after a lost outcome is no second order.
async function send(order) {
  for (let left = TRIES; left > 0; left--) {
    const sender = client.createSender(QUEUE);
    try {
      return await sender.sendMessages({ body: "an order", messageId: order });
    } catch (error) { // also MessagingEntityNotFound, and an AggregateError after several tries
      await pause(PAUSE_MS);
    } finally {
      await sender.close();
    }
  }
  throw new Error(`${order} was not accepted`);
}

// Until two receives in a row find nothing: one alone may be empty although there are messages.
async function process_() {
  const done = new Set(); // in a program: a table, written in one transaction with the work
  for (let empty = 0; empty < 2; ) {
    const receiver = client.createReceiver(QUEUE);
    try {
      const messages = await receiver.receiveMessages(10, { maxWaitTimeInMs: 2000 });
      empty = messages.length ? 0 : empty + 1;
      for (const message of messages) {
        done.add(message.messageId); // the work, unless it is done already
        await receiver.completeMessage(message).catch((error) => {
          if (error.code !== "MessageLockLost") throw error; // it comes again, and is known
        });
      }
    } catch (error) {
      await pause(PAUSE_MS);
    } finally {
      await receiver.close();
    }
  }
  return done;
}

try {
  if (process.argv.includes("fragile")) { // one try, and no id of the order's
    await client.createSender(QUEUE).sendMessages({ body: "an order" });
  } else {
    await send("order 7");
    console.log("done:", ...(await process_()));
  }
} finally {
  await client.close();
}
